package table

import (
	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Target identifies a callback that timers of a table share.
type Target = content.Target

// Holder is the party that ends a lease.
type Holder = slab.Holder

const ByCall, ByPuller = slab.ByCall, slab.ByPuller

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
	Paused    bool  // a client holds it
	Missed    bool  // its time passed while it was held, and its series skips it
	Behind    bool  // it waits until those of its id before it have ended
}

// Due returns the scheduling data of a timer, or the zero value if the slot is free.
func (t *timers) Due(h timer.Handle) Due {
	s := t.get(h)
	if s == nil {
		return Due{}
	}
	v := t.content.View(s.Ref)
	d := Due{
		Seq: s.Seq(), Rev: s.Rev, Topic: t.topics.rows[s.Topic].id, Target: t.content.TargetOf(v.Target),
		Priority: s.Priority(), State: s.State(), Attempts: s.Attempts(), FirstMs: t.dueMs(s),
		Series: v.Flags&content.IsSeries != 0, AskedMs: v.AskedMs, Paused: s.Paused(), Missed: s.Missed(), Behind: t.isBehind(h, s),
	}
	if s.Attempt != 0 {
		r := t.attempts.At(s.Attempt)
		d.Fence, d.LeaseMs = r.Fence, int64(r.DurMs)
		d.Holder, d.FiredMs, d.Status = r.Holder, r.FiredMs, int(r.Status)
	}
	switch d.State {
	case timer.Scheduled, timer.Leased:
		d.NextMs, d.ExpiresMs = s.When(), v.ExpiresMs(d.FirstMs)
	case timer.Dead:
		d.RetainMs = s.When()
	}
	return d
}

// Job is a copy of the data that a delivery needs.
type Job struct {
	Handle    timer.Handle
	ID        string
	Topic     timer.TopicID
	Seq       uint64
	Origin    timer.ShardID // that gave the number, if it is not this one
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
	Target      Target
	Trace       *timer.Trace
}

// Job copies the data that a delivery needs. It returns the zero value if the slot is free.
func (t *timers) Job(h timer.Handle) Job {
	s := t.get(h)
	if s == nil {
		return Job{}
	}
	v := t.content.View(s.Ref)
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, v.Rest, true) // checked when it was proposed
	j := Job{
		Handle: h, ID: string(v.ID), Topic: t.topics.rows[s.Topic].id, Seq: s.Seq(), Origin: t.originOf(s.Seq()), Tag: v.Tag, Version: v.Version, CreatedMs: v.CreatedMs,
		DueMs: t.dueMs(s), Attempts: s.Attempts(), Payload: spec.Payload, PayloadKind: spec.PayloadKind,
		ContentType: spec.ContentType, Target: t.content.TargetOf(v.Target), Trace: spec.Trace, AskedMs: v.AskedMs,
	}
	if a, ok := t.arrays[h]; ok {
		j.Payload, j.PayloadKind = t.content.AppendArray(make([]byte, 0, a.Sent()), &a), timer.JSONPayload
	}
	if v.Flags&content.NoExpiry == 0 {
		j.LateFromMs = v.LateFrom(j.DueMs)
	}
	if s.Attempt != 0 {
		j.Fence = t.attempts.At(s.Attempt).Fence
	}
	return j
}

// EarliestMs returns the time before which no attempt may start (I4): the due time, or when
// somebody asked for an attempt before it.
func (j *Job) EarliestMs() int64 { return earliestMs(j.DueMs, j.AskedMs) }

func earliestMs(dueMs, askedMs int64) int64 {
	if askedMs != 0 {
		return min(dueMs, askedMs)
	}
	return dueMs
}

// AttemptDueMs returns when the attempt of a lease was due. It is for tests of I4.
func (t *timers) AttemptDueMs(h timer.Handle) int64 {
	return t.attempts.At(t.slots.At(h).Attempt).AttemptDueMs()
}

// InBackoff reports whether a timer was attempted and waits for its next attempt. A timer that a
// client has since moved to a later time is not in backoff until then: it has given up its place.
// Its next attempt is then at its due time. See NotBefore for the others. One that a client holds
// has given it up, too.
func (d *Due) InBackoff(nowMs int64) bool {
	return d.State == timer.Scheduled && d.Attempts > 0 && !d.Paused && (d.NextMs != d.FirstMs || d.NextMs <= nowMs)
}

// PutOff reports whether a timer was put off beyond its due time: its attempt failed, or it was
// redriven.
func (d *Due) PutOff() bool { return d.NextMs > d.FirstMs }

// NotBefore returns the time of a timer's next attempt, ms or later. It is not before the due time,
// or the time that somebody asked for by hand: the clock of the leader that made the last attempt
// may have been ahead. It is then not at the due time exactly, see InBackoff.
func (d *Due) NotBefore(ms int64) int64 {
	at := max(ms, earliestMs(d.FirstMs, d.AskedMs))
	if at == d.FirstMs && (at > ms || d.AskedMs != 0) {
		at++
	}
	return at
}

// Earlier reports whether d is due before o, or was added first if both are due at the same time.
func (d *Due) Earlier(o *Due) bool {
	if d.FirstMs != o.FirstMs {
		return d.FirstMs < o.FirstMs
	}
	return d.Seq < o.Seq
}
