package sim

import (
	"slices"
	"time"

	"carillon/timer"
)

// mergeChecker checks API.md's merge rules, in addition to the rules for all features:
//
//   - A cancel or a replacing add ends each write that was acknowledged before it was requested.
//     Once it is answered no attempt of that write begins, whether the write waited, was to be
//     retried, or was the successor of a running timer (I5, I6).
//   - A debounced timer is never due later than the first add of its scope plus the longest wait of
//     the newest add.
//   - An add is delivered if no other operation on its id overlapped it or followed it (I1).
type mergeChecker struct {
	featureChecker
	writes map[string]*mergeWrite // by payload
	byID   map[string][]*mergeWrite
	asked  map[uint64][]*mergeWrite // by operation: the writes that its answer ends
	first  map[timerKey]*firstAdd   // nil: the timer was leased since
}

// firstAdd is the time of a timer's first add, the time of its request and the time of its first
// answer.
type firstAdd struct {
	ms          int64
	asked, told time.Duration
}

// mergeWrite is an add.
type mergeWrite struct {
	*write
	by        string        // the operation that ended it; "": none
	rule      string        // the invariant: I5 for a cancel, I6 for another add
	fence     uint64        // of the attempt that was running then; 0: none
	at        time.Duration // when the checker learned of it
	debounces bool
}

func newMergeChecker(f featureChecker) *mergeChecker {
	return &mergeChecker{featureChecker: f, writes: map[string]*mergeWrite{}, byID: map[string][]*mergeWrite{}, asked: map[uint64][]*mergeWrite{}, first: map[timerKey]*firstAdd{}}
}

// ends reports whether an operation ends earlier writes.
func (o *operation) ends() bool {
	return o.cmd != nil && (o.cmd.Kind == timer.Cancel || o.cmd.Merge == timer.MergeReplace || o.cmd.Merge == timer.MergeDebounce)
}

func (b *mergeChecker) called(o *operation) {
	b.featureChecker.called(o)
	if o.ends() {
		for _, m := range b.byID[o.id] {
			if m.acked && m.by == "" {
				b.asked[o.number] = append(b.asked[o.number], m)
			}
		}
	}
	if o.write != nil {
		m := &mergeWrite{write: o.write, debounces: o.cmd.Merge == timer.MergeDebounce}
		b.writes[o.write.payload] = m
		b.byID[o.id] = append(b.byID[o.id], m)
	}
}

func (b *mergeChecker) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	b.featureChecker.answered(w, o, r, t)
	if t == nil {
		return
	}
	// A timer whose call is about to begin is shown as scheduled, but with a successor instead of a
	// replacement.
	if m := b.writes[string(t.Payload)]; m.by != "" && o.began >= m.at && t.State == timer.Scheduled && !t.Successor {
		w.violate(m.rule, "operation %d shows %s scheduled, which %s ended before", o.number, t.Payload, m.by)
	}
	b.debounced(w, o.shard, t.Payload, t.DueMs, t.CreatedMs)
	b.firstAdd(w, o, r, t)
	if o.cmd == nil || r.Code != timer.Created && r.Code != timer.Merged && r.Code != timer.Prevented && r.Code != timer.CancelInFlight {
		return
	}
	by, rule := "a cancel", "I5"
	if o.write != nil {
		by, rule = "the add of "+o.write.payload, "I6"
	}
	for _, m := range b.asked[o.number] {
		if m.by == "" {
			m.by, m.rule, m.fence, m.at = by, rule, t.Fence, w.now
			w.counts.Superseded++
		}
	}
	delete(b.asked, o.number)
}

// firstAdd compares the first add in an answer with the one known before the operation began. An
// operation that began earlier may have been decided before that and answered late.
func (b *mergeChecker) firstAdd(w *World, o *operation, r timer.Result, t *timer.Timer) {
	key := keyOf(o.shard, t)
	first, known := b.first[key]
	switch {
	case t.State == timer.Leased || t.Successor: // a successor begins anew
		b.first[key] = nil
	case r.Code == timer.Created && !known:
		b.first[key] = &firstAdd{t.CreatedMs, o.began, w.now}
	case first == nil:
	case t.CreatedMs < first.ms && w.stampedAnew(o.shard, first.asked, t.CreatedMs):
		b.first[key] = &firstAdd{t.CreatedMs, o.began, w.now}
	case t.CreatedMs != first.ms && o.began >= first.told && t.State == timer.Scheduled && b.ids[idKey{o.topic, o.id}].open == 0:
		w.violate("merge", "operation %d shows the first add of %s at %d, it was at %d and the timer was not leased since", o.number, o.id, t.CreatedMs, first.ms)
	}
}

// stampedAnew reports whether a timestamp may have become ms since then, because the shard's clock
// was set back.
func (w *World) stampedAnew(id timer.ShardID, since time.Duration, ms int64) bool {
	return slices.ContainsFunc(w.checker.times.backs(id, since), func(b clockBack) bool { return b.toMs <= ms && ms < b.fromMs })
}

// debounced checks the due time of a debounced timer whose first add was at firstMs.
func (b *mergeChecker) debounced(w *World, id timer.ShardID, payload []byte, dueMs, firstMs int64) {
	m := b.writes[string(payload)]
	if m == nil || !m.debounces {
		return
	}
	want := m.dueMs
	if m.maxWaitMs > 0 {
		want = min(want, firstMs+m.maxWaitMs)
	}
	if want < dueMs && dueMs <= m.dueMs && w.stampedAnew(id, m.write.asked, firstMs) {
		return // a wrong clock stamped its first add, which was later stamped again
	}
	if dueMs != want {
		w.violate("debounce", "%s is due at %d, expected %d, with a longest wait of %d ms since the first add at %d", payload, dueMs, m.dueMs, m.maxWaitMs, firstMs)
	}
}

func (b *mergeChecker) started(c *call) {
	w, j := c.node.w, &c.delivery.Job
	b.featureChecker.started(c)
	if m := b.writes[string(j.Payload)]; m.by != "" && j.Fence > m.fence {
		w.violate(m.rule, "node %d begins an attempt of %s under fence %d, which %s ended under fence %d", c.node.id, j.Payload, j.Fence, m.by, m.fence)
	}
	b.debounced(w, c.delivery.Shard, j.Payload, j.DueMs, j.CreatedMs)
	b.first[keyOfCall(&c.delivery)] = nil
}

func (b *mergeChecker) checkEnd(w *World) {
	for _, k := range b.names {
		n, table := b.ids[k], w.leader(w.holder(k.topic, k.id)).host.Table(w.holder(k.topic, k.id))
		for _, m := range b.byID[k.id] {
			if m.acked && m.alone && m.call == n.calls && len(m.over) == 0 {
				w.violate("I1", "%s was acknowledged and no later operation used %s, but it was never delivered", m.payload, k.id)
			}
		}
		if now := table.Read(k.topic, k.id); now != nil && now.State != timer.Done && now.State != timer.Cancelled {
			w.violate("I14", "timer %s is in state %d, expected an ended timer", k.id, now.State)
		}
	}
}
