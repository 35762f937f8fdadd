package table

import (
	"fmt"

	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// dropsPerEntry and bytesPerDrop bound the finished timers that an entry drops. They allow more
// drops than an entry can finish timers, because finishing one takes at least five bytes.
const (
	dropsPerEntry = 64
	bytesPerDrop  = 4
)

// Apply applies one committed entry, which a Batch built, and appends one result per item to dst.
// If want is set and returns true for an item's number and result, that result carries a copy of
// the timer. An error means that the entry cannot be read; the state is then undefined and the
// shard must stop.
func (t *Table) Apply(data []byte, want func(item int, r *timer.Result) bool, dst []timer.Result) ([]timer.Result, error) {
	var it items
	if err := it.open(data); err != nil {
		return dst, fmt.Errorf("shard: apply: %w", err)
	}
	t.cancelLeft = cancelWork
	t.compares, t.outcomes = false, Outcomes{Made: t.outcomes.Made[:0]}
	t.clockMs = max(t.clockMs, it.nowMs)
	t.restamping.visit(t, restampsPerEntry)
	t.dropFinished(dropsPerEntry + len(data)/bytesPerDrop)
	oldest := t.clockMs - tombstoneKeepMs
	for topic, ok := t.takeExpired(oldest); ok; topic, ok = t.takeExpired(oldest) {
		t.deliveries.forget(topic)
	}
	for n := 0; it.next(); n++ {
		t.endedAs = 0
		r := t.applyItem(&it)
		if it.follows {
			t.followUp(&it)
		}
		if it.Fault != "" {
			break
		}
		dst = append(dst, r)
		if want != nil && r.Handle != 0 && (it.kind == itemCommand && it.change.Kind != timer.CloseTopic || it.kind != itemCommand && r.Code == timer.OK) {
			// Pass last, not &r: taking r's address would put every result on the heap.
			if last := &dst[len(dst)-1]; want(n, last) {
				last.Timer = t.CopyWith(r.Handle, it.kind != itemCommand || t.AnswersWhole(r.Handle, it.change.Kind, it.change.Merge))
			}
		}
	}
	if err := it.Err(); err != nil {
		return dst, fmt.Errorf("shard: apply: %w", err)
	}
	return dst, nil
}

func (t *Table) applyItem(it *items) timer.Result {
	switch it.kind {
	case itemCommand:
		return t.applyCommand(it)
	case itemLeases:
		return t.lease(it.handle, it.seq, it.rev, it.durMs, ByCall, it.nowMs)
	case itemPulls:
		return t.lease(it.handle, it.seq, it.rev, it.durMs, ByPuller, it.nowMs)
	case itemAcks, itemOutcome:
		return t.outcome(&it.outcome)
	case itemExpire, itemExpireAgain:
		return t.expire(it.handle, it.seq, it.rev, it.untilMs, it.againMs)
	case itemOverlap:
		return t.overlap(it.handle, it.seq, it.fence, it.againMs)
	case itemSkip:
		return t.skipTo(it.handle, it.seq, it.rev, it.againMs)
	case itemForget:
		return t.forgetDead(it.handle, it.seq)
	case itemTakeover:
		t.takeover(it.owner)
	case itemClock:
		t.setClock(it.nowMs)
	case itemSeriesSeen:
		if t.restamped == seriesAwait {
			t.restamped = noRestamp
		}
	case itemCompare:
		t.compares = true
	case itemDivide:
		return t.divide(it.shards, it.half)
	case itemSweep:
		return t.sweep(it.slots)
	}
	return timer.Result{Code: timer.OK}
}

func (t *Table) applyCommand(it *items) timer.Result {
	c := &it.change
	switch c.Kind {
	case timer.Add, timer.Put:
		f, err := encoding.Summarize(c.Spec.Rest)
		if err == nil && len(c.Spec.Callback) > 0 {
			err = encoding.CheckCallback(c.Spec.Callback)
		}
		if err != nil {
			it.Fail(err.Error())
			return timer.Result{}
		}
		if c.Kind == timer.Add {
			return t.add(c, &f)
		}
		return t.put(c, &f)
	case timer.Modify, timer.Redrive:
		var p *timer.Patch
		if c.Patch != nil || c.Kind == timer.Modify {
			var err error
			if p, err = encoding.DecodePatch(c.Patch); err != nil {
				it.Fail(err.Error())
				return timer.Result{}
			}
		}
		if c.Kind == timer.Modify {
			return t.modify(c, p)
		}
		return t.redrive(c, p)
	case timer.Cancel:
		return t.cancel(c)
	case timer.Fire:
		return t.fire(c)
	case timer.Pause, timer.Resume:
		return t.pause(c)
	case timer.Purge:
		return t.purge(c)
	case timer.CloseTopic:
		return t.closeTopic(c)
	case timer.Deliver:
		return t.deliver(c)
	default:
		t.closedTopics.open(c.Topic)
		return timer.Result{Code: timer.OK}
	}
}

// lease starts an attempt of a scheduled timer if the topic is delivered to this kind of holder. A
// pulled attempt starts with the lease, at nowMs. The start of a call is in its outcome.
func (t *Table) lease(h timer.Handle, seq uint64, rev uint32, durMs int64, holder Holder, nowMs int64) timer.Result {
	if !t.ScheduledAt(h, seq, rev) || t.slots.At(h).Paused() || t.isBehind(h, t.slots.At(h)) || !t.Delivers(t.topics.rows[t.slots.At(h).Topic].id, holder == ByPuller) {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	s := t.beginUpdate(h)
	r := t.attemptOf(s)
	r.Fence = t.nextFence()
	r.SetAttemptDueMs(s.When())
	r.DurMs, r.Holder = uint32(min(durMs, 1<<32-1)), holder
	if holder == ByPuller {
		r.Status = 0
		t.started(s, r, nowMs)
	}
	s.SetAttempts(s.Attempts() + 1)
	t.transition(h, s, timer.Leased, t.clockMs+timer.ClampMs(durMs))
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h, Fence: r.Fence}
}

// expire ends a scheduled timer that was not started before its expiry.
func (t *Table) expire(h timer.Handle, seq uint64, rev uint32, retainUntilMs, againMs int64) timer.Result {
	if !t.ScheduledAt(h, seq, rev) {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	s := t.beginUpdate(h)
	paused := s.Paused()
	t.kill(h, s, timer.Expired, t.clockMs, retainUntilMs)
	t.endUpdate(h, s)
	t.continueSeries(h, againMs, paused)
	t.rankEnded(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

func (t *Table) kill(h timer.Handle, s *slab.Slot, why timer.Reason, endMs, retainUntilMs int64) {
	t.attemptOf(s).SetEndedMs(endMs)
	s.SetReason(why)
	t.transition(h, s, timer.Dead, retainUntilMs)
	t.endedAs = timer.Dead
	t.forgetParts(h, s)
	t.dropLog(h, s)
	t.events.addEnd(&t.timers, h, s)
}
