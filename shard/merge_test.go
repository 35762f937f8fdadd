package shard

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// merged adds with a merge rule and checks that the add was merged.
func (h *hostHarness) merged(rule timer.Merge, maxWait, delay time.Duration, payload string) *timer.Timer {
	h.t.Helper()
	s := &timer.Spec{DueMs: h.clock.wallMs + delay.Milliseconds(), Payload: []byte(payload), PayloadKind: timer.JSONPayload}
	got := h.do(timer.Command{Kind: timer.Add, ID: "a", Spec: s, Merge: rule, MaxWaitMs: maxWait.Milliseconds(), Content: uint64(s.DueMs)})
	if got.Code != timer.Merged || got.Timer == nil {
		h.t.Fatalf("the add answers %d, want merged", got.Code)
	}
	return got.Timer
}

func TestMergeScheduled(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	if got := r.merged(timer.MergeKeep, 0, time.Hour, "2"); got.Version != 1 || string(got.Payload) != `"a"` || got.DueMs != fakeEpochMs+1000 {
		t.Errorf("kept: %+v", got)
	}
	// A lease acquired ahead of the due time counts as scheduled: it is revoked.
	r.pass(990 * time.Millisecond)
	if r.scheduler().View.Inspect().Held != 1 {
		t.Fatal("no lease is held: the test is about nothing")
	}
	if got := r.merged(timer.MergeReplace, 0, 500*time.Millisecond, "3"); got.State != timer.Scheduled || got.Version != 2 || got.Attempts != 0 || got.Successor {
		t.Errorf("replaced: %+v", got)
	}
	r.pass(499 * time.Millisecond)
	r.wantCalls("")
	r.pass(time.Millisecond)
	first := r.one()
	if string(first.Job.Payload) != "3" || first.Job.Version != 2 {
		t.Errorf("called with %s", first.Job.Payload)
	}
	first.answer(500)
	r.runIdle()
	// Attempts restart, also between two of them.
	if got := r.merged(timer.MergeReplace, 0, 100*time.Millisecond, "4"); got.Attempts != 0 || got.Version != 3 || got.LastStatus != 0 {
		t.Errorf("replaced between attempts: %+v", got)
	}
	r.pass(100 * time.Millisecond)
	if c := r.one(); string(c.Job.Payload) != "4" || c.Job.Attempts != 1 || c.Job.Fence <= first.Job.Fence {
		t.Errorf("called with %s, attempt %d", c.Job.Payload, c.Job.Attempts)
	}
	r.audit()
}

// TestDebounce: endless adds postpone the call to the longest wait, and no further.
func TestDebounce(t *testing.T) {
	r := newHostHarness(t, nil)
	due := fakeEpochMs + 100
	add := timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: fakeEpochMs + 900_000}, Merge: timer.MergeDebounce, MaxWaitMs: 100}
	got := r.do(add)
	if made := timer.NewTimer(&add, &got); got.Code != timer.Created || !reflect.DeepEqual(made, r.timer("a")) || made.DueMs != due || made.NextMs != due {
		t.Fatalf("the very first add: %d, due in %d ms", got.Code, made.DueMs-fakeEpochMs)
	}
	for n := 0; ; n++ {
		if calls := r.calls.take(); len(calls) > 0 {
			if late := r.clock.wallMs - due; len(calls) != 1 || late < 0 || late > 5 {
				t.Fatalf("%d calls, %d ms late", len(calls), late)
			}
			break
		}
		if n > 200 {
			t.Fatal("the adds put the call off for ever")
		}
		r.step(time.Millisecond)
		now := r.clock.wallMs
		if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: now + 60_000}, Merge: timer.MergeDebounce, MaxWaitMs: 100, Content: uint64(n)}); err != nil {
			t.Fatal(err)
		}
		r.turn()
		r.turn()
	}
	r.runIdle()
	// An add after the lease creates the successor, with a longest wait of its own.
	v := r.timer("a")
	if v.State != timer.Leased || !v.Successor {
		t.Fatalf("while the call runs: %+v", v)
	}
	r.lastCall().answer(200)
	r.runIdle()
	if v = r.timer("a"); v.State != timer.Scheduled || v.Successor || v.DueMs > r.clock.wallMs+100 || v.Attempts != 0 {
		t.Errorf("the next: %+v, due in %d ms", v, v.DueMs-r.clock.wallMs)
	}
	// The newest add's wait counts: without one there is no bound.
	if got := r.merged(timer.MergeDebounce, 0, time.Hour, "9"); got.DueMs != r.clock.wallMs+3_600_000 {
		t.Errorf("unbounded: due in %d ms", got.DueMs-r.clock.wallMs)
	}
	r.audit()
}

// lastCall returns the running call that started last.
func (h *hostHarness) lastCall() *fakeCall {
	h.t.Helper()
	if len(h.calls.running) == 0 {
		h.t.Fatal("no call runs")
	}
	return h.calls.running[len(h.calls.running)-1]
}

// TestSuccessor: with any outcome of the running attempt its retries are superseded, and the
// successor keeps its own due time.
func TestSuccessor(t *testing.T) {
	for name, end := range map[string]func(c *fakeCall){
		"200": func(c *fakeCall) { c.answer(200) }, "500": func(c *fakeCall) { c.answer(500) }, "410": func(c *fakeCall) { c.answer(410) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newHostHarness(t, nil)
			r.add("a", 0)
			running := r.one()
			if got := r.merged(timer.MergeKeep, 0, 10*time.Millisecond, "2"); !got.Successor || got.State != timer.Leased || string(got.Payload) != `"a"` {
				t.Errorf("answered with %+v", got)
			}
			r.merged(timer.MergeKeep, 0, time.Millisecond, "3")
			r.pass(time.Second)
			r.wantCalls("")
			r.wantKept("a")
			end(running)
			r.runIdle()
			next := r.one()
			if string(next.Job.Payload) != "2" || next.Job.Attempts != 1 || next.Job.Version != 2 || next.Job.Fence <= running.Job.Fence {
				t.Errorf("the successor: %+v", next.Job)
			}
			next.answer(200)
			r.pass(time.Minute)
			r.wantCalls("")
			r.wantState("a", "done 1")
			if dead := r.table().Totals().Dead; (dead == 1) != (name == "410") {
				t.Errorf("%d dead letters", dead)
			}
			r.audit()
		})
	}
}

// wantKept checks that a snapshot of the current table keeps the successor.
func (h *hostHarness) wantKept(id string) {
	h.t.Helper()
	b, _ := h.table().BeginSnapshot().Next(nil, 1<<30)
	loaded, err := table.Load(1, bytes.NewReader(b))
	if err != nil || loaded.Hash() != h.table().Hash() || !loaded.Read(1, id).Successor {
		h.t.Fatalf("a snapshot loses the successor: %v", err)
	}
}

func TestSuccessorReplaced(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	running := r.one()
	r.merged(timer.MergeReplace, 0, time.Second, "2")
	r.merged(timer.MergeReplace, 0, time.Minute, "3")
	if got := r.do(timer.Command{Kind: timer.Add, ID: "a", Spec: &timer.Spec{DueMs: 1}, Content: 5}); got.Code != timer.InFlight {
		t.Errorf("an add that rejects: %d", got.Code)
	}
	running.answer(200)
	r.pass(59 * time.Second)
	r.wantCalls("")
	r.pass(2 * time.Second)
	if c := r.one(); string(c.Job.Payload) != "3" {
		t.Errorf("called with %s", c.Job.Payload)
	}
}

// TestSuccessorCancelled: a cancel applies to the timer and its successor.
func TestSuccessorCancelled(t *testing.T) {
	for _, status := range []int{200, 500} {
		r := newHostHarness(t, nil)
		r.add("a", 0)
		running := r.one()
		r.merged(timer.MergeReplace, 0, time.Second, "2")
		if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.CancelInFlight || got.Timer.Successor {
			t.Fatalf("cancel: %+v", got)
		}
		running.answer(status)
		r.pass(time.Minute)
		r.wantCalls("")
		r.wantState("a", map[int]string{200: "done 1", 500: "cancelled 1"}[status])
		r.audit()
	}
}

// TestSuccessorAfterCrash: the leader dies while a successor waits. The next leader ends the
// attempt and fires the successor.
func TestSuccessorAfterCrash(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.one()
	r.merged(timer.MergeReplace, 0, 10*time.Second, "2")
	r.restart()
	r.pass(9 * time.Second)
	r.wantCalls("")
	r.wantState("a", "scheduled 0")
	r.pass(2 * time.Second)
	if c := r.one(); string(c.Job.Payload) != "2" || c.Job.Attempts != 1 {
		t.Errorf("called with %+v", c.Job)
	}
}

// TestCancelOfManyArrays: a cancel that takes several entries is answered when all of the id's
// arrays have ended. If the leadership ends before, the answer does not claim that nothing has.
func TestCancelOfManyArrays(t *testing.T) {
	const n = 5000
	for _, deposed := range []bool{false, true} {
		r := newHostHarness(t, func(c *Config) { c.MaxQueued = 2 * n })
		r.topic(1, func(p *timer.Topic) { p.Paused = true })
		r.topicsChanged()
		for range n {
			r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Merge: timer.MergeCollect, Spec: &timer.Spec{
				DueMs: r.clock.wallMs + 60_000, PayloadKind: timer.JSONPayload, Payload: []byte("1"), Collect: &timer.Collect{Max: 1}}})
		}
		r.runIdle()
		cancel := r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"})
		for range 100 {
			if r.turn(); cancel.op.begun {
				break
			}
		}
		if left := r.table().Totals().Scheduled; cancel.answered() || left < 1 || left >= n {
			t.Fatalf("after one entry %d are left, and the answer is %+v", left, cancel.op)
		}
		if deposed {
			r.deposed()
			if !cancel.answered() || !errors.Is(cancel.op.err, timer.ErrUnknown) || r.table().Totals().Scheduled == 0 {
				t.Errorf("%+v", cancel.op)
			}
			continue
		}
		r.runIdle()
		if !cancel.answered() || cancel.op.err != nil || cancel.op.result.Code != timer.Prevented || r.table().Totals().Scheduled != 0 {
			t.Errorf("%+v, %+v", cancel.op, r.table().Totals())
		}
		r.audit()
	}
}
