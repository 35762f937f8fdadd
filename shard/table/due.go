package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/wheel"
)

// What follows is a leader's own: it changes neither the replicated state nor its hash. A timer
// that was popped is in the wheel no more until its schedule changes or Arm or Rearm puts it back;
// a leader that steps down and may lead again must Rearm what it popped and still holds.

// Advance moves the wheel to nowMs, doing at most budget units of work, and says whether it got
// there.
func (t *Table) Advance(nowMs int64, budget int) (done bool) {
	_, done = t.wheel.Advance(wheel.Tick(nowMs), budget)
	return done
}

// Pop takes timers whose moment came out of the wheel.
func (t *Table) Pop(dst []wheel.Handle) int { return t.wheel.Pop(dst) }

// NextDue is the earliest time at which Advance or Pop has something to do.
func (t *Table) NextDue() (ms int64, ok bool) {
	if t.wheel.Due() > 0 {
		return int64(t.wheel.Now()), true
	}
	next, ok := t.wheel.Next()
	return int64(next), ok
}

// Arm puts a timer into the wheel, or moves it, for that moment.
func (t *Table) Arm(h timer.Handle, atMs int64) {
	if t.get(h) == nil {
		return
	}
	at := wheel.Tick(timer.ClampMs(atMs))
	if _, in := t.wheel.When(wheel.Handle(h)); in {
		t.wheel.Move(wheel.Handle(h), at)
		return
	}
	t.wheel.Add(wheel.Handle(h), at)
}

// Due is what a leader needs to order and gate a timer.
type Due struct {
	Seq       uint64
	Rev       uint32 // grows with every change of the timer but a cancel request
	Topic     timer.TopicID
	Target    Target
	Priority  uint8
	State     timer.State // 0: no such timer
	NextMs    int64       // Scheduled: the next attempt; Leased: the end of the lease
	FirstMs   int64       // the due time
	ExpiresMs int64       // Scheduled, Leased: an attempt that would start later is not made; 0 = never expires
	RetainMs  int64       // Dead: the end of its retention
	Attempts  int
	Fence     uint64
	LeaseMs   int64 // how long the last lease was given for
	Holder    Holder
	FiredMs   int64 // start of the last attempt that is known to have started
	Status    int   // HTTP status of the last attempt
	Series    bool  // it repeats
}

// Due reads what a leader needs of a timer; the zero value if the slot is free.
func (t *Table) Due(h timer.Handle) Due {
	s := t.get(h)
	if s == nil {
		return Due{}
	}
	v := t.view(s.ref)
	d := Due{
		Seq: s.seq(), Rev: s.rev, Topic: t.topics.rows[s.topic].id, Target: t.targets.name(v.target),
		Priority: s.priority(), State: s.state(), Attempts: s.attempts(), FirstMs: t.dueMs(s), Series: v.flags&blobSeries != 0,
	}
	if s.run != 0 {
		r := t.runs.at(s.run)
		d.Fence, d.LeaseMs = r.fence, int64(r.durMs)
		d.Holder, d.FiredMs, d.Status = r.holder, r.firedMs, int(r.status)
	}
	switch d.State {
	case timer.Scheduled, timer.Leased:
		d.NextMs, d.ExpiresMs = s.when(), v.expiresMs(d.FirstMs)
	case timer.Dead:
		d.RetainMs = s.when()
	}
	return d
}

func (t *Table) expiresMs(s *slot) int64 {
	v := t.view(s.ref)
	return v.expiresMs(t.dueMs(s))
}

// expiresMs is the last moment at which an attempt may start; 0 = any.
func (v *blob) expiresMs(dueMs int64) int64 {
	if v.flags&blobNoExpiry != 0 {
		return 0
	}
	after, ok := encoding.RestExpiry(v.rest)
	if !ok {
		return 0
	}
	return max(timer.ClampMs(dueMs+timer.ClampMs(after)), 1) // 0 would read as never
}

// Job is what a delivery needs of a timer, copied.
type Job struct {
	Handle      timer.Handle
	ID          string
	Topic       timer.TopicID
	Seq         uint64
	Tag         uint32
	Version     uint32
	DueMs       int64
	CreatedMs   int64
	Attempts    int
	Fence       uint64
	Payload     []byte
	PayloadKind timer.PayloadKind
	ContentType string
	Retry       timer.Retry
	Target      Target
	Priority    uint8
	Trace       *timer.Trace
}

// Job copies what a delivery needs; the zero value if the slot is free.
func (t *Table) Job(h timer.Handle) Job {
	s := t.get(h)
	if s == nil {
		return Job{}
	}
	v := t.view(s.ref)
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, v.rest, true) // checked when it came in
	j := Job{
		Handle: h, ID: string(v.id), Topic: t.topics.rows[s.topic].id, Seq: s.seq(), Tag: v.tag, Version: v.version, CreatedMs: v.createdMs,
		DueMs: t.dueMs(s), Attempts: s.attempts(), Payload: spec.Payload, PayloadKind: spec.PayloadKind,
		ContentType: spec.ContentType, Retry: spec.Retry, Target: t.targets.name(v.target), Priority: s.priority(),
		Trace: spec.Trace,
	}
	if s.run != 0 {
		j.Fence = t.runs.at(s.run).fence
	}
	return j
}

// RetryOf is the timer's own retry settings.
func (t *Table) RetryOf(h timer.Handle) timer.Retry {
	s := t.get(h)
	if s == nil {
		return timer.Retry{}
	}
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, t.view(s.ref).rest, false)
	return spec.Retry
}

// RearmRange puts timers that were popped back into the wheel where their state says, looking at no
// more than budget slots after from (0 at first), and says where to go on.
func (t *Table) RearmRange(from timer.Handle, budget int) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		t.restore(from, t.slab.at(from))
	}
	return from, from >= t.slab.high
}

// Rearm is Rewatch for one timer, if it still has that number.
func (t *Table) Rearm(h timer.Handle, seq uint64) {
	if s := t.live(h, seq); s != nil {
		t.restore(h, s)
	}
}

func (t *Table) restore(h timer.Handle, s *slot) {
	if at, wakes := t.wakeMs(s); wakes {
		if _, in := t.wheel.When(wheel.Handle(h)); !in {
			t.Arm(h, at)
		}
	}
}

// ScanLeased calls fn for leased timers, looking at no more than budget slots after from (0 at
// first), and says where to go on. fn must not change the table.
func (t *Table) ScanLeased(from timer.Handle, budget int, fn func(h timer.Handle)) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		if t.slab.at(from).state() == timer.Leased {
			fn(from)
		}
	}
	return from, from >= t.slab.high
}

// ScanAttempted calls fn for timers that are leased, or scheduled with attempts made, looking at no
// more than budget slots after from (0 at first), and says where to go on. fn must not change the
// table.
func (t *Table) ScanAttempted(from timer.Handle, budget int, fn func(h timer.Handle)) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		s := t.slab.at(from)
		if state := s.state(); state == timer.Leased || state == timer.Scheduled && s.attempts() > 0 {
			fn(from)
		}
	}
	return from, from >= t.slab.high
}

// ScheduledAt says whether the handle still holds the timer of that number, scheduled, and at that
// revision.
func (t *Table) ScheduledAt(h timer.Handle, seq uint64, rev uint32) bool {
	s := t.live(h, seq)
	return s != nil && s.rev == rev && s.state() == timer.Scheduled
}

// LastHandle is the highest handle that was ever given out, and so how many slots a look at all of
// them takes.
func (t *Table) LastHandle() timer.Handle { return t.slab.high }

// Older is the timer that had the id before, and has not gone yet; 0: there is none.
func (t *Table) Older(h timer.Handle) timer.Handle { return t.chains[h].older }

// AttemptDueMs is when the attempt was due that a lease is for. It is for tests of I4.
func (t *Table) AttemptDueMs(h timer.Handle) int64 { return t.runs.at(t.slab.at(h).run).attemptDueMs() }

// LastFence is the fence that was given last.
func (t *Table) LastFence() uint64 { return t.fence }

// InBackoff reports that a timer has been attempted and is not over. One that a client has moved to
// a later time since is not in backoff: it has given its place up until then.
func (d *Due) InBackoff(nowMs int64) bool {
	return d.State == timer.Scheduled && d.Attempts > 0 && (d.NextMs > d.FirstMs || d.NextMs <= nowMs)
}

// Earlier reports that one timer is due before another, or was added before it and is due with it.
func (d *Due) Earlier(o *Due) bool {
	if d.FirstMs != o.FirstMs {
		return d.FirstMs < o.FirstMs
	}
	return d.Seq < o.Seq
}
