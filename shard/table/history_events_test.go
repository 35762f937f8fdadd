package table

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

func appendTimer(dst []byte, t *timer.Timer) []byte {
	c := encoding.Codec{Out: dst}
	c.Timer(t)
	return c.Out
}

// FuzzHistoryBody: a body read from a node's files is decoded or refused, without a panic.
func FuzzHistoryBody(f *testing.F) {
	ended := &timer.Timer{Topic: 3, ID: "b", Spec: *testkit.FullSpec(), Seq: 9, Tag: 4, Version: 2, State: timer.Dead, Reason: timer.Stopped, LastError: "no answer"}
	f.Add(appendTimer([]byte{historyVersion, historyByAttempt}, ended))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = DecodeHistoryEnd(b)
		_, _ = DecodeHistoryAttempt(b)
	})
}

// modelEvent is a history event that the model expects.
type modelEvent struct {
	state     timer.State
	endMs     int64
	timer     timer.Timer
	byAttempt bool
	attempt   timer.HistoryAttempt
}

func (m *model) addEvent(x *modelTimer) {
	timer := x.Timer
	timer.Successor = false // the successor comes later and is not part of the event
	m.told = append(m.told, modelEvent{state: x.State, endMs: x.EndedMs, timer: timer, byAttempt: m.ending})
}

func (m *model) addAttemptEvent(x *modelTimer, o *Outcome, at int64) {
	m.told = append(m.told, modelEvent{endMs: at, timer: x.Timer, attempt: timer.HistoryAttempt{Attempt: x.Attempts, StartedMs: o.StartedMs, EndedMs: at, Status: o.Status, Err: o.Err, Answer: o.Answer}})
}

// checkTold compares the table's history events of an entry with the model: each end with the whole
// timer, and each attempt after which a timer continues.
func (mh *modelHarness) checkTold() {
	mh.t.Helper()
	events, want := mh.table.TakeHistory(), mh.model.told
	mh.model.told = nil
	if len(events) != len(want) {
		mh.t.Fatalf("%d events are told, the model has %d", len(events), len(want))
	}
	for i, e := range events {
		w := &want[i]
		if e.Item != uint32(i) || e.Topic != w.timer.Topic || e.Seq != w.timer.Seq || e.State != w.state || e.EndMs != w.endMs || string(e.ID) != w.timer.ID {
			mh.t.Fatalf("event %d is %+v, the model says %+v", i, e, w)
		}
		if e.State == 0 {
			if a, err := DecodeHistoryAttempt(e.Body); err != nil || !reflect.DeepEqual(a, w.attempt) {
				mh.t.Fatalf("attempt %+v, %v; the model says %+v", a, err, w.attempt)
			}
			continue
		}
		w.timer.Origin = mh.originOf(w.timer.Seq)
		got, err := DecodeHistoryEnd(e.Body)
		if err != nil || got.ByAttempt != w.byAttempt || !reflect.DeepEqual(*got.Timer, w.timer) {
			mh.t.Fatalf("end %+v, %v; the model says %+v", got, err, w.timer)
		}
		// appendTimerAt and Codec.Timer write the same bytes.
		if long := appendTimer(nil, &w.timer); !bytes.Equal(e.Body[10:], long) {
			mh.t.Fatalf("body %x, as a copy it is %x", e.Body[10:], long)
		}
	}
}

// TestHistoryGolden: the format must not change unnoticed, because history stays on disk for days.
func TestHistoryGolden(t *testing.T) {
	events, states := goldenHistory(t, nil)
	var b []byte
	for _, e := range events {
		b = append(append(fmt.Appendf(b, "%d %d %d %d %d %s ", e.Item, e.Topic, e.Seq, e.State, e.EndMs, e.ID), e.Body...), '\n')
	}
	testkit.Golden(t, "history-events", b)
	if !slices.Equal(states, []timer.State{timer.Cancelled, 0, timer.Dead}) {
		t.Errorf("events of %v", states)
	}
	end, err := DecodeHistoryEnd(events[2].Body)
	if err != nil || end.Content != 6 {
		t.Errorf("content %d, %v", end.Content, err)
	}
	// as written by a build without content hashes
	before := append([]byte{historyVersion, historyByAttempt}, events[2].Body[10:]...)
	if got, err := DecodeHistoryEnd(before); err != nil || got.Content != 0 || !reflect.DeepEqual(got.Timer, end.Timer) {
		t.Errorf("without its content: %+v, %v", got, err)
	}
}

// TestHistoryGoldenAnswers: the events of attempts and ends have what receivers answered.
func TestHistoryGoldenAnswers(t *testing.T) {
	answer := &timer.Answer{Body: "card declined", Type: "text/plain", Location: "/later"}
	events, _ := goldenHistory(t, answer)
	var b []byte
	for _, e := range events[1:] {
		b = append(append(b, e.Body...), '\n')
	}
	testkit.Golden(t, "history-answers", b)
	attempt, err := DecodeHistoryAttempt(events[1].Body)
	if err != nil || !reflect.DeepEqual(attempt.Answer, answer) {
		t.Errorf("%+v, %v", attempt, err)
	}
	end, err := DecodeHistoryEnd(events[2].Body)
	if err != nil || !reflect.DeepEqual(end.Timer.LastAnswer, answer) || !reflect.DeepEqual(end.Attempts[0].Answer, answer) {
		t.Errorf("%+v, %v", end, err)
	}
}

// goldenHistory makes a timer that is attempted twice and dies, and a timer that is cancelled.
func goldenHistory(t *testing.T, answer *timer.Answer) (list []HistoryEvent, states []timer.State) {
	const now = int64(1_700_000_000_000)
	table := New(1, now)
	table.KeepHistory()
	var b Batch
	apply := func(at int64, fill func()) {
		b.Reset(at, 1, 1)
		fill()
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range table.TakeHistory() {
			e.ID, e.Body = bytes.Clone(e.ID), bytes.Clone(e.Body)
			list, states = append(list, e), append(states, e.State)
		}
	}
	apply(now, func() {
		b.Command(&timer.Command{Kind: timer.Add, Topic: 3, ID: "{order-77}close", Tag: 5, Content: 6, Spec: testkit.FullSpec()})
		b.Command(&timer.Command{Kind: timer.Add, Topic: 3, ID: "b", Tag: 7, Content: 8, Spec: &timer.Spec{DueMs: now + 9}})
		b.Command(&timer.Command{Kind: timer.Cancel, Topic: 3, ID: "b"})
	})
	for attempt := uint64(1); attempt <= 2; attempt++ {
		at := now + int64(attempt)*1000
		apply(at, func() { b.Lease(10_000, 1, 1, table.Due(1).Rev) })
		o := &Outcome{Handle: 1, Seq: 1, Fence: attempt, Kind: RetryLater, StartedMs: at + 1, EndedMs: at + 20, Status: 503, Err: "busy", Answer: answer, NextMs: at + 900}
		if attempt == 2 {
			o.Kind, o.Reason, o.RetainUntilMs = Kill, timer.MaxAttempts, at+90_000
		}
		apply(at+30, func() { b.Outcome(o) })
	}
	return list, states
}

func TestHistoryJoin(t *testing.T) {
	attempts := func(numbers ...int) (list []timer.HistoryAttempt) {
		for i, n := range numbers {
			list = append(list, timer.HistoryAttempt{Attempt: n, StartedMs: int64(i)})
		}
		return list
	}
	f := func(total int, byAttempt bool, earlier []int, want ...int) {
		t.Helper()
		e := &timer.HistoryEntry{Timer: &timer.Timer{Attempts: total}, ByAttempt: byAttempt}
		if byAttempt {
			e.Attempts = attempts(total)
		}
		e.Join(attempts(earlier...))
		var got []int
		for _, a := range e.Attempts {
			got = append(got, a.Attempt)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d attempts, %v before: %v, want %v", total, earlier, got, want)
		}
	}
	f(1, true, nil, 1)
	f(3, true, []int{1, 2}, 1, 2, 3)
	f(3, false, []int{1, 2, 3}, 1, 2, 3) // cancelled in backoff
	f(2, true, []int{1, 2, 3, 1}, 1, 2)  // replaced or redriven: attempts restarted at 1
	f(1, true, []int{1, 2, 3}, 1)        // the same, at once
	f(4, true, []int{1, 3}, 1, 3, 4)     // one attempt was not written
	f(0, false, []int{1, 2})             // replaced and cancelled before an attempt
	f(5, true, []int{1, 2, 3, 4, 1, 2, 3, 4}, 1, 2, 3, 4, 5)
}

// BenchmarkHistory measures the cost of history for the worker that applies a fired timer's
// outcome: it is the difference between told=true and told=false.
func BenchmarkHistory(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("told=%v", with), func(b *testing.B) {
			const n = 1 << 16
			table := fillTable(b, n)
			var batch Batch
			at, bytes, events := benchNow+int64(n)*86, 0, 0
			lease := func(from int) {
				batch.Reset(at, 1, 1)
				for h := from; h < from+benchBatch; h++ {
					batch.Lease(10_000, timer.Handle(h), uint64(h), table.Due(timer.Handle(h)).Rev)
				}
				if _, err := table.Apply(batch.Bytes(), nil, nil); err != nil {
					b.Fatal(err)
				}
			}
			next, fence, results := 1, uint64(1), []timer.Result(nil)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				if next+benchBatch > n {
					table, next, fence = fillTable(b, n), 1, 1
				}
				if with {
					table.KeepHistory()
				}
				lease(next)
				batch.Reset(at, 1, 1)
				for h := next; h < next+benchBatch; h++ {
					batch.Outcome(&Outcome{Handle: timer.Handle(h), Seq: uint64(h), Fence: fence, Kind: Ack, StartedMs: at - 5, EndedMs: at - 1, Status: 200})
					fence++
				}
				next += benchBatch
				b.StartTimer()
				results, _ = table.Apply(batch.Bytes(), nil, results[:0])
				for _, e := range table.TakeHistory() {
					bytes, events = bytes+len(e.Body)+len(e.ID), events+1
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchBatch), "ns/timer")
			if with {
				b.ReportMetric(float64(bytes)/float64(events), "B/timer")
			}
		})
	}
}
