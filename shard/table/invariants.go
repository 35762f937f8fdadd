package table

import (
	"fmt"
	"maps"

	"carillon/timer"
)

// Audit compares index, slots, wheel, counts and sums and returns the first difference (I13). If
// popped is false, nothing was popped from the wheel, and its content must match exactly. Audit
// takes time in proportion to the table. It is for tests, simulation and diagnosis.
func (t *Table) Audit(popped bool) error {
	if len(t.updates) > 0 {
		return fmt.Errorf("shard: audit: %d updates are open", len(t.updates))
	}
	var slots, blobs uint64
	var totals [timer.Cancelled + 1]int64
	rows := make([]topicRow, len(t.topics.rows))
	unused, waking, arrays, parts, behind := 0, 0, 0, 0, 0
	naming := newOutcomeTopics()
	for h := timer.Handle(1); h <= t.slots.High; h++ {
		s := t.slots.At(h)
		slots += t.slotHash(h, s)
		at, in := t.wheel.When(wheelHandle(&t.slots, h))
		want, wakes := t.wakeMs(h, s)
		if wakes || in && t.foreign(h) {
			waking++
		}
		if t.foreign(h) {
			wakes, in = false, false
		}
		if in && !wakes || !popped && (in != wakes || wakes && int64(at) != want) {
			return fmt.Errorf("shard: audit: handle %d in state %d is in the wheel %t at %d, want %t at %d", h, s.State(), in, at, wakes, want)
		}
		if s.State() == 0 {
			unused++
			continue
		}
		foreign := t.foreign(h)
		r := &rows[s.Topic]
		r.id = t.topics.rows[s.Topic].id
		r.timers++
		if !foreign {
			totals[s.State()]++
			r.counts[s.State()]++
		}
		if !foreign && s.State() == timer.Leased && t.attempts.At(s.Attempt).Holder == ByPuller {
			r.pulled++
		}
		v := t.content.View(s.Ref)
		if own := t.content.CallbackAt(v.Target); !s.State().Over() && own.URL == "" && !foreign {
			r.noURL++
		}
		if naming.read(h, v.Rest); !s.State().Over() && !foreign {
			naming.add(h, +1)
		}
		switch counted := t.wheelWaits.counted.has(h); {
		case foreign:
		case s.Paused():
			if counted {
				r.wheelWaits.Paused++
			}
		case t.isBehind(h, s):
			if counted {
				r.wheelWaits.Order++
			}
		case t.waitsForRetry(h, s) && t.wasRefused(s):
			r.wheelWaits.Refused++
		case t.waitsForRetry(h, s):
			r.wheelWaits.Backoff++
		case counted && in && s.State() == timer.Scheduled && s.Attempts() == 0:
			r.wheelWaits.Spread++
		}
		blobs += t.content.Hash(h, &v)
		if a, ok := t.arrays[h]; ok {
			arrays++
			blobs += t.content.ArrayHash(h, &a)
			for name := range t.content.Names(&a) {
				parts++
				if of := t.parts[t.partHash(r.id, v.ID, name)]; of != h {
					return fmt.Errorf("shard: audit: part %q of handle %d leads to %d", name, h, of)
				}
			}
		}
		if s.Attempt != 0 {
			blobs += t.content.ErrorHash(h, t.attempts.At(s.Attempt).ErrRef)
			if ref := t.attempts.At(s.Attempt).Successor; ref != 0 {
				if s.State() != timer.Leased {
					return fmt.Errorf("shard: audit: handle %d in state %d has a successor", h, s.State())
				}
				v := t.content.View(ref)
				blobs += t.content.Hash(h, &v)
			}
		} else if s.State() != timer.Scheduled || s.Attempts() != 0 {
			return fmt.Errorf("shard: audit: handle %d in state %d after %d attempts has no run", h, s.State(), s.Attempts())
		}
		if l := t.chains[h]; l.of != nil && l.live == s.State().Over() {
			return fmt.Errorf("shard: audit: handle %d in state %d is in the wrong place among those of its id", h, s.State())
		}
		if l := t.chains[h]; l.behind && (s.State() != timer.Scheduled || l.older == 0 || !t.chains[l.older].live || s.Attempts() != 0) {
			return fmt.Errorf("shard: audit: handle %d in state %d waits behind nothing", h, s.State())
		}
		if l := t.chains[h]; l.of != nil {
			if (l.of.lastBehind == h) != (l.behind && !t.chains[l.older].behind) || l.behind != (t.waiting[s.Seq()] == h) {
				return fmt.Errorf("shard: audit: handle %d waits: %v, not as %+v and %d by its number", h, l.behind, l.of, t.waiting[s.Seq()])
			}
			if l.behind {
				behind++
			}
		}
		named := t.Find(t.topics.rows[s.Topic].id, v.ID)
		if shadowed := t.chains[h].newer != 0; (named == h) == (shadowed || foreign) {
			return fmt.Errorf("shard: audit: id %q names handle %d, not %d", v.ID, named, h)
		}
	}
	if unused != t.slots.Unused || totals != t.topics.totals || !popped && waking != t.wheel.Len() {
		return fmt.Errorf("shard: audit: %d free of %d, counts %v of %v, wheel %d of %d",
			unused, t.slots.Unused, totals, t.topics.totals, t.wheel.Len(), waking)
	}
	if arrays != len(t.arrays) || parts != len(t.parts) || behind != len(t.waiting) {
		return fmt.Errorf("shard: audit: %d arrays of %d, %d parts of %d, %d wait of %d", arrays, len(t.arrays), parts, len(t.parts), behind, len(t.waiting))
	}
	for i, r := range rows {
		if r != t.topics.rows[i] {
			return fmt.Errorf("shard: audit: topic %d has %+v, the counts are %+v", r.id, r, t.topics.rows[i])
		}
	}
	if !maps.Equal(naming.of, t.naming.of) || !maps.Equal(naming.count, t.naming.count) {
		return fmt.Errorf("shard: audit: timers name topics %v, the counts are %v", naming, t.naming)
	}
	if topic, leased := t.Astray(); leased != 0 {
		return fmt.Errorf("shard: audit: %d timers of topic %d are leased otherwise than its delivery says", leased, topic)
	}
	if closed, known := t.closedTopics.count(), t.deliveries.count(); slots != t.slotSum || blobs != t.content.Sum() || closed != t.closedTopics.sum || known != t.deliveries.sum {
		return fmt.Errorf("shard: audit: sums %x %x %x %x, want %x %x %x %x", t.slotSum, t.content.Sum(), t.closedTopics.sum, t.deliveries.sum, slots, blobs, closed, known)
	}
	if err := t.content.Audit(); err != nil {
		return fmt.Errorf("shard: audit: %w", err)
	}
	return nil
}
