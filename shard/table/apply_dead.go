package table

import (
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
	if g := t.chains[h].of; g != nil && t.slab.at(g.first).state() != timer.Dead && g.live == 0 {
		t.drop(g.first) // it is done or cancelled; the id names the redriven timer
	}
	s := t.beginUpdate(h)
	v := t.view(s.ref)
	v.flags |= blobNoExpiry
	var callback []byte
	if v.target != 0 {
		t.scratch = append(t.scratch[:0], t.targets.at(v.target).bytes(&t.blobs)...)
		callback = t.scratch
	}
	if p != nil {
		cb, _ := encoding.DecodeCallback(callback)
		p.ApplyToCallback(&cb)
		callback = encoding.AppendCallback(nil, &cb)
	}
	t.rewrite(h, s, &v, callback)
	next := t.clockMs
	if c.DueMs != 0 {
		next = timer.ClampMs(c.DueMs)
	}
	// It may have died before it was due: by a clock that was ahead, or after a Fire.
	next = max(next, earliestMs(t.dueMs(s), v.askedMs))
	s.setAttempts(0)
	s.setReason(timer.NoReason)
	t.transition(h, s, timer.Scheduled, next)
	t.endUpdate(h, s)
	t.rank(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

// purge drops a dead letter.
func (t *Table) purge(c *encoding.Command) timer.Result {
	h := t.deadLetter(c)
	if h == 0 {
		return timer.Result{Code: timer.Skipped}
	}
	t.drop(h)
	return timer.Result{Code: timer.OK}
}

// closeTopic makes a topic refuse adds. Without force, the topic must have no pending and no dead
// timers. With force, all timers of the topic are dropped; see dropTopic.
func (t *Table) closeTopic(c *encoding.Command) timer.Result {
	out := timer.Result{Code: timer.OK}
	row, ok := t.topics.rowOf[c.Topic]
	if force := c.Flags&encoding.CommandForce != 0; !force {
		if n := t.Counts(c.Topic); n.Scheduled+n.Leased+n.Dead > 0 {
			return timer.Result{Code: timer.NotEmpty}
		}
	} else if ok {
		out.Removed, out.Handle = t.dropTopic(row, c.From, int64(c.Work))
	}
	t.openTopic(c.Topic)
	t.addClosed(tombstone{c.Topic, t.clockMs})
	return out
}

// openTopic undoes closeTopic.
func (t *Table) openTopic(topic timer.TopicID) {
	if !t.Closed(topic) {
		return
	}
	delete(t.tombOf, topic)
	for i := range t.closedTopics {
		if t.closedTopics[i].topic == topic {
			t.closedSum -= t.closedTopics[i].hash()
			t.closedTopics = append(t.closedTopics[:i:i], t.closedTopics[i+1:]...)
			return
		}
	}
}

// addClosed adds a closed topic that is not in the list yet.
func (t *Table) addClosed(tomb tombstone) {
	t.closedTopics = append(t.closedTopics, tomb)
	t.tombOf[tomb.topic] = struct{}{}
	t.closedSum += tomb.hash()
}

// dropWork is the cost of dropping a timer, in units of visiting a slot.
const dropWork = 16

// dropTopic drops a topic's timers, visiting the slots after from. It stops when work is used up (0
// is unlimited) and returns the slot to continue after, or 0 when it has finished. The row
// disappears with its last timer. removed counts the pending timers among those dropped.
func (t *Table) dropTopic(row uint32, from timer.Handle, work int64) (removed int, next timer.Handle) {
	bounded := work > 0
	left := t.topics.rows[row].timers
	for h := from + 1; h <= t.slab.high && left > 0; h++ {
		if bounded && work <= 0 {
			return removed, h - 1
		}
		work--
		if s := t.slab.at(h); s.state() != 0 && s.topic == row {
			if s.state() == timer.Scheduled || s.state() == timer.Leased {
				removed++
			}
			t.drop(h)
			left--
			work -= dropWork
		}
	}
	return removed, 0
}
