package shard

import (
	"carillon/wheel"
)

// redrive gives a dead letter new attempts: same number, tag and version, so the receiver sees the same webhook-id.
// Its expiry no longer counts; the patch may change its callback.
func (t *Table) redrive(c *change, p *Patch) Result {
	h, inUse := t.deadLetter(c)
	if h == 0 || inUse {
		return Result{Code: Skipped}
	}
	if newer := t.chains[h].newer; newer != 0 {
		t.drop(newer) // it has ended; its id goes back to the dead letter
	}
	s := t.touch(h)
	v := t.view(s.ref)
	v.flags |= blobNoExpiry
	var callback []byte
	if v.target != 0 {
		t.scratch = append(t.scratch[:0], t.targets.at(v.target).bytes(&t.blobs)...)
		callback = t.scratch
	}
	if p != nil {
		cb, _ := decodeCallback(callback)
		p.applyToCallback(&cb)
		callback = appendCallback(nil, &cb)
	}
	t.rewrite(h, s, &v, callback)
	due := t.clockMs
	if c.dueMs != 0 {
		due = clampMs(c.dueMs)
	}
	r := t.run(s)
	r.dueMs, r.lateness = due, -1
	s.setAttempts(0)
	s.setReason(NoReason)
	t.turn(h, s, Scheduled, due)
	t.settle(h, s)
	return Result{Code: OK, Handle: h}
}

// purge forgets a dead letter.
func (t *Table) purge(c *change) Result {
	h, _ := t.deadLetter(c)
	if h == 0 {
		return Result{Code: Skipped}
	}
	t.drop(h)
	return Result{Code: OK}
}

// closeTopic refuses further adds to a topic.
func (t *Table) closeTopic(topic TopicID, force bool) Result {
	var removed int
	if row, ok := t.topics.rowOf[topic]; ok {
		n := &t.topics.rows[row].counts
		if !force && n[Scheduled]+n[Leased]+n[Dead] > 0 {
			return Result{Code: NotEmpty}
		}
		if force {
			removed = int(n[Scheduled] + n[Leased])
			t.dropTopic(row)
		}
	}
	t.openTopic(topic)
	t.tombs = append(t.tombs, tombstone{topic, t.clockMs})
	return Result{Code: OK, Removed: removed}
}

// openTopic undoes closeTopic.
func (t *Table) openTopic(topic TopicID) {
	for i := range t.tombs {
		if t.tombs[i].topic == topic {
			t.tombs = append(t.tombs[:i:i], t.tombs[i+1:]...)
			return
		}
	}
}

// dropTopic drops every timer of a topic in one walk over the slots. The row is gone when its last timer is.
func (t *Table) dropTopic(row uint32) {
	left := t.topics.rows[row].timers
	for h := wheel.Handle(1); h <= t.slab.high && left > 0; h++ {
		if s := t.slab.at(h); s.state() != 0 && s.topic == row {
			t.drop(h)
			left--
		}
	}
}
