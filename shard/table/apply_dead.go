package table

import (
	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"
)

// redrive gives a dead letter new attempts. It keeps its due time, and its number, tag and version,
// so the receiver sees the same webhook-id. Its expiry no longer counts, and the patch may change
// its callback.
func (t *Table) redrive(c *encoding.Command, p *timer.Patch) timer.Result {
	h := t.deadLetter(c)
	if h == 0 {
		return timer.Result{Code: timer.Skipped}
	}
	if code := t.mayRedrive(h); code != timer.OK {
		return timer.Result{Code: code, Handle: h}
	}
	if g := t.chains[h].of; g != nil && t.slots.At(g.first).State() != timer.Dead && g.live == 0 {
		t.drop(g.first) // it is done or cancelled; the id names the redriven timer
	}
	s := t.beginUpdate(h)
	v := t.content.View(s.Ref)
	v.Flags |= content.NoExpiry
	t.scratch = append(t.scratch[:0], t.content.EncodedCallback(v.Target)...)
	callback := t.scratch
	if p != nil {
		cb, _ := encoding.DecodeCallback(callback)
		p.ApplyToCallback(&cb)
		callback = encoding.AppendCallback(nil, &cb)
	}
	next := t.clockMs
	if c.DueMs != 0 {
		next = timer.ClampMs(c.DueMs)
	}
	// It may have died before it was due: by a clock that was ahead, or after a Fire. Only in the
	// second case may it be attempted before that again, and the redrive takes the Fire's place.
	dueMs := t.dueMs(s)
	if next = max(next, earliestMs(dueMs, v.AskedMs)); v.AskedMs != 0 {
		v.AskedMs = 0
		if next < dueMs {
			v.AskedMs = next
		}
	}
	t.rewrite(h, s, &v, callback)
	s.SetAttempts(0)
	s.SetReason(timer.NoReason)
	t.transition(h, s, timer.Scheduled, next)
	t.endUpdate(h, s)
	t.rank(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

func (t *Table) purge(c *encoding.Command) timer.Result {
	h := t.deadLetter(c)
	if h == 0 {
		return timer.Result{Code: timer.Skipped}
	}
	t.drop(h)
	return timer.Result{Code: timer.OK}
}

// closeTopic makes a topic refuse adds. Without force, the topic must have no pending and no dead
// timers, and no pending timer may name it for its outcome. With force, all timers of the topic are
// dropped; see dropTopic.
func (t *Table) closeTopic(c *encoding.Command) timer.Result {
	out := timer.Result{Code: timer.OK}
	row, ok := t.topics.rowOf[c.Topic]
	if force := c.Flags&encoding.CommandForce != 0; !force {
		if n := t.Counts(c.Topic); n.Scheduled+n.Leased+n.Dead > 0 {
			return timer.Result{Code: timer.NotEmpty}
		}
		if n := t.naming.count[c.Topic]; n > 0 {
			return timer.Result{Code: timer.InUse, Removed: int(n)}
		}
	} else if ok {
		out.Removed, out.Handle = t.dropTopic(row, c.From, int64(c.Work))
	}
	t.closedTopics.open(c.Topic)
	t.closedTopics.add(tombstone{c.Topic, t.clockMs})
	return out
}
