package timer

// KeptMs is how long an ended timer can be read by its id, and an add of it be repeated.
const KeptMs = 10 * 60_000

// What a command comes to is decided here, for the table that carries it out and for the preview of
// a dry run.

// Former is what decides of the timer that has a command's id. The zero value: there is none.
type Former struct {
	State           State
	CancelRequested bool
	Tag, Version    uint32
	Content         uint64
	EndedMs         int64 // if it is over
}

// cancelled reports that it is cancelled, or will be when its attempt ends.
func (f *Former) cancelled() bool {
	return f.State == Cancelled || f.State == Leased && f.CancelRequested
}

// Meets reports whether a version is the one that the command requires, if any.
func (c *Command) Meets(version uint32) bool { return c.IfMatch == 0 || c.IfMatch == version }

// DecideAdd decides an add by any rule but MergeCollect (I18). After Created and Merged there is
// something to do: the timer is to be made, or to be merged by the rule.
func (c *Command) DecideAdd(x *Former, dueMs, nowMs int64) Code {
	late, merges, same := c.Late(dueMs, nowMs), c.Merge != MergeReject, x.Content == c.Content
	if !c.Once && c.Tag != x.Tag {
		// What was cancelled is made again, even while its last attempt still runs. The request
		// that made it does not do that if it comes twice, as through a node that was stopped (I5).
		same = same && !x.cancelled()
	}
	recent := nowMs-x.EndedMs <= KeptMs
	switch {
	case x.State.Over() && same && c.Absolute && (recent || nowMs-dueMs > LateMs):
		return Same
	case x.State.Over() && recent && c.Once:
		return Exists
	case (x.State == 0 || x.State.Over()) && late:
		return TooLate
	case x.State == 0 || x.State.Over():
		return Created
	case x.State == Scheduled && merges && !late:
		return Merged
	// An add with an absolute due time can be repeated safely under any merge rule.
	case same && (!merges || c.Absolute || x.State == Scheduled):
		return Same
	case merges && late:
		return TooLate
	case merges:
		return Merged
	case x.State == Leased:
		return InFlight
	}
	return Exists
}

// DecidePut decides a put. After Created and OK the timer is to be made, or to be replaced.
// breaksIn: it would make a series of a timer that others wait behind.
func (c *Command) DecidePut(x *Former, breaksIn bool, dueMs, nowMs int64) Code {
	// It may be the one that made the timer, again, whose answer was lost. What was cancelled is
	// made again.
	repeated := x.State != 0 && x.Content == c.Content && c.Absolute && c.IfMatch == 0 && !x.cancelled()
	late := c.Late(dueMs, nowMs)
	switch {
	case repeated && (late || x.State.Over() && dueMs <= nowMs):
		return Same
	case late:
		return TooLate
	case x.State == 0 && c.IfMatch != 0, x.State != 0 && !x.State.Over() && c.CreateOnly:
		return VersionMismatch
	case x.State == Leased:
		return InFlight
	case x.State != 0 && !c.Meets(x.Version):
		return VersionMismatch
	case x.State == 0 || x.State.Over():
		return Created
	case breaksIn:
		return InUse
	}
	return OK
}

// Refusal is why a change of a scheduled timer is refused; 0: it is not.
func (c *Command) Refusal(x *Former) Code {
	switch {
	case x.State == 0:
		return NotFound
	case x.State == Leased:
		return InFlight
	case x.State == Done:
		return OverFired
	case x.State == Dead:
		return OverDead
	case x.State == Cancelled:
		return OverCancelled
	case !c.Meets(x.Version):
		return VersionMismatch
	}
	return 0
}

// Rescheduled is when a timer is attempted next that was due at wasMs and to be attempted at
// nextMs, and is due at dueMs now. With Shift a pending retry stays, if that is later.
func (c *Command) Rescheduled(wasMs, nextMs, dueMs int64) int64 {
	if c.Shift && nextMs != wasMs {
		return max(nextMs, dueMs)
	}
	return dueMs
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
