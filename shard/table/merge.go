package table

import (
	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"
)

// merge applies an add to the scheduled timer of its id by a merge rule other than Reject.
func (t *Table) merge(c *encoding.Command, f *encoding.Summary, h timer.Handle) timer.Result {
	if c.Merge == timer.MergeKeep {
		return timer.Result{Code: timer.Merged, Handle: h, Unchanged: true}
	}
	s := t.slots.At(h)
	v := t.content.View(s.Ref)
	v.FirstMs = v.FirstAdd(t.clockMs)
	due := timer.Debounced(c.Merge, c.Spec.DueMs, v.FirstMs, c.MaxWaitMs)
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

// succeed makes an add the successor of a leased timer, or merges it with the existing successor.
func (t *Table) succeed(c *encoding.Command, h timer.Handle) timer.Result {
	s := t.slots.At(h)
	r := t.attempts.At(s.Attempt)
	if r.Successor != 0 && c.Merge == timer.MergeKeep {
		return timer.Result{Code: timer.Merged, Handle: h, Unchanged: true}
	}
	s = t.beginUpdate(h)
	next := content.Blob{
		Tag: c.Tag, Content: c.Content, Version: 1, CreatedMs: t.clockMs, UpdatedMs: t.clockMs, Rest: c.Spec.Rest,
		Target: t.content.Intern(c.Spec.Callback),
	}
	if r.Successor != 0 {
		next.CreatedMs = t.content.View(r.Successor).CreatedMs // time of the first of the merged adds
		t.content.Drop(h, r.Successor)
	}
	next.Flags = content.HasDue
	next.DueMs = timer.ClampMs(timer.Debounced(c.Merge, c.Spec.DueMs, next.CreatedMs, c.MaxWaitMs))
	t.forgetParts(h, s) // its retries will not come: it may not be delivered
	r.Successor = t.content.Put(h, &next)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.Merged, Handle: h}
}

// promote puts a successor in the place of its timer after the attempt has ended. If the timer has
// ended, the successor is like a new add. Otherwise it replaces the timer in place and supersedes
// its retries.
func (t *Table) promote(h timer.Handle, ref uint32) {
	s := t.slots.At(h)
	old, next := t.content.View(s.Ref), t.content.View(ref)
	f, _ := encoding.Summarize(next.Rest) // checked when it was proposed
	next.ID, next.Version = old.ID, t.versionAfter(old.Version)
	next.Begin(f.Repeats)
	if s.State() == timer.Scheduled {
		s = t.beginUpdate(h)
		t.dropArray(h, s)
		t.freeAttempt(h, s)
		s.SetAttempts(0)
		t.rewriteSame(h, s, &next)
		s.SetPriority(f.Priority)
		t.transition(h, s, timer.Scheduled, next.DueMs)
		t.endUpdate(h, s)
	} else {
		t.setSuccessor(h, &next, f.Priority, next.DueMs, false)
	}
	t.content.Drop(h, ref)
}
