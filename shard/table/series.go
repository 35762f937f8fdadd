package table

import (
	"bytes"

	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Series is the data from which a leader computes a timer's next occurrence.
type Series struct {
	Repeat    timer.Repeat
	DueMs     int64
	StartedMs int64 // start of the first attempt; 0 none
	Last      bool  // the repeat's count is reached
	Asked     bool  // this occurrence was asked for by hand: it may come before its time
}

// Series returns the series of a timer. It returns false if the timer does not repeat, or if the
// series has continued without it.
func (t *timers) Series(h timer.Handle) (Series, bool) {
	v := t.viewOf(h)
	p := repeatOf(&v)
	if p == nil {
		return Series{}, false
	}
	s := t.slots.At(h)
	out := Series{Repeat: *p, DueMs: t.dueMs(s), Asked: v.AskedMs != 0, Last: p.Count != 0 && int64(v.Occurrence) >= p.Count}
	if s.Attempt != 0 {
		if r := t.attempts.At(s.Attempt); r.Lateness >= 0 {
			out.StartedMs = v.LateFrom(out.DueMs) + r.Lateness
		}
	}
	return out, true
}

// Zone returns the time zone of a timer that repeats by a calendar rule. It returns false for
// others.
func (t *timers) Zone(h timer.Handle) (name string, ok bool) {
	v := t.viewOf(h)
	if p := repeatOf(&v); p != nil && p.Cron != "" {
		return p.Zone, true
	}
	return "", false
}

// repeatOf returns the repeat of a timer whose series has not continued without it, or nil.
func repeatOf(v *content.Blob) *timer.Repeat {
	if v.Flags&content.IsSeries == 0 || v.Occurrence == 0 {
		return nil
	}
	return restRepeat(v.Rest)
}

func restRepeat(rest []byte) *timer.Repeat {
	b := encoding.RestBytes(rest, encoding.FieldRepeat)
	if b == nil {
		return nil
	}
	p := new(timer.Repeat)
	_ = encoding.DecodeRepeat(p, b)
	return p
}

// continueSeries schedules the next occurrence after one that has ended as done or dead. The leader
// computed nextMs; 0 means there is none. An ended timer starts the next occurrence only once, even
// if it is redriven. A series that a client holds stays held.
func (t *Table) continueSeries(h timer.Handle, nextMs int64, paused bool) {
	s := t.slots.At(h)
	state := s.State()
	v := t.content.View(s.Ref)
	if v.Flags&content.IsSeries == 0 || v.Occurrence == 0 || state != timer.Done && state != timer.Dead {
		return
	}
	next, goes := nextOccurrence(&v, nextMs)
	goes = goes && !s.Cancelled()
	if state == timer.Dead {
		t.markContinued(h, &v)
	}
	if goes {
		t.setSuccessor(h, &next, s.Priority(), nextMs, paused)
	}
}

// nextOccurrence returns the blob of the occurrence after v's, if the series has one at nextMs.
func nextOccurrence(v *content.Blob, nextMs int64) (next content.Blob, ok bool) {
	p := restRepeat(v.Rest)
	if p == nil || nextMs == 0 || p.UntilMs != 0 && nextMs > p.UntilMs || p.Count != 0 && int64(v.Occurrence) >= p.Count {
		return content.Blob{}, false
	}
	next = *v
	next.Flags, next.FirstMs, next.AskedMs = content.IsSeries, 0, 0
	next.Occurrence++
	next.ID, next.Rest = bytes.Clone(v.ID), bytes.Clone(v.Rest) // v's blob may be replaced first
	return next, true
}

// overlap schedules the next occurrence while an attempt of this one is in flight. From then on
// this one is no longer part of the series, and the id names the new one.
func (t *Table) overlap(h timer.Handle, seq, fence uint64, nextMs int64) timer.Result {
	s := t.live(h, seq)
	if s == nil || s.State() != timer.Leased || s.Cancelled() {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	v := t.content.View(s.Ref)
	r := t.attempts.At(s.Attempt)
	if r.Fence != fence || r.Successor != 0 || v.Flags&content.IsSeries == 0 || v.Occurrence == 0 {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	next, goes := nextOccurrence(&v, nextMs)
	if g := t.chains[h].of; !goes || g != nil && g.live >= timer.MaxLiveOfID {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	t.markContinued(h, &v)
	t.setSuccessor(h, &next, s.Priority(), nextMs, false)
	return timer.Result{Code: timer.OK, Handle: h}
}

// skipTo moves a scheduled occurrence that missed its time to nextMs. If nextMs is 0, the series is
// over and the timer ends as cancelled.
func (t *Table) skipTo(h timer.Handle, seq uint64, rev uint32, nextMs int64) timer.Result {
	s := t.live(h, seq)
	if s == nil || s.State() != timer.Scheduled || s.Rev != rev || s.Attempts() != 0 && (nextMs == 0 || nextMs >= t.dueMs(s)) {
		// A timer that was already attempted is only moved to an earlier time.
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	v := t.content.View(s.Ref)
	p := restRepeat(v.Rest)
	if v.Flags&content.IsSeries == 0 || v.Occurrence == 0 || p == nil {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	s = t.beginUpdate(h)
	if nextMs == 0 || p.UntilMs != 0 && nextMs > p.UntilMs {
		t.end(h, s, timer.Cancelled, t.clockMs)
	} else {
		if v.AskedMs != 0 { // it was another occurrence
			v.AskedMs = 0
			t.rewriteSame(h, s, &v)
		}
		unmiss(s)
		t.setDue(s, timer.ClampMs(nextMs))
		t.transition(h, s, timer.Scheduled, nextMs)
	}
	t.endUpdate(h, s)
	t.rankEnded(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

// SeriesByRule returns the series of a timer that has not ended, provided that the series created
// this occurrence, and that no client has changed it since.
func (t *timers) SeriesByRule(h timer.Handle) (Series, bool) {
	s := t.get(h)
	if s == nil || s.State() != timer.Scheduled && s.State() != timer.Leased {
		return Series{}, false
	}
	// The version grows from one occurrence to the next. The revision is the occurrence's own.
	if v := t.content.View(s.Ref); v.Occurrence < 2 || v.Version != 1 && s.Rev != 1 {
		return Series{}, false
	}
	return t.Series(h)
}
