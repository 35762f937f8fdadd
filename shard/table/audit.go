package table

import (
	"fmt"
	"maps"

	"carillon/timer"
	"carillon/wheel"
)

// Audit compares index, slots, wheel, counts and sums and returns the first difference (I13). If
// popped is false, nothing was popped from the wheel, and its content must match exactly. Audit
// takes time in proportion to the table. It is for tests, simulation and diagnosis.
func (t *Table) Audit(popped bool) error {
	var slots, blobs uint64
	var totals [timer.Cancelled + 1]int64
	pulled, noURL, wheelWaits := map[uint32]int64{}, map[uint32]int64{}, map[uint32]WheelWaits{}
	unused, waking := 0, 0
	for h := timer.Handle(1); h <= t.slab.high; h++ {
		s := t.slab.at(h)
		slots += t.slotHash(h, s)
		at, in := t.wheel.When(wheel.Handle(h))
		want, wakes := t.wakeMs(s)
		if wakes {
			waking++
		}
		if in && !wakes || !popped && (in != wakes || wakes && int64(at) != want) {
			return fmt.Errorf("shard: audit: handle %d in state %d is in the wheel %t at %d, want %t at %d", h, s.state(), in, at, wakes, want)
		}
		if s.state() == 0 {
			unused++
			continue
		}
		totals[s.state()]++
		if s.state() == timer.Leased && t.runs.at(s.run).holder == ByPuller {
			pulled[s.topic]++
		}
		v := t.view(s.ref)
		if own := t.Callback(t.targets.name(v.target)); !s.state().Over() && own.URL == "" {
			noURL[s.topic]++
		}
		r := wheelWaits[s.topic]
		switch word, mask := t.wheelWaits.bit(h); {
		case t.waitsForRetry(h, s) && t.wasRefused(s):
			r.Refused++
		case t.waitsForRetry(h, s):
			r.Backoff++
		case word != nil && *word&mask != 0 && in && s.state() == timer.Scheduled && s.attempts() == 0:
			r.Spread++
		}
		wheelWaits[s.topic] = r
		blobs += t.blobHash(h, v.flags, v.target, v.body)
		if s.run != 0 {
			if text := t.errorText(t.runs.at(s.run)); len(text) > 0 {
				blobs += errorHash(h, text)
			}
			if ref := t.runs.at(s.run).successor; ref != 0 {
				if s.state() != timer.Leased {
					return fmt.Errorf("shard: audit: handle %d in state %d has a successor", h, s.state())
				}
				v := t.view(ref)
				blobs += t.blobHash(h, v.flags, v.target, v.body)
			}
		} else if s.state() != timer.Scheduled || s.attempts() != 0 {
			return fmt.Errorf("shard: audit: handle %d in state %d after %d attempts has no run", h, s.state(), s.attempts())
		}
		if l := t.chains[h]; l.of != nil && l.live == s.state().Over() {
			return fmt.Errorf("shard: audit: handle %d in state %d is in the wrong place among those of its id", h, s.state())
		}
		named := t.Find(t.topics.rows[s.topic].id, v.id)
		if shadowed := t.chains[h].newer != 0; (named == h) == shadowed {
			return fmt.Errorf("shard: audit: id %q names handle %d, not %d", v.id, named, h)
		}
	}
	if unused != t.slab.unused || totals != t.topics.totals || !popped && waking != t.wheel.Len() {
		return fmt.Errorf("shard: audit: %d free of %d, counts %v of %v, wheel %d of %d",
			unused, t.slab.unused, totals, t.topics.totals, t.wheel.Len(), waking)
	}
	for row := range t.topics.rows {
		if r := &t.topics.rows[row]; r.pulled != pulled[uint32(row)] {
			return fmt.Errorf("shard: audit: %d timers of topic %d are pulled, the count is %d", pulled[uint32(row)], r.id, r.pulled)
		} else if r.noURL != noURL[uint32(row)] {
			return fmt.Errorf("shard: audit: %d timers of topic %d have no URL of their own, the count is %d", noURL[uint32(row)], r.id, r.noURL)
		} else if r.wheelWaits != wheelWaits[uint32(row)] {
			return fmt.Errorf("shard: audit: of topic %d %+v wait in the wheel, the counts are %+v", r.id, wheelWaits[uint32(row)], r.wheelWaits)
		}
	}
	if topic, leased := t.Astray(); leased != 0 {
		return fmt.Errorf("shard: audit: %d timers of topic %d are leased otherwise than its delivery says", leased, topic)
	}
	closed := t.sumClosed()
	if slots != t.slotSum || blobs != t.blobSum || closed != t.closedSum {
		return fmt.Errorf("shard: audit: sums %x %x %x, want %x %x %x", t.slotSum, t.blobSum, t.closedSum, slots, blobs, closed)
	}
	if sum := t.sumDeliveries(); sum != t.deliverySum {
		return fmt.Errorf("shard: audit: sum %x of deliveries, want %x", t.deliverySum, sum)
	}
	var sealed sealedBy
	for row := uint32(1); row <= t.targets.high; row++ {
		if g := t.targets.at(row); g.refs > 0 {
			sealed.count(g.bytes(&t.blobs), +1)
		}
	}
	if !maps.Equal(sealed, t.targets.sealed) {
		return fmt.Errorf("shard: audit: sealed values %v, want %v", t.targets.sealed.addTo(nil), sealed.addTo(nil))
	}
	return nil
}
