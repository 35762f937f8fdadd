package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// refusal returns the code that refuses a client's change in this state, if the state refuses it.
func refusal(s timer.State) (timer.Code, bool) {
	switch s {
	case timer.Leased:
		return timer.InFlight, true
	case timer.Done:
		return timer.OverFired, true
	case timer.Dead:
		return timer.OverDead, true
	case timer.Cancelled:
		return timer.OverCancelled, true
	}
	return 0, false
}

// meets reports whether the timer has the version that the command requires, if any.
func (v *blob) meets(c *encoding.Command) bool { return c.IfMatch == 0 || c.IfMatch == v.version }

// add creates a timer, or answers according to the timer that already has the id (I18).
func (t *Table) add(c *encoding.Command, f *encoding.Summary) timer.Result {
	if t.Closed(c.Topic) {
		return timer.Result{Code: timer.TopicClosed}
	}
	h := t.Find(c.Topic, c.ID)
	late := t.late(c)
	switch {
	case h == 0 && late:
		return timer.Result{Code: timer.TooLate}
	case h == 0:
		return t.create(c, f, t.versionAfter(0))
	}
	s := t.slab.at(h)
	v := t.view(s.ref)
	same := v.content == c.Content
	merges := c.Merge != timer.MergeReject
	absolute := c.Flags&encoding.CommandAbsolute != 0
	if c.Flags&encoding.CommandOnce == 0 && c.Tag != v.tag {
		// What was cancelled is made again, even while its last attempt still runs. The request that
		// made it does not do that if it comes twice, as through a node that was stopped (I5).
		same = same && s.state() != timer.Cancelled && !(s.state() == timer.Leased && s.cancelled())
	}
	switch s.state() {
	case timer.Scheduled:
		switch {
		case merges && !late:
			return t.merge(c, f, h)
		case same:
			return timer.Result{Code: timer.Same, Handle: h}
		case merges:
			return timer.Result{Code: timer.TooLate, Handle: h}
		}
		return timer.Result{Code: timer.Exists, Handle: h}
	case timer.Leased:
		switch {
		// An add with an absolute due time can be repeated safely under any merge rule.
		case same && (!merges || absolute):
			return timer.Result{Code: timer.Same, Handle: h}
		case merges && late:
			return timer.Result{Code: timer.TooLate, Handle: h}
		case merges:
			return t.succeed(c, f, h)
		}
		return timer.Result{Code: timer.InFlight, Handle: h}
	}
	recent := t.clockMs-t.runs.at(s.run).endedMs() <= finishedKeepMs
	switch {
	case same && absolute && (recent || t.clockMs-c.Spec.DueMs > timer.LateMs):
		return timer.Result{Code: timer.Same, Handle: h}
	case recent && c.Flags&encoding.CommandOnce != 0:
		return timer.Result{Code: timer.Exists, Handle: h}
	case late:
		return timer.Result{Code: timer.TooLate, Handle: h}
	}
	return t.createOver(c, f, h)
}

// late reports whether a command that must not be late is late.
func (t *Table) late(c *encoding.Command) bool {
	return c.Flags&encoding.CommandNotLate != 0 && t.clockMs-c.Spec.DueMs > timer.LateMs
}

// put creates a timer or replaces its whole content.
func (t *Table) put(c *encoding.Command, f *encoding.Summary) timer.Result {
	if t.Closed(c.Topic) {
		return timer.Result{Code: timer.TopicClosed}
	}
	if t.late(c) {
		return timer.Result{Code: timer.TooLate}
	}
	h := t.Find(c.Topic, c.ID)
	if h == 0 {
		if c.IfMatch != 0 {
			return timer.Result{Code: timer.VersionMismatch}
		}
		return t.create(c, f, t.versionAfter(0))
	}
	s := t.slab.at(h)
	v := t.view(s.ref)
	switch state := s.state(); {
	case !state.Over() && c.Flags&encoding.CommandCreateOnly != 0:
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	case state == timer.Leased:
		return timer.Result{Code: timer.InFlight, Handle: h}
	case !v.meets(c):
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	case state.Over():
		return t.createOver(c, f, h)
	}
	dueMs := c.Spec.DueMs
	if f.Repeats {
		dueMs = t.continues(s, &v, c)
	}
	s = t.beginUpdate(h)
	t.replace(h, s, &v, c, f, dueMs)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// versionAfter returns the version after a change of a timer with this version; 0 is a new timer.
func (t *Table) versionAfter(version uint32) uint32 { return max(version+1, t.leastVersion) }

// replace sets the whole content of a scheduled timer from a command, as its next version. The
// timer's update is open, and v views its blob.
func (t *Table) replace(h timer.Handle, s *slot, v *blob, c *encoding.Command, f *encoding.Summary, dueMs int64) {
	t.rewriteWhole(h, s, v, c, f)
	t.transition(h, s, timer.Scheduled, dueMs)
}

// rewriteWhole is replace without the schedule.
func (t *Table) rewriteWhole(h timer.Handle, s *slot, v *blob, c *encoding.Command, f *encoding.Summary) {
	t.freeRun(h, s)
	s.setAttempts(0)
	v.version = t.versionAfter(v.version)
	v.content, v.updatedMs, v.rest = c.Content, t.clockMs, c.Spec.Rest
	v.begin(f.Repeats)
	t.rewrite(h, s, v, c.Spec.Callback)
	s.setPriority(f.Priority)
}

// rewrite gives a timer with an open update a new blob. v may view the old one.
func (t *Table) rewrite(h timer.Handle, s *slot, v *blob, callback []byte) {
	old := s.ref
	v.target = t.targets.intern(&t.blobs, callback)
	s.ref = t.putBlob(h, v)
	t.dropBlob(h, old)
}

// create makes a timer with an id that no timer has.
func (t *Table) create(c *encoding.Command, f *encoding.Summary, version uint32) timer.Result {
	h, s := t.makeTimer(c, f, version)
	t.ids.insert(t.idHash(c.Topic, c.ID), uint32(h))
	t.endUpdate(h, s)
	return t.born(h, version)
}

// born returns the result for a timer that was just made.
func (t *Table) born(h timer.Handle, version uint32) timer.Result {
	return timer.Result{Code: timer.Created, Handle: h, Seq: t.seq, Version: version, AtMs: t.clockMs}
}

// createOver makes a timer with the id of an ended one. A dead letter is kept but superseded; any
// other ended timer is dropped.
func (t *Table) createOver(c *encoding.Command, f *encoding.Summary, old timer.Handle) timer.Result {
	s := t.slab.at(old)
	version := t.versionAfter(t.view(s.ref).version)
	if s.state() != timer.Dead {
		t.drop(old)
		if old = t.Find(c.Topic, c.ID); old == 0 {
			return t.create(c, f, version)
		}
	}
	h, s := t.makeTimer(c, f, version)
	t.endUpdate(h, s)
	t.supersede(t.idHash(c.Topic, c.ID), old, h)
	return t.born(h, version)
}

// makeTimer fills a new slot and leaves its update open.
func (t *Table) makeTimer(c *encoding.Command, f *encoding.Summary, version uint32) (timer.Handle, *slot) {
	v := blob{
		target: t.targets.intern(&t.blobs, c.Spec.Callback), tag: c.Tag, content: c.Content, version: version,
		createdMs: t.clockMs, updatedMs: t.clockMs, id: c.ID, rest: c.Spec.Rest,
	}
	v.begin(f.Repeats)
	return t.makeBlob(c.Topic, &v, f.Priority, timer.Debounced(c.Merge, c.Spec.DueMs, t.clockMs, c.MaxWait))
}

// makeBlob fills a new slot and leaves its update open.
func (t *Table) makeBlob(topic timer.TopicID, v *blob, priority uint8, dueMs int64) (timer.Handle, *slot) {
	h, s := t.newSlot()
	t.seq++
	s.setSeq(t.seq)
	s.topic = t.topics.retain(topic)
	s.ref = t.putBlob(h, v)
	s.setPriority(priority)
	t.transition(h, s, timer.Scheduled, dueMs)
	return h, s
}

// modify applies a patch completely or not at all (I6). Attempts made so far still count.
func (t *Table) modify(c *encoding.Command, p *timer.Patch) timer.Result {
	h := t.Named(c.Topic, c.ID, c.Seq)
	if h == 0 {
		return timer.Result{Code: timer.NotFound}
	}
	s := t.slab.at(h)
	if code, refused := refusal(s.state()); refused {
		return timer.Result{Code: code, Handle: h}
	}
	v := t.view(s.ref)
	if !v.meets(c) {
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	}
	s = t.beginUpdate(h)
	t.patch(h, s, &v, p)
	next := s.when()
	if p.Due {
		next = timer.ClampMs(p.Spec.DueMs)
		t.setDue(s, next)
	}
	t.transition(h, s, timer.Scheduled, next)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// patch rewrites the timer's blob with the patch's fields, as the next version.
func (t *Table) patch(h timer.Handle, s *slot, v *blob, p *timer.Patch) {
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, v.rest, false)
	if !p.Payload {
		// not copied: a batch may patch hundreds of large payloads
		spec.Payload = encoding.PayloadIn(v.rest)
	}
	if v.target != 0 {
		spec.Callback = t.targets.at(v.target).callback(&t.blobs)
	}
	p.Apply(&spec)
	if p.Expiry {
		v.flags &^= blobNoExpiry
	}
	if p.Due {
		v.askedMs = 0 // the new time stands
	}
	if p.Repeat {
		v.flags, v.occurrence = v.flags&^blobSeries, 0
		if spec.Repeat != nil {
			v.flags, v.occurrence = v.flags|blobSeries, 1
		}
	}
	v.version = t.versionAfter(v.version)
	v.updatedMs = t.clockMs
	t.scratch = encoding.AppendCallback(t.scratch[:0], &spec.Callback)
	n := len(t.scratch)
	t.scratch = encoding.AppendRest(t.scratch, &spec)
	v.rest = t.scratch[n:]
	t.rewrite(h, s, v, t.scratch[:n])
	s.setPriority(spec.Priority)
}

// setDue changes the due time of a timer with an open update. Without an attemptState, the due
// time is the slot's when, which the caller sets.
func (t *Table) setDue(s *slot, ms int64) {
	if s.run != 0 {
		t.runs.at(s.run).dueMs = ms
	}
}

// cancel prevents every attempt that has not started (I5), both of the timer and of its older
// occurrences that have not ended.
func (t *Table) cancel(c *encoding.Command) timer.Result {
	h := t.Find(c.Topic, c.ID)
	if h == 0 {
		return timer.Result{Code: timer.NotFound}
	}
	if t.slab.at(h).state().Over() { // then all others of the id are over too
		code := map[timer.State]timer.Code{timer.Done: timer.OverFired, timer.Dead: timer.OverDead, timer.Cancelled: timer.Prevented}[t.slab.at(h).state()]
		return timer.Result{Code: code, Handle: h}
	}
	if v := t.view(t.slab.at(h).ref); !v.meets(c) {
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	}
	code := timer.Prevented
	for at := h; at != 0; {
		next := t.NextLive(at)
		if t.cancelOne(at) {
			code = timer.CancelInFlight
		}
		if at != h {
			t.rankEnded(at)
		}
		at = next
	}
	t.rankEnded(h)
	return timer.Result{Code: code, Handle: t.Find(c.Topic, c.ID)}
}

// cancelOne cancels a timer unless it has ended. It reports whether an attempt may be running. The
// caller ranks the timer.
func (t *Table) cancelOne(h timer.Handle) (running bool) {
	switch t.slab.at(h).state() {
	case timer.Leased:
		s := t.beginUpdate(h)
		s.mark(cancelMark, true)
		t.dropSuccessor(h, t.runs.at(s.run))
		t.endUpdate(h, s)
		return true
	case timer.Scheduled:
		s := t.beginUpdate(h)
		t.end(h, s, timer.Cancelled, t.clockMs)
		t.endUpdate(h, s)
	}
	return false
}

// fire makes the next attempt of a scheduled timer now, or at the proposer's time if the command has
// it. Everything else stays: the due time, the version and with it the webhook-id, the attempts, and
// the times of a series.
func (t *Table) fire(c *encoding.Command) timer.Result {
	h := t.Find(c.Topic, c.ID)
	if h == 0 {
		return timer.Result{Code: timer.NotFound}
	}
	s := t.slab.at(h)
	if code, refused := refusal(s.state()); refused {
		return timer.Result{Code: code, Handle: h}
	}
	v := t.view(s.ref)
	if !v.meets(c) {
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	}
	asked := max(t.clockMs, 1)
	if c.DueMs != 0 {
		asked = max(timer.ClampMs(c.DueMs), 1)
	}
	if v.askedMs != 0 && s.when() <= asked {
		return timer.Result{Code: timer.OK, Handle: h} // an earlier request has its attempt still to come
	}
	s = t.beginUpdate(h)
	v.askedMs = asked
	t.rewriteSame(h, s, &v)
	t.run(s) // it keeps the due time
	t.transition(h, s, timer.Scheduled, min(s.when(), v.askedMs))
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// rewriteSame writes a timer's changed blob with the same content. The timer's update is open.
func (t *Table) rewriteSame(h timer.Handle, s *slot, v *blob) {
	t.targets.retain(v.target)
	old := s.ref
	s.ref = t.putBlob(h, v)
	t.dropBlob(h, old)
}
