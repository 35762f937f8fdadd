package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/wheel"
)

// The functions below are local to a leader: they change neither the replicated state nor its hash.
// A popped timer is out of the wheel until its schedule changes or Arm or Rearm puts it back. A
// leader that steps down and may lead again must Rearm the popped timers that it still holds.

// Advance moves the wheel to nowMs with at most budget units of work. It reports whether the wheel
// has reached nowMs.
func (t *Table) Advance(nowMs int64, budget int) (done bool) {
	_, done = t.wheel.Advance(wheel.Tick(nowMs), budget)
	return done
}

// Pop takes due timers out of the wheel and returns their number: less than len(dst) when no more
// are due. Half of them are those that became due last, which need not wait until all of a herd has
// left the wheel.
func (t *Table) Pop(dst []wheel.Handle) int {
	n := t.wheel.Pop(dst[:(len(dst)+1)/2])
	n += t.wheel.PopLast(dst[n:])
	for _, h := range dst[:n] {
		t.uncountWait(timer.Handle(h))
	}
	return n
}

// NextDue returns the earliest time at which Advance or Pop has work.
func (t *Table) NextDue() (ms int64, ok bool) {
	if t.wheel.Due() > 0 {
		return int64(t.wheel.Now()), true
	}
	next, ok := t.wheel.Next()
	return int64(next), ok
}

// Arm adds a timer to the wheel at atMs, or moves it there.
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

// Due is the data by which a leader orders and gates a timer.
type Due struct {
	Seq      uint64
	Rev      uint32 // grows with every change of the timer except a cancel request
	Topic    timer.TopicID
	Target   Target
	Priority uint8
	State    timer.State // 0: no such timer
	NextMs   int64       // Scheduled: the next attempt; Leased: the end of the lease
	FirstMs  int64       // the due time
	// ExpiresMs is, while Scheduled or Leased, the last time at which an attempt may start; 0 =
	// never expires.
	ExpiresMs int64
	RetainMs  int64 // Dead: the end of its retention
	Attempts  int
	Fence     uint64
	LeaseMs   int64 // duration of the last lease
	Holder    Holder
	FiredMs   int64 // start of the last attempt that is known to have started
	Status    int   // HTTP status of the last attempt
	Series    bool  // it repeats
	AskedMs   int64 // when Fire last asked for an attempt; 0 never
}

// Due returns the scheduling data of a timer, or the zero value if the slot is free.
func (t *Table) Due(h timer.Handle) Due {
	s := t.get(h)
	if s == nil {
		return Due{}
	}
	v := t.view(s.ref)
	d := Due{
		Seq: s.seq(), Rev: s.rev, Topic: t.topics.rows[s.topic].id, Target: t.targets.name(v.target),
		Priority: s.priority(), State: s.state(), Attempts: s.attempts(), FirstMs: t.dueMs(s),
		Series: v.flags&blobSeries != 0, AskedMs: v.askedMs,
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

// expiresMs returns the last time at which an attempt may start; 0 = unlimited.
func (v *blob) expiresMs(dueMs int64) int64 {
	if v.flags&blobNoExpiry != 0 {
		return 0
	}
	after, ok := encoding.RestExpiry(v.rest)
	if !ok {
		return 0
	}
	return max(timer.ClampMs(dueMs+timer.ClampMs(after)), 1) // 0 would mean never
}

// lateFrom returns the time from which lateness counts: when the timer was due and existed, or when
// Fire asked for an attempt before that.
func (v *blob) lateFrom(dueMs int64) int64 {
	if from := max(dueMs, v.createdMs); v.askedMs == 0 || v.askedMs > from {
		return from
	}
	return v.askedMs
}

// Job is a copy of the data that a delivery needs.
type Job struct {
	Handle    timer.Handle
	ID        string
	Topic     timer.TopicID
	Seq       uint64
	Tag       uint32
	Version   uint32
	DueMs     int64
	CreatedMs int64
	Attempts  int
	Fence     uint64
	AskedMs   int64 // when Fire last asked for an attempt; 0 never
	// LateFromMs is the time from which the lateness of the first attempt counts; 0 for a redriven
	// timer, whose due time is long past.
	LateFromMs  int64
	Payload     []byte
	PayloadKind timer.PayloadKind
	ContentType string
	Retry       timer.Retry
	Target      Target
	Priority    uint8
	Trace       *timer.Trace
}

// Job copies the data that a delivery needs. It returns the zero value if the slot is free.
func (t *Table) Job(h timer.Handle) Job {
	s := t.get(h)
	if s == nil {
		return Job{}
	}
	v := t.view(s.ref)
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, v.rest, true) // checked when it was proposed
	j := Job{
		Handle: h, ID: string(v.id), Topic: t.topics.rows[s.topic].id, Seq: s.seq(), Tag: v.tag, Version: v.version, CreatedMs: v.createdMs,
		DueMs: t.dueMs(s), Attempts: s.attempts(), Payload: spec.Payload, PayloadKind: spec.PayloadKind,
		ContentType: spec.ContentType, Retry: spec.Retry, Target: t.targets.name(v.target), Priority: s.priority(),
		Trace: spec.Trace, AskedMs: v.askedMs,
	}
	if v.flags&blobNoExpiry == 0 {
		j.LateFromMs = v.lateFrom(j.DueMs)
	}
	if s.run != 0 {
		j.Fence = t.runs.at(s.run).fence
	}
	return j
}

// EarliestMs returns the time before which no attempt may start (I4): the due time, or when somebody
// asked for an attempt before it.
func (j *Job) EarliestMs() int64 { return earliestMs(j.DueMs, j.AskedMs) }

func earliestMs(dueMs, askedMs int64) int64 {
	if askedMs != 0 {
		return min(dueMs, askedMs)
	}
	return dueMs
}

// RetryOf returns the timer's own retry settings.
func (t *Table) RetryOf(h timer.Handle) timer.Retry {
	s := t.get(h)
	if s == nil {
		return timer.Retry{}
	}
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, t.view(s.ref).rest, false)
	return spec.Retry
}

// RearmRange puts popped timers back into the wheel according to their state. It visits at most
// budget slots after from (0 at first) and returns the slot to continue after.
func (t *Table) RearmRange(from timer.Handle, budget int) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		t.restore(from, t.slab.at(from))
	}
	return from, from >= t.slab.high
}

// Rearm is RearmRange for one timer, if the handle still holds that number.
func (t *Table) Rearm(h timer.Handle, seq uint64) {
	if s := t.live(h, seq); s != nil {
		t.restore(h, s)
	}
}

func (t *Table) restore(h timer.Handle, s *slot) {
	if at, wakes := t.wakeMs(s); wakes {
		if _, in := t.wheel.When(wheel.Handle(h)); !in {
			t.Arm(h, at)
			t.countWait(h, s)
		}
	}
}

// ScanLeased calls fn for leased timers. It visits at most budget slots after from (0 at first) and
// returns the slot to continue after. fn must not change the table.
func (t *Table) ScanLeased(from timer.Handle, budget int, fn func(h timer.Handle)) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		if t.slab.at(from).state() == timer.Leased {
			fn(from)
		}
	}
	return from, from >= t.slab.high
}

// ScanAttempted calls fn for leased timers and for scheduled timers with attempts. It visits at
// most budget slots after from (0 at first) and returns the slot to continue after. fn must not
// change the table.
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

// ScheduledAt reports whether the handle still holds the timer of that number, scheduled and at
// that revision.
func (t *Table) ScheduledAt(h timer.Handle, seq uint64, rev uint32) bool {
	s := t.live(h, seq)
	return s != nil && s.rev == rev && s.state() == timer.Scheduled
}

// LastHandle returns the highest handle ever used. It is the number of slots that a full scan
// visits.
func (t *Table) LastHandle() timer.Handle { return t.slab.high }

// AttemptDueMs returns when the attempt of a lease was due. It is for tests of I4.
func (t *Table) AttemptDueMs(h timer.Handle) int64 { return t.runs.at(t.slab.at(h).run).attemptDueMs() }

// LastFence returns the last fence given.
func (t *Table) LastFence() uint64 { return t.fence }

// InBackoff reports whether a timer was attempted and waits for its next attempt. A timer that a
// client has since moved to a later time is not in backoff until then: it has given up its place.
// Its next attempt is then at its due time. See NotBefore for the others.
func (d *Due) InBackoff(nowMs int64) bool {
	return d.State == timer.Scheduled && d.Attempts > 0 && (d.NextMs != d.FirstMs || d.NextMs <= nowMs)
}

// NotBefore returns the time of a timer's next attempt, ms or later. Unless somebody asked for an
// attempt by hand, it is not before the due time: the clock of the leader that made the last one
// may have been ahead. It is not before and not at the due time exactly, see InBackoff.
func (d *Due) NotBefore(ms int64) int64 {
	asked := d.AskedMs != 0
	if ms < d.FirstMs && !(asked && ms >= d.AskedMs) || ms == d.FirstMs && asked {
		return d.FirstMs + 1
	}
	return ms
}

// Earlier reports whether d is due before o, or was added first if both are due at the same time.
func (d *Due) Earlier(o *Due) bool {
	if d.FirstMs != o.FirstMs {
		return d.FirstMs < o.FirstMs
	}
	return d.Seq < o.Seq
}
