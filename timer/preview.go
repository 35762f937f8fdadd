package timer

import "cmp"

// KeptMs is how long an ended timer can be read by its id, and an add of it be repeated.
const KeptMs = 10 * 60_000

// Preview returns what a shard would answer to an add, a put or a modification now, and changes
// nothing. cur is the timer of the id as it stands; nil: there is none. A test holds it against the
// table.
func Preview(c *Command, cur *Timer, nowMs int64) Result {
	if cur != nil {
		copied := *cur
		cur = &copied
	}
	switch c.Kind {
	case Add:
		return previewAdd(c, cur, nowMs)
	case Put:
		return previewPut(c, cur, nowMs)
	}
	return previewModify(c, cur, nowMs)
}

func (c *Command) late(nowMs int64) bool { return c.NotLate && nowMs-c.Spec.DueMs > LateMs }

func previewAdd(c *Command, cur *Timer, nowMs int64) Result {
	late, merges := c.late(nowMs), c.Merge != MergeReject
	switch {
	case c.Merge == MergeCollect:
		return previewCollect(c, cur, nowMs)
	case cur == nil && late:
		return Result{Code: TooLate}
	case cur == nil:
		return previewNew(c, nil, nowMs)
	}
	same := cur.Content == c.Content
	recent := nowMs-cur.EndedMs <= KeptMs
	if !c.Once && c.Tag != cur.Tag { // what was cancelled is made again
		same = same && cur.State != Cancelled && !(cur.State == Leased && cur.CancelRequested)
	}
	code := Code(0)
	switch {
	case cur.State == Scheduled && merges && !late:
		return previewMerge(c, cur, nowMs)
	case !cur.State.Over() && same && (!merges || c.Absolute || cur.State == Scheduled):
		code = Same
	case !cur.State.Over() && merges && late:
		code = TooLate
	case cur.State == Leased && merges:
		cur.Successor = true
		code = Merged
	case cur.State == Leased:
		code = InFlight
	case cur.State == Scheduled:
		code = Exists
	case same && c.Absolute && (recent || nowMs-c.Spec.DueMs > LateMs):
		code = Same
	case recent && c.Once:
		code = Exists
	case late:
		code = TooLate
	default:
		return previewNew(c, cur, nowMs)
	}
	return Result{Code: code, Timer: cur}
}

// previewNew is a timer that the command makes; cur, if not nil, had its id before.
func previewNew(c *Command, cur *Timer, nowMs int64) Result {
	r := Result{Code: Created, Version: 1, AtMs: nowMs}
	if cur != nil {
		r.Version = cur.Version + 1
	}
	alone := *c
	alone.Into = nil
	r.Timer = NewTimer(&alone, &r)
	return r
}

// previewWhole is the scheduled timer cur with all of its content from the command.
func previewWhole(c *Command, cur *Timer, dueMs, nowMs int64) *Timer {
	t := previewNew(c, cur, nowMs).Timer
	t.Seq, t.Origin, t.Tag = cur.Seq, cur.Origin, cur.Tag
	t.CreatedMs, t.FirstMs, t.Paused = cur.CreatedMs, cur.FirstMs, cur.Paused
	t.DueMs, t.NextMs = dueMs, dueMs
	t.Successor = cur.Successor
	return t
}

func previewMerge(c *Command, cur *Timer, nowMs int64) Result {
	if c.Merge == MergeKeep {
		return Result{Code: Merged, Timer: cur}
	}
	first := cmp.Or(cur.FirstMs, nowMs)
	return Result{Code: Merged, Timer: previewWhole(c, cur, Debounced(c.Merge, c.Spec.DueMs, first, c.MaxWaitMs), nowMs)}
}

// previewCollect takes the payload for one that the arrays of the id do not have. If the add would
// begin another array behind the timer, it shows the timer.
func previewCollect(c *Command, cur *Timer, nowMs int64) Result {
	switch {
	case c.late(nowMs):
		return Result{Code: TooLate, Timer: cur}
	case cur == nil || cur.State.Over():
		return previewNew(c, cur, nowMs)
	case cur.Repeat != nil:
		return Result{Code: Exists, Timer: cur}
	case cur.State == Leased || cur.Attempts > 0 || cur.Successor || cur.FirstMs == 0:
		cur.Successor = true
		return Result{Code: Merged, Timer: cur}
	case cur.Collected == 0 && (cur.PayloadKind == BinaryPayload || !NestsInArray(cur.Payload)):
		return Result{Code: Exists, Timer: cur}
	case !cur.takes(c.Spec.Payload):
		cur.fill(nowMs)
		cur.Successor = true
		return Result{Code: Merged, Timer: cur}
	}
	cur.collect(c.Spec.Payload)
	cur.Version, cur.UpdatedMs = cur.Version+1, nowMs
	if c.MaxWaitMs != 0 && cur.AskedMs == 0 {
		cur.moveTo(Debounced(c.Merge, c.Spec.DueMs, cur.FirstMs, c.MaxWaitMs))
	}
	if int(cur.Collected) >= c.Spec.collectMax() {
		cur.fill(nowMs)
	}
	return Result{Code: Merged, Timer: cur}
}

func previewPut(c *Command, cur *Timer, nowMs int64) Result {
	late := c.late(nowMs)
	switch {
	case cur != nil && repeatsPut(c, cur) && (late || cur.State.Over() && c.Spec.DueMs <= nowMs):
		return Result{Code: Same, Timer: cur}
	case late:
		return Result{Code: TooLate}
	case cur == nil && c.IfMatch != 0:
		return Result{Code: VersionMismatch}
	case cur == nil:
		return previewNew(c, nil, nowMs)
	case c.CreateOnly && !cur.State.Over():
		return Result{Code: VersionMismatch, Timer: cur}
	case cur.State == Leased:
		return Result{Code: InFlight, Timer: cur}
	case c.IfMatch != 0 && c.IfMatch != cur.Version:
		return Result{Code: VersionMismatch, Timer: cur}
	case cur.State.Over():
		return previewNew(c, cur, nowMs)
	case cur.Successor && c.Spec.Repeat != nil: // another one would come behind the next array
		return Result{Code: InUse, Timer: cur}
	}
	due := c.Spec.DueMs
	if c.Absolute && cur.Occurrence > 0 {
		due = Continued(cur.Repeat, c.Spec.Repeat, cur.DueMs, due, nowMs)
	}
	return Result{Code: OK, Timer: previewWhole(c, cur, due, nowMs)}
}

// repeatsPut reports whether a put may be a repetition of the one that made the timer.
func repeatsPut(c *Command, cur *Timer) bool {
	return cur.Content == c.Content && c.Absolute && c.IfMatch == 0 &&
		cur.State != Cancelled && !(cur.State == Leased && cur.CancelRequested)
}

func previewModify(c *Command, cur *Timer, nowMs int64) Result {
	if cur == nil {
		return Result{Code: NotFound}
	}
	switch {
	case cur.State == Leased:
		return Result{Code: InFlight, Timer: cur}
	case cur.State == Done:
		return Result{Code: OverFired, Timer: cur}
	case cur.State == Dead:
		return Result{Code: OverDead, Timer: cur}
	case cur.State == Cancelled:
		return Result{Code: OverCancelled, Timer: cur}
	case c.IfMatch != 0 && c.IfMatch != cur.Version:
		return Result{Code: VersionMismatch, Timer: cur}
	case cur.Successor && c.Patch.Repeat && c.Patch.Spec.Repeat != nil:
		return Result{Code: InUse, Timer: cur}
	}
	if c.Patch.Payload || c.Patch.Repeat && c.Patch.Spec.Repeat != nil {
		cur.Collected, cur.Full = 0, false
	}
	dueMs := cur.DueMs
	c.Patch.ApplyTo(&cur.Spec, cur.Content)
	if cur.Collected > 0 {
		cur.ContentType = ""
	}
	if c.Patch.Due {
		waits := c.Shift && cur.NextMs != dueMs // for its next retry
		cur.DueMs = ClampMs(cur.DueMs)
		if !waits || cur.DueMs > cur.NextMs {
			cur.NextMs = cur.DueMs
		}
		cur.AskedMs = 0
	}
	if c.Patch.Repeat {
		cur.Occurrence = 0
		if cur.Repeat != nil {
			cur.Occurrence = 1
		}
	}
	cur.Version, cur.UpdatedMs = cur.Version+1, nowMs
	return Result{Code: OK, Timer: cur}
}

// Continued returns the due time of a series that a put gives to a timer whose series, was, has its
// pending occurrence at pendingMs. A first time that is past begins the same series once only: if
// both repeat at the same times, the occurrences up to the pending one have been, and that one
// stays.
func Continued(was, is *Repeat, pendingMs, firstMs, nowMs int64) int64 {
	if was == nil || is == nil || is.EveryMs == 0 || was.EveryMs != is.EveryMs {
		return firstMs
	}
	if firstMs > nowMs || pendingMs < firstMs || (pendingMs-firstMs)%is.EveryMs != 0 {
		return firstMs
	}
	return pendingMs
}
