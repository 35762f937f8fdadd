package timer

import "cmp"

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

func former(t *Timer) *Former {
	if t == nil {
		return &Former{}
	}
	return &Former{t.State, t.CancelRequested, t.Tag, t.Version, t.Content, t.EndedMs}
}

func previewAdd(c *Command, cur *Timer, nowMs int64) Result {
	if c.Merge == MergeCollect {
		return previewCollect(c, cur, nowMs)
	}
	code := c.DecideAdd(former(cur), c.Spec.DueMs, nowMs)
	switch {
	case code == Created:
		return previewNew(c, cur, nowMs)
	case code == Merged && cur.State == Scheduled:
		return previewMerge(c, cur, nowMs)
	case code == Merged:
		cur.Successor = true
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
	case c.Late(c.Spec.DueMs, nowMs):
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
	breaksIn := cur != nil && cur.Successor && c.Spec.Repeat != nil // another one would come behind the next array
	switch code := c.DecidePut(former(cur), breaksIn, c.Spec.DueMs, nowMs); code {
	case OK:
	case Created:
		return previewNew(c, cur, nowMs)
	case TooLate:
		return Result{Code: code}
	default:
		return Result{Code: code, Timer: cur}
	}
	due := c.Spec.DueMs
	if c.Absolute && cur.Occurrence > 0 {
		due = Continued(cur.Repeat, c.Spec.Repeat, cur.DueMs, due, nowMs)
	}
	return Result{Code: OK, Timer: previewWhole(c, cur, due, nowMs)}
}

func previewModify(c *Command, cur *Timer, nowMs int64) Result {
	if code := c.Refusal(former(cur)); code != 0 {
		return Result{Code: code, Timer: cur}
	}
	if cur.Successor && c.Patch.Repeat && c.Patch.Spec.Repeat != nil {
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
		cur.DueMs = ClampMs(cur.DueMs)
		cur.NextMs = c.Rescheduled(dueMs, cur.NextMs, cur.DueMs)
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
