package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// merge applies an add to the scheduled timer of its id by a merge rule other than Reject.
func (t *Table) merge(c *encoding.Command, f *encoding.Summary, h timer.Handle) timer.Result {
	if c.Merge == timer.MergeKeep {
		return timer.Result{Code: timer.Merged, Handle: h}
	}
	s := t.slab.at(h)
	v := t.view(s.ref)
	v.firstMs = t.firstAdd(&v)
	due := timer.Debounced(c.Merge, c.Spec.DueMs, v.firstMs, c.MaxWait)
	before := t.Due(h)
	s = t.beginUpdate(h)
	t.rewriteWhole(h, s, &v, c, f)
	// If only the content is new, the leader's view of the timer stays valid and no transition is
	// made. Otherwise a steady stream of adds would make each proposed lease stale and delay a
	// debounced timer beyond its longest wait.
	after := t.Due(h)
	if after.Attempts, after.Fence, after.LeaseMs = before.Attempts, before.Fence, before.LeaseMs; after != before || due != before.NextMs || before.Attempts != 0 {
		t.transition(h, s, timer.Scheduled, due)
	}
	t.endUpdate(h, s)
	return timer.Result{Code: timer.Merged, Handle: h}
}

// firstAdd returns the time of the first add since the timer's last end. This is its creation,
// unless the timer was redriven or repeats; then the wait starts now.
func (t *Table) firstAdd(v *blob) int64 {
	switch {
	case v.firstMs != 0:
		return v.firstMs
	case v.waitsFromCreation():
		return v.createdMs
	}
	return t.clockMs
}

func (v *blob) waitsFromCreation() bool {
	return v.flags&blobNoExpiry == 0 && (v.flags&blobSeries == 0 || v.occurrence == 1)
}

// succeed makes an add the successor of a leased timer, or merges it with the existing successor.
func (t *Table) succeed(c *encoding.Command, f *encoding.Summary, h timer.Handle) timer.Result {
	s := t.slab.at(h)
	r := t.runs.at(s.run)
	if r.successor != 0 && c.Merge == timer.MergeKeep {
		return timer.Result{Code: timer.Merged, Handle: h}
	}
	s = t.beginUpdate(h)
	next := blob{
		tag: c.Tag, content: c.Content, version: 1, createdMs: t.clockMs, updatedMs: t.clockMs, rest: c.Spec.Rest,
		target: t.targets.intern(&t.blobs, c.Spec.Callback),
	}
	if r.successor != 0 {
		next.createdMs = t.view(r.successor).createdMs // time of the first of the merged adds
		t.dropBlob(h, r.successor)
	}
	next.flags = blobDue
	next.dueMs = timer.ClampMs(timer.Debounced(c.Merge, c.Spec.DueMs, next.createdMs, c.MaxWait))
	r.successor = t.putBlob(h, &next)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.Merged, Handle: h}
}

// dropSuccessor drops the successor of a timer with an open update.
func (t *Table) dropSuccessor(h timer.Handle, r *attemptState) {
	if r.successor != 0 {
		t.dropBlob(h, r.successor)
		r.successor = 0
	}
}

// takeSuccessor detaches the successor of a timer with an open update and returns its blob, which
// the caller then owns; 0 if there is none.
func (t *Table) takeSuccessor(s *slot) uint32 {
	r := t.runs.at(s.run)
	ref := r.successor
	r.successor = 0
	return ref
}

// promote puts a successor in the place of its timer after the attempt has ended. If the timer has
// ended, the successor is like a new add. Otherwise it replaces the timer in place and supersedes
// its retries.
func (t *Table) promote(h timer.Handle, ref uint32) {
	s := t.slab.at(h)
	old, next := t.view(s.ref), t.view(ref)
	f, _ := encoding.Summarize(next.rest) // checked when it was proposed
	next.id, next.version = old.id, t.versionAfter(old.version)
	next.begin(f.Repeats)
	t.targets.retain(next.target)
	if s.state() == timer.Scheduled {
		s = t.beginUpdate(h)
		t.freeRun(h, s)
		s.setAttempts(0)
		was := s.ref
		s.ref = t.putBlob(h, &next)
		t.dropBlob(h, was)
		s.setPriority(f.Priority)
		t.transition(h, s, timer.Scheduled, next.dueMs)
		t.endUpdate(h, s)
	} else {
		t.setSuccessor(h, &next, f.Priority, next.dueMs)
	}
	t.dropBlob(h, ref)
}

// setSuccessor makes a timer that takes over the id of one that has just ended. A dead letter is
// kept but superseded; any other ended timer is dropped. The new timer takes over the reference to
// v's target.
func (t *Table) setSuccessor(old timer.Handle, v *blob, priority uint8, dueMs int64) {
	o := t.slab.at(old)
	topic := t.topics.rows[o.topic].id
	hash := t.idHash(topic, v.id)
	h, s := t.makeBlob(topic, v, priority, dueMs)
	t.endUpdate(h, s)
	t.supersede(hash, old, h)
	if state := o.state(); state == timer.Done || state == timer.Cancelled {
		t.drop(old)
	}
}
