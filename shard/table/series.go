package table

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// begin resets a blob for new content: a repeating timer is at its first occurrence, and its expiry
// counts.
func (v *blob) begin(repeats bool) {
	v.flags, v.occurrence, v.askedMs = 0, 0, 0
	if repeats {
		v.flags, v.occurrence = blobSeries, 1
	}
}

// appendSeries appends the fields that most blobs lack, and sets blobFirst and blobAsked.
func (v *blob) appendSeries(b []byte) []byte {
	if v.firstMs > v.createdMs {
		v.flags |= blobFirst
		b = binary.AppendUvarint(b, uint64(v.firstMs-v.createdMs))
	}
	if v.flags&blobSeries != 0 {
		b = binary.AppendUvarint(b, uint64(v.occurrence))
	}
	if v.flags&blobDue != 0 {
		b = binary.AppendUvarint(b, uint64(v.dueMs))
	}
	if v.askedMs != 0 {
		v.flags |= blobAsked
		b = binary.AppendVarint(b, v.askedMs-v.createdMs) // negative if two leaders' clocks differ
	}
	return b
}

// readSeries reads the fields that appendSeries wrote and returns the remaining bytes.
func (v *blob) readSeries(b []byte) []byte {
	number := func(bit byte) uint64 {
		if v.flags&bit == 0 {
			return 0
		}
		n, k := binary.Uvarint(b)
		b = b[k:]
		return n
	}
	if first := number(blobFirst); first != 0 {
		v.firstMs = v.createdMs + int64(first)
	}
	v.occurrence = uint32(number(blobSeries))
	v.dueMs = int64(number(blobDue))
	if v.flags&blobAsked != 0 {
		asked, k := binary.Varint(b)
		v.askedMs = v.createdMs + asked
		b = b[k:]
	}
	return b
}

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
func (t *Table) Series(h timer.Handle) (Series, bool) {
	s := t.get(h)
	if s == nil {
		return Series{}, false
	}
	v := t.view(s.ref)
	if v.flags&blobSeries == 0 || v.occurrence == 0 {
		return Series{}, false
	}
	p := restRepeat(v.rest)
	if p == nil {
		return Series{}, false
	}
	out := Series{Repeat: *p, DueMs: t.dueMs(s), Asked: v.askedMs != 0, Last: p.Count != 0 && int64(v.occurrence) >= p.Count}
	if s.run != 0 {
		if r := t.runs.at(s.run); r.lateness >= 0 {
			out.StartedMs = v.lateFrom(out.DueMs) + r.lateness
		}
	}
	return out, true
}

// Zone returns the time zone of a timer that repeats by a calendar rule. It returns false for
// others.
func (t *Table) Zone(h timer.Handle) (name string, ok bool) {
	s := t.get(h)
	if s == nil {
		return "", false
	}
	v := t.view(s.ref)
	if v.flags&blobSeries == 0 || v.occurrence == 0 {
		return "", false
	}
	p := restRepeat(v.rest)
	if p == nil || p.Cron == "" {
		return "", false
	}
	return p.Zone, true
}

// restRepeat returns the repeat in the rest of a spec, or nil. The rest has been checked before.
func restRepeat(rest []byte) *timer.Repeat {
	r := encoding.Reader{Rest: rest}
	for f := (encoding.RestField{}); len(r.Rest) > 0 && r.Rest[0] <= encoding.FieldRepeat && f.Next(&r); {
		if f.Field == encoding.FieldRepeat {
			p := new(timer.Repeat)
			_ = encoding.DecodeRepeat(p, f.Bytes)
			return p
		}
	}
	return nil
}

// continues returns the due time of a scheduled timer whose content a put replaces by a series.
func (t *Table) continues(s *slot, v *blob, c *encoding.Command) int64 {
	if c.Flags&encoding.CommandAbsolute == 0 || v.occurrence == 0 {
		return c.Spec.DueMs
	}
	return timer.Continued(restRepeat(v.rest), restRepeat(c.Spec.Rest), t.dueMs(s), c.Spec.DueMs, t.clockMs)
}

// continueSeries schedules the next occurrence after one that has ended as done or dead. The leader
// computed nextMs; 0 means there is none. An ended timer starts the next occurrence only once, even
// if it is redriven.
func (t *Table) continueSeries(h timer.Handle, nextMs int64) {
	s := t.slab.at(h)
	state := s.state()
	v := t.view(s.ref)
	if v.flags&blobSeries == 0 || v.occurrence == 0 || state != timer.Done && state != timer.Dead {
		return
	}
	next, goes := t.nextOccurrence(&v, nextMs)
	goes = goes && !s.cancelled()
	if goes {
		next.id = append([]byte(nil), v.id...)
		next.rest = append([]byte(nil), v.rest...)
	}
	if state == timer.Dead {
		t.markContinued(h, &v)
	}
	if goes {
		t.targets.retain(next.target)
		t.setSuccessor(h, &next, s.priority(), nextMs)
	}
}

// nextOccurrence returns the blob of the occurrence after v's, if the series has one at nextMs.
func (t *Table) nextOccurrence(v *blob, nextMs int64) (next blob, ok bool) {
	p := restRepeat(v.rest)
	if p == nil || nextMs == 0 || p.UntilMs != 0 && nextMs > p.UntilMs || p.Count != 0 && int64(v.occurrence) >= p.Count {
		return blob{}, false
	}
	next = *v
	next.flags, next.firstMs, next.askedMs = blobSeries, 0, 0
	next.occurrence++
	return next, true
}

// overlap schedules the next occurrence while an attempt of this one is in flight. From then on
// this one is no longer part of the series, and the id names the new one.
func (t *Table) overlap(h timer.Handle, seq, fence uint64, nextMs int64) timer.Result {
	s := t.live(h, seq)
	if s == nil || s.state() != timer.Leased || s.cancelled() {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	v := t.view(s.ref)
	r := t.runs.at(s.run)
	if r.fence != fence || r.successor != 0 || v.flags&blobSeries == 0 || v.occurrence == 0 {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	next, goes := t.nextOccurrence(&v, nextMs)
	if g := t.chains[h].of; !goes || g != nil && g.live >= timer.MaxLiveOfID {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	next.id, next.rest = append([]byte(nil), v.id...), append([]byte(nil), v.rest...)
	t.markContinued(h, &v)
	t.targets.retain(next.target)
	t.setSuccessor(h, &next, s.priority(), nextMs)
	return timer.Result{Code: timer.OK, Handle: h}
}

// markContinued records that a timer's series has continued without it. v views its blob.
func (t *Table) markContinued(h timer.Handle, v *blob) {
	s := t.beginUpdate(h)
	v.occurrence = 0
	t.rewriteSame(h, s, v)
	t.endUpdate(h, s)
}

// skipTo moves a scheduled occurrence that missed its time to nextMs. If nextMs is 0, the series is
// over and the timer ends as cancelled.
func (t *Table) skipTo(h timer.Handle, seq uint64, rev uint32, nextMs int64) timer.Result {
	s := t.live(h, seq)
	if s == nil || s.state() != timer.Scheduled || s.rev != rev || s.attempts() != 0 && (nextMs == 0 || nextMs >= t.dueMs(s)) {
		// A timer that was already attempted is only moved to an earlier time.
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	v := t.view(s.ref)
	p := restRepeat(v.rest)
	if v.flags&blobSeries == 0 || v.occurrence == 0 || p == nil {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	s = t.beginUpdate(h)
	if nextMs == 0 || p.UntilMs != 0 && nextMs > p.UntilMs {
		t.end(h, s, timer.Cancelled, t.clockMs)
	} else {
		if v.askedMs != 0 { // it was another occurrence
			v.askedMs = 0
			t.rewriteSame(h, s, &v)
		}
		t.setDue(s, timer.ClampMs(nextMs))
		t.transition(h, s, timer.Scheduled, nextMs)
	}
	t.endUpdate(h, s)
	t.rankEnded(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

// SeriesByRule returns the series of a timer that has not ended, provided that the series created
// this occurrence, and that no client has changed it since.
func (t *Table) SeriesByRule(h timer.Handle) (Series, bool) {
	s := t.get(h)
	if s == nil || s.state() != timer.Scheduled && s.state() != timer.Leased {
		return Series{}, false
	}
	if v := t.view(s.ref); v.occurrence < 2 || v.version != 1 {
		return Series{}, false
	}
	return t.Series(h)
}
