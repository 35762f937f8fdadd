package table

import (
	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// former is what decides of a timer whose content is v; the zero value of handle 0.
func (t *timers) former(h timer.Handle, v *content.Blob) (x timer.Former) {
	if h == 0 {
		return x
	}
	s := t.slots.At(h)
	x = timer.Former{State: s.State(), CancelRequested: s.Cancelled(), Tag: v.Tag, Version: v.Version, Content: v.Content}
	if x.State.Over() {
		x.EndedMs = t.attempts.At(s.Attempt).EndedMs()
	}
	return x
}

// changeable finds the scheduled timer that a command changes, and views its blob. The code is why
// the command is refused; 0: it is not.
func (t *timers) changeable(c *encoding.Command, seq uint64) (h timer.Handle, s *slab.Slot, v content.Blob, code timer.Code) {
	if h = t.Named(c.Topic, c.ID, seq); h != 0 {
		s = t.slots.At(h)
		v = t.content.View(s.Ref)
	}
	x := t.former(h, &v)
	return h, s, v, c.Refusal(&x)
}

// add creates a timer, or answers according to the timer that already has the id (I18).
func (t *Table) add(c *encoding.Command, f *encoding.Summary) timer.Result {
	if t.Closed(c.Topic) || t.namesClosed(f.OnDone, f.OnDead) {
		return timer.Result{Code: timer.TopicClosed}
	}
	if c.Merge == timer.MergeCollect {
		return t.collect(c, f)
	}
	h := t.Find(c.Topic, c.ID)
	v := t.viewOf(h)
	x := t.former(h, &v)
	switch code := c.DecideAdd(&x, c.Spec.DueMs, t.clockMs); {
	case code == timer.Created:
		return t.create(c, f, h)
	case code == timer.Merged && x.State == timer.Scheduled:
		return t.merge(c, f, h)
	case code == timer.Merged:
		return t.succeed(c, h)
	default:
		return timer.Result{Code: code, Handle: h}
	}
}

// put creates a timer or replaces its whole content.
func (t *Table) put(c *encoding.Command, f *encoding.Summary) timer.Result {
	if t.Closed(c.Topic) || t.namesClosed(f.OnDone, f.OnDead) {
		return timer.Result{Code: timer.TopicClosed}
	}
	h := t.Named(c.Topic, c.ID, 0)
	v := t.viewOf(h)
	x := t.former(h, &v)
	switch code := c.DecidePut(&x, f.Repeats && t.Awaited(h), c.Spec.DueMs, t.clockMs); code {
	case timer.OK:
	case timer.Created:
		return t.create(c, f, h)
	case timer.TooLate:
		return timer.Result{Code: code}
	default:
		return timer.Result{Code: code, Handle: h}
	}
	s, dueMs := t.slots.At(h), c.Spec.DueMs
	if f.Repeats && c.Absolute && v.Occurrence != 0 {
		dueMs = timer.Continued(restRepeat(v.Rest), restRepeat(c.Spec.Rest), t.dueMs(s), dueMs, t.clockMs)
	}
	s = t.beginUpdate(h)
	t.rewriteWhole(h, s, &v, c, f)
	t.transition(h, s, timer.Scheduled, dueMs)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// versionAfter returns the version after a change of a timer with this version; 0 is a new timer.
func (t *Table) versionAfter(version uint32) uint32 { return max(version+1, t.leastVersion) }

// rewriteWhole sets the whole content of a scheduled timer from a command, as its next version. The
// timer's update is open, and v views its blob.
func (t *Table) rewriteWhole(h timer.Handle, s *slab.Slot, v *content.Blob, c *encoding.Command, f *encoding.Summary) {
	t.dropArray(h, s)
	t.freeAttempt(h, s)
	s.SetAttempts(0)
	v.Version = t.versionAfter(v.Version)
	v.Content, v.UpdatedMs, v.Rest = c.Content, t.clockMs, c.Spec.Rest
	v.Begin(f.Repeats)
	unmiss(s)
	t.rewrite(h, s, v, c.Spec.Callback)
	s.SetPriority(f.Priority)
}

// create makes a timer with the id of old, which it supersedes; one that is done or cancelled is
// dropped. If old is 0, no timer has the id.
func (t *Table) create(c *encoding.Command, f *encoding.Summary, old timer.Handle) timer.Result {
	version := t.versionAfter(0)
	if old != 0 {
		s := t.slots.At(old)
		version = t.versionAfter(t.content.View(s.Ref).Version)
		if state := s.State(); state == timer.Done || state == timer.Cancelled {
			t.drop(old)
			old = t.Find(c.Topic, c.ID)
		}
	}
	v := content.Blob{
		Target: t.content.Intern(c.Spec.Callback), Tag: c.Tag, Content: c.Content, Version: version,
		CreatedMs: t.clockMs, UpdatedMs: t.clockMs, ID: c.ID, Rest: c.Spec.Rest,
	}
	v.Begin(f.Repeats)
	h, s := t.makeBlob(c.Topic, &v, f.Priority, timer.Debounced(c.Merge, c.Spec.DueMs, t.clockMs, c.MaxWaitMs))
	t.endUpdate(h, s)
	if hash := t.idHash(c.Topic, c.ID); old == 0 {
		t.ids.Insert(hash, uint32(h))
	} else {
		t.supersede(hash, old, h)
	}
	return timer.Result{Code: timer.Created, Handle: h, Seq: t.seq, Version: version, AtMs: t.clockMs}
}

// modify applies a patch completely or not at all (I6). Attempts made so far still count.
func (t *Table) modify(c *encoding.Command, p *timer.Patch) timer.Result {
	h, _, v, code := t.changeable(c, c.Seq)
	if code != 0 {
		return timer.Result{Code: code, Handle: h}
	}
	if (p.OnDone || p.OnDead) && t.namesClosed(p.Topics()...) {
		return timer.Result{Code: timer.TopicClosed, Handle: h}
	}
	if p.Repeat && p.Spec.Repeat != nil && t.Awaited(h) {
		return timer.Result{Code: timer.InUse, Handle: h}
	}
	s := t.beginUpdate(h)
	t.patch(h, s, &v, p)
	next := s.When()
	if p.Due {
		dueMs := timer.ClampMs(p.Spec.DueMs)
		next = c.Rescheduled(t.dueMs(s), next, dueMs)
		t.setDue(s, dueMs)
	}
	t.transition(h, s, timer.Scheduled, next)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// patch rewrites the timer's blob with the patch's fields, as the next version.
func (t *Table) patch(h timer.Handle, s *slab.Slot, v *content.Blob, p *timer.Patch) {
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, v.Rest, false)
	switch a, collects := t.arrays[h]; {
	case p.Payload:
		t.dropArray(h, s)
	case collects && p.Repeat && p.Spec.Repeat != nil: // a series collects no more
		spec.Payload, spec.PayloadKind = t.content.AppendArray(nil, &a), timer.JSONPayload
		t.dropArray(h, s)
	default:
		// not copied: a batch may patch hundreds of large payloads
		spec.Payload = encoding.PayloadIn(v.Rest)
	}
	if v.Target != 0 {
		spec.Callback = t.content.CallbackAt(v.Target)
	}
	p.ApplyTo(&spec, v.Content)
	if t.collects(h) {
		spec.ContentType = ""
	}
	if p.Expiry {
		v.Flags &^= content.NoExpiry
	}
	if p.Due {
		v.AskedMs = 0 // the new time stands
	}
	if p.Due || p.Repeat {
		unmiss(s)
	}
	if p.Repeat {
		v.Flags, v.Occurrence = v.Flags&^content.IsSeries, 0
		if spec.Repeat != nil {
			v.Flags, v.Occurrence = v.Flags|content.IsSeries, 1
		}
	}
	v.Version = t.versionAfter(v.Version)
	v.UpdatedMs = t.clockMs
	t.scratch = encoding.AppendCallback(t.scratch[:0], &spec.Callback)
	n := len(t.scratch)
	t.scratch = encoding.AppendRest(t.scratch, &spec)
	v.Rest = t.scratch[n:]
	t.rewrite(h, s, v, t.scratch[:n])
	s.SetPriority(spec.Priority)
}

// fire makes the next attempt of a scheduled timer now, or at the proposer's time if the command
// has it. Everything else stays: the due time, the version and with it the webhook-id, the
// attempts, and the times of a series.
func (t *Table) fire(c *encoding.Command) timer.Result {
	h, s, v, code := t.changeable(c, 0)
	if code != 0 {
		return timer.Result{Code: code, Handle: h}
	}
	asked := max(t.clockMs, 1)
	if c.DueMs != 0 {
		asked = max(timer.ClampMs(c.DueMs), 1)
	}
	if v.AskedMs != 0 && s.When() <= asked {
		return timer.Result{Code: timer.OK, Handle: h, Unchanged: true} // an earlier request has its attempt still to come
	}
	s = t.beginUpdate(h)
	v.AskedMs = asked
	unmiss(s)
	t.rewriteSame(h, s, &v)
	t.attemptOf(s) // it keeps the due time
	t.transition(h, s, timer.Scheduled, min(s.When(), v.AskedMs))
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// pause pauses a scheduled timer, or resumes it. Everything else stays, as with
// fire: the due time, the version and with it the webhook-id, and the attempts. A timer that is
// replaced or patched stays held.
func (t *Table) pause(c *encoding.Command) timer.Result {
	h, s, v, code := t.changeable(c, c.Seq)
	if code == timer.NotFound && c.Seq != 0 {
		// It has ended. The id may name the next of its series, about which a bulk change decides.
		if next := t.Named(c.Topic, c.ID, 0); next != 0 && !t.slots.At(next).State().Over() {
			h, code = next, timer.VersionMismatch
		}
	}
	if code != 0 {
		return timer.Result{Code: code, Handle: h}
	}
	on := c.Kind == timer.Pause
	if s.Paused() == on {
		return timer.Result{Code: timer.OK, Handle: h, Unchanged: true}
	}
	s = t.beginUpdate(h)
	s.SetPaused(on, !on && missed(s, &v, max(t.clockMs, c.DueMs)))
	t.transition(h, s, timer.Scheduled, s.When())
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// missed reports whether a held timer is an occurrence whose time has passed, of a series that
// skips those. The leader moves it on, because a table knows no calendar.
func missed(s *slab.Slot, v *content.Blob, nowMs int64) bool {
	if v.AskedMs != 0 || s.Attempts() != 0 || s.When() > nowMs {
		return false
	}
	p := repeatOf(v)
	return p != nil && p.CatchUp == timer.CatchUpSkip
}

// unmiss ends the mark of a missed occurrence when the timer gets another time or another series.
// The timer's update is open.
func unmiss(s *slab.Slot) {
	if s.Missed() {
		s.SetPaused(false, false)
	}
}
