package shard

import (
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
)

func repeats(p timer.Repeat) func(*timer.Spec) { return func(s *timer.Spec) { s.Repeat = &p } }

// TestSeries: occurrences fire at their times under one ID and version, each with its own attempts
// and sequence number.
func TestSeries(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second, repeats(timer.Repeat{EveryMs: 10_000, Count: 3}))
	var last table.Job
	for n := range int64(3) {
		r.pass(time.Duration(10-9*boolInt(n == 0)) * time.Second)
		c := r.one()
		if c.Job.DueMs != fakeEpochMs+1000+10_000*n || c.Job.Attempts != 1 || c.Job.Version != 1 || c.Job.Seq == last.Seq || c.Job.Fence <= last.Fence {
			t.Fatalf("occurrence %d: %+v", n, c.Job)
		}
		last = c.Job
		if n == 1 { // a retry belongs to its occurrence
			c.answer(500)
			r.pass(time.Second)
			if c = r.one(); c.Job.Attempts != 2 || c.Job.Seq != last.Seq || c.Job.DueMs != last.DueMs {
				t.Fatalf("retry: %+v", c.Job)
			}
			r.step(-time.Second)
			r.clock.mono += time.Second
		}
		c.answer(200)
		r.runIdle()
		if n < 2 {
			if v := r.timer("a"); v.State != timer.Scheduled || v.Attempts != 0 || v.CreatedMs != fakeEpochMs || v.Repeat == nil || v.Version != 1 {
				t.Fatalf("after occurrence %d: %+v", n, v)
			}
		}
		r.audit()
	}
	r.wantState("a", "done 1")
	r.pass(time.Minute)
	r.wantCalls("")
}

func boolInt(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}

// TestSeriesOutlivesCrashes: the entry that ends an occurrence also schedules the next one, so no
// crash can come in between.
func TestSeriesOutlivesCrashes(t *testing.T) {
	r := makeHarness(t, memfs.New(), nil)
	r.mustOpen()
	r.add("a", 0, repeats(timer.Repeat{Cron: "* * * * *", Zone: "Europe/Berlin"}))
	r.one().answer(200)
	r.runIdle()
	r.restart()
	next := fakeEpochMs - fakeEpochMs%60_000 + 60_000
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != next {
		t.Fatalf("after a crash: %+v", v)
	}
	r.pass(time.Duration(next-r.clock.wallMs) * time.Millisecond)
	r.one() // its outcome is lost
	r.restart()
	r.one().answer(200)
	r.runIdle()
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != next+60_000 || v.Attempts != 0 {
		t.Errorf("after a crash in a call: %+v", v)
	}
	r.audit()
}

// TestSeriesDies: a failed occurrence becomes a dead letter, and the series continues. A redriven
// occurrence is a timer of its own.
func TestSeriesDies(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	r := newHostHarness(t, nil)
	r.add("a", 0, repeats(timer.Repeat{EveryMs: 60_000}))
	first := r.one()
	first.answer(410)
	r.runIdle()
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+60_000 {
		t.Fatalf("after a death: %+v", v)
	}
	if r.table().Totals().Dead != 1 {
		t.Fatal("there is no dead letter")
	}
	if got := r.do(timer.Command{Kind: timer.Redrive, ID: "a", DueMs: r.clock.wallMs + 1000}); got.Code != timer.OK {
		t.Errorf("redriven while the next occurrence waits: %d", got.Code)
	}
	r.pass(time.Second)
	if c := r.one(); c.Job.Seq != first.Job.Seq || c.Job.DueMs != fakeEpochMs {
		t.Errorf("redriven while the next occurrence waits: %+v", c.Job)
	} else {
		c.answer(410)
	}
	r.runIdle()
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+60_000 {
		t.Errorf("the series after that: %+v", v)
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.Prevented {
		t.Errorf("cancelled: %d", got.Code)
	}
	r.pass(5 * time.Minute)
	r.wantCalls("")
	if got := r.do(timer.Command{Kind: timer.Redrive, ID: "a"}); got.Code != timer.OK {
		t.Fatalf("redriven: %d", got.Code)
	}
	c := r.one()
	if c.Job.Seq != first.Job.Seq || c.Job.Version != first.Job.Version || c.Job.Fence <= first.Job.Fence || c.Job.Attempts != 1 {
		t.Errorf("redriven: %+v, it was %+v", c.Job, first.Job)
	}
	c.answer(200)
	r.pass(9 * time.Minute)
	r.wantCalls("")
	r.wantState("a", "done 1")
	r.audit()
}

func TestSeriesExpires(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.add("a", time.Second, repeats(timer.Repeat{EveryMs: 60_000}), func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, 5000 })
	r.pass(10 * time.Second)
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+61_000 || r.table().Totals().Dead != 1 {
		t.Fatalf("after an expiry: %+v", v)
	}
	r.topic(1, nil)
	r.topicsChanged()
	r.pass(51 * time.Second)
	r.one()
}

// TestSeriesCancelled: a cancel while an occurrence runs ends the series with any outcome of
// the call.
func TestSeriesCancelled(t *testing.T) {
	for status, want := range map[int]string{200: "done 1", 500: "cancelled 1", 410: "cancelled 1"} {
		r := newHostHarness(t, nil)
		r.add("a", 0, repeats(timer.Repeat{EveryMs: 1000}))
		c := r.one()
		if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.CancelInFlight {
			t.Fatalf("cancel: %d", got.Code)
		}
		c.answer(status)
		r.pass(time.Minute)
		r.wantCalls("")
		r.wantState("a", want)
	}
}

func TestSeriesPatched(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	patch := func(p *timer.Repeat) {
		t.Helper()
		if got := r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: &timer.Patch{Repeat: true, Spec: timer.Spec{Repeat: p}}}); got.Code != timer.OK || (got.Timer.Repeat == nil) != (p == nil) {
			t.Fatalf("patch: %+v", got)
		}
	}
	patch(&timer.Repeat{EveryMs: 10_000, Count: 2})
	r.pass(time.Second)
	r.one().answer(200)
	r.runIdle()
	patch(&timer.Repeat{EveryMs: 20_000, Count: 2}) // the count restarts
	r.pass(10 * time.Second)
	r.one().answer(200)
	r.pass(20 * time.Second)
	r.one().answer(200)
	r.runIdle()
	r.wantState("a", "done 1")

	r.add("b", 0, repeats(timer.Repeat{EveryMs: 10_000}))
	r.one().answer(200)
	r.runIdle()
	if got := r.do(timer.Command{Kind: timer.Modify, ID: "b", Patch: &timer.Patch{Repeat: true}}); got.Code != timer.OK {
		t.Fatalf("patch: %+v", got)
	}
	r.pass(10 * time.Second)
	r.one().answer(200)
	r.pass(time.Minute)
	r.wantCalls("")
	r.wantState("b", "done 1")
}

// TestSeriesMissed: occurrences that fall due during an outage are handled by the series' catch-up
// policy.
func TestSeriesMissed(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, c := range []struct {
		catchUp timer.CatchUp
		// Due times of the calls, in minutes, once the host is back after an hour and a half.
		dues []int64
		next int64
	}{
		{timer.CatchUpOne, []int64{10}, 100}, {timer.CatchUpSkip, nil, 100}, {timer.CatchUpAll, []int64{10, 20, 30, 40, 50, 60, 70, 80, 90}, 100},
	} {
		away := map[string]func(r *hostHarness){
			"down": func(r *hostHarness) { r.kill(); r.step(95 * time.Minute); r.mustOpen() },
			"paused": func(r *hostHarness) {
				r.topic(1, func(p *timer.Topic) { p.Paused = true })
				r.topicsChanged()
				r.pass(95 * time.Minute)
				r.topic(1, nil)
				r.topicsChanged()
			},
		}
		for name, leave := range away {
			r := newHostHarness(t, nil)
			r.calls.auto = 200
			r.add("a", 10*time.Minute, repeats(timer.Repeat{EveryMs: 600_000, CatchUp: c.catchUp, Count: 12}))
			leave(r)
			r.runIdle()
			var dues []int64
			for _, call := range r.calls.take() {
				dues = append(dues, (call.Job.DueMs-fakeEpochMs)/60_000)
			}
			if len(dues) != len(c.dues) || len(dues) > 0 && (dues[0] != c.dues[0] || dues[len(dues)-1] != c.dues[len(c.dues)-1]) {
				t.Errorf("%s, catch-up %d: calls at %v, want %v", name, c.catchUp, dues, c.dues)
			}
			if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+c.next*60_000 {
				t.Errorf("%s, catch-up %d: the next is %+v", name, c.catchUp, v)
			}
			r.audit()
		}
	}
}

// TestSeriesSkippedToItsEnd: a series ends if all its remaining occurrences were missed.
func TestSeriesSkippedToItsEnd(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Minute, repeats(timer.Repeat{EveryMs: 60_000, CatchUp: timer.CatchUpSkip, UntilMs: fakeEpochMs + 600_000}))
	r.kill()
	r.step(time.Hour)
	r.mustOpen()
	r.runIdle()
	r.wantCalls("")
	r.wantState("a", "cancelled 0")
	r.audit()
}

// TestSeriesOverlaps: an occurrence does not wait for the end of the last one. Each continues on
// its own.
func TestSeriesOverlaps(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0, repeats(timer.Repeat{EveryMs: 10_000, Overlap: true, Count: 3}))
	first := r.one()
	r.runIdle()
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+10_000 || v.Version != 1 {
		t.Fatalf("beside the first: %+v", v)
	}
	r.pass(10 * time.Second)
	second := r.one()
	r.pass(time.Second)
	first.answer(500)
	r.pass(time.Second)
	if c := r.one(); c.Job.Seq != first.Job.Seq || c.Job.Attempts != 2 {
		t.Fatalf("the retry of the first: %+v", c.Job)
	} else {
		c.answer(200)
	}
	r.audit()
	r.pass(8 * time.Second)
	third := r.one()
	if third.Job.DueMs != fakeEpochMs+20_000 || third.Job.Seq == second.Job.Seq || third.Job.Fence <= second.Job.Fence {
		t.Errorf("the third: %+v", third.Job)
	}
	third.answer(200)
	r.runIdle()
	r.wantState("a", "leased 1") // the second: clients see the occurrence that has not ended
	second.answer(410)
	r.pass(9 * time.Minute)
	r.wantCalls("")
	if c := r.table().Totals(); c.Dead != 1 || c.Scheduled != 0 {
		t.Errorf("at the end: %+v", c)
	}
	r.audit()
}

// TestOverlapCancelled: a cancel applies to every occurrence that has not ended (I5).
func TestOverlapCancelled(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		r := newHostHarness(t, nil)
		r.add("a", 0, repeats(timer.Repeat{EveryMs: 10_000, Overlap: true}))
		first := r.one()
		if waiting { // for a retry that is leased ahead of its due time
			first.answer(500)
			r.pass(990 * time.Millisecond)
			if r.scheduler().View.Inspect().Held != 1 {
				t.Fatal("no lease is held: the test is about nothing")
			}
		}
		want := map[bool]timer.Code{false: timer.CancelInFlight, true: timer.Prevented}[waiting]
		for range 2 {
			if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != want {
				t.Errorf("cancel: %d, want %d", got.Code, want)
			}
		}
		if !waiting {
			first.answer(500)
		}
		r.pass(time.Minute)
		r.wantCalls("")
		if c := r.table().Totals(); c.Scheduled != 0 || c.Leased != 0 {
			t.Errorf("after the cancel: %+v", c)
		}
		r.audit()
	}
}

// TestOverlapOutlivesCrashes: if the leader dies before it schedules the next occurrence, the start
// of the next attempt schedules it.
func TestOverlapOutlivesCrashes(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0, repeats(timer.Repeat{EveryMs: 10_000, Overlap: true}))
	first := r.one()
	r.restart()
	r.runIdle()
	second := r.one()
	if second.Job.Seq != first.Job.Seq || second.Job.Attempts != 2 {
		t.Fatalf("after the crash: %+v", second.Job)
	}
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+10_000 {
		t.Errorf("beside it: %+v", v)
	}
	r.restart()
	r.runIdle()
	if v := r.timer("a"); v.State != timer.Scheduled || v.DueMs != fakeEpochMs+10_000 {
		t.Errorf("after another crash: %+v", v)
	}
	r.one().answer(200)
	r.pass(10 * time.Second)
	if c := r.one(); c.Job.DueMs != fakeEpochMs+10_000 || c.Job.Seq == first.Job.Seq {
		t.Errorf("the next: %+v", c.Job)
	}
	r.audit()
}
