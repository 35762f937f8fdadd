package shard

import (
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
)

// TestI4NeverEarly: no call starts before its due time, whatever the clock does.
func TestI4NeverEarly(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(999 * time.Millisecond)
	r.wantCalls("")
	if f := r.scheduler().View.Inspect().Held; f != 1 {
		t.Errorf("%d leases are held a millisecond before, want 1: the look-ahead", f)
	}
	r.pass(time.Millisecond)
	c := r.one()
	if c.wallMs != fakeEpochMs+1000 {
		t.Errorf("started at %+d ms", c.wallMs-fakeEpochMs-1000)
	}
	c.answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	r.audit()
}

func TestI4ClockStepsBack(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(990 * time.Millisecond) // the lease is held
	r.clock.wallMs -= (10 * time.Minute).Milliseconds()
	r.pass(time.Minute)
	r.wantCalls("")
	r.wantState("a", "scheduled 0")
	if n := r.calls.held(); n != 0 {
		t.Errorf("%d permits are held for a timer that is ten minutes away: others could use the slots", n)
	}
	r.add("b", time.Second) // by the current clock
	r.pass(time.Second)
	r.wantCalls("b")
	r.pass(10*time.Minute - time.Minute - time.Second)
	r.pass(time.Second)
	if c := r.one(); c.Job.ID != "a" || c.wallMs < fakeEpochMs+1000 || c.wallMs > fakeEpochMs+1100 {
		t.Errorf("%s started at %+d ms", c.Job.ID, c.wallMs-fakeEpochMs-1000)
	}
	r.audit()
}

func TestI4ClockJumpsForward(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.add("a", 10*time.Minute)
	r.add("b", 20*time.Minute)
	r.clock.wallMs += (10 * time.Minute).Milliseconds()
	r.pass(50 * time.Millisecond)
	r.wantCalls("a")
	r.clock.wallMs -= (10 * time.Minute).Milliseconds()
	r.pass(10 * time.Minute)
	r.wantCalls("")
	r.pass(10 * time.Minute)
	r.wantCalls("b")
	r.audit()
}

// TestFireAfterClockGlitch: after a clock that was years ahead has been corrected, a fire or a
// redrive takes effect at once.
func TestFireAfterClockGlitch(t *testing.T) {
	r := newHostHarness(t, nil)
	const years = 10 * 365 * 24 * time.Hour
	r.clock.wallMs += years.Milliseconds()
	r.pass(time.Minute)
	r.clock.wallMs -= years.Milliseconds()
	r.pass(time.Minute)
	r.add("a", time.Hour)
	if got := r.do(timer.Command{Kind: timer.Fire, ID: "a"}); got.Code != timer.OK {
		t.Fatalf("fire: %d", got.Code)
	}
	r.pass(time.Second)
	c := r.one()
	if c.Job.ID != "a" {
		t.Error(c.Job.ID)
	}
	c.answer(410)
	r.runIdle()
	r.wantState("a", "dead stopped 1")
	if got := r.do(timer.Command{Kind: timer.Redrive, ID: "a"}); got.Code != timer.OK {
		t.Fatalf("redrive: %d", got.Code)
	}
	r.pass(time.Second)
	r.wantCalls("a")
}

// TestLookAheadIsHidden: clients do not see a lease that is acquired ahead of the due time.
func TestLookAheadIsHidden(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(990 * time.Millisecond)
	if h, _ := r.table().Lookup(1, "a"); r.table().Due(h).State != timer.Leased {
		t.Fatal("the lease is not there yet: the test is about nothing")
	}
	v := r.timer("a")
	if v.State != timer.Scheduled || v.Attempts != 0 || v.NextMs != v.DueMs {
		t.Errorf("read: %+v", v)
	}
	check := func(name string, states uint8, want int) {
		t.Helper()
		var got []*timer.Timer
		r.blocking(func() { got = listOf(t, r.host, 1, timer.Query{Topic: 1, States: states, Limit: 10}) })
		if len(got) != want || want == 1 && (got[0].State != timer.Scheduled || got[0].Attempts != 0) {
			t.Errorf("list of %s: %d timers %+v, want %d", name, len(got), got, want)
		}
	}
	check("scheduled", 1<<timer.Scheduled, 1)
	check("leased", 1<<timer.Leased, 0)
	check("open", 1<<timer.Scheduled|1<<timer.Leased, 1)
	var counts timer.Counts
	var stats Stats
	r.blocking(func() {
		list, _ := r.host.Counts([]timer.TopicID{1})
		counts = list[0]
		stats = r.host.Stats()
	})
	if counts.Scheduled != 1 || counts.Leased != 0 || stats.Scheduled != 1 || stats.Leased != 0 {
		t.Errorf("counts %+v, stats %+v", counts, stats)
	}
	content := uint64(fakeEpochMs + 1000)
	if got := r.do(timer.Command{Kind: timer.Add, ID: "a", Spec: &timer.Spec{DueMs: fakeEpochMs + 1000}, Content: content}); got.Code != timer.Same || got.Timer.State != timer.Scheduled {
		t.Errorf("the same add again: %+v", got)
	}
	if got := r.do(timer.Command{Kind: timer.Add, ID: "a", Spec: &timer.Spec{DueMs: 1}, Content: 1}); got.Code != timer.Exists || got.Timer.State != timer.Scheduled {
		t.Errorf("another add: %+v", got)
	}
	brief, err := r.host.newOp(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: 1}, Content: 1}, true, nil, fakeWaiter())
	if err != nil {
		t.Fatal(err)
	}
	r.host.workers[0].box.post(brief)
	r.runIdle()
	if brief.result.Code != timer.Exists {
		t.Errorf("another add, brief: code %d, want Exists", brief.result.Code)
	}
	r.wantCalls("")
}

// TestGivenBackIsHidden: clients do not see such a lease while it is being released either.
func TestGivenBackIsHidden(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(990 * time.Millisecond)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.host.TopicsChanged()
	r.turn()
	r.freeze = true // the release cannot be committed
	r.pass(50 * time.Millisecond)
	g := r.host.group(1)
	h, _ := r.table().Lookup(1, "a")
	v := r.table().Read(1, "a")
	if shardOf(g).scheduler.View.Overlay(v); r.table().Due(h).State != timer.Leased || v.State != timer.Scheduled || v.Attempts != 0 {
		t.Errorf("while its lease is given back: %+v", v)
	}
	list := make([]timer.Counts, 1)
	shardOf(g).scheduler.View.Count([]timer.TopicID{1}, list)
	if c := list[0]; c.Scheduled != 1 || c.Leased != 0 {
		t.Errorf("counts %+v", c)
	}
	r.freeze = false
	r.pass(time.Second)
	r.wantCalls("")
	r.wantState("a", "scheduled 0")
	r.audit()
}

// TestI3LeaseIsDurable: when a call starts, its lease survives a power cut.
func TestI3LeaseIsDurable(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	c := r.one()
	after := makeHarness(t, r.fs.CrashClone(calm{}, zeroLoss), r.change)
	after.starts = r.starts
	after.clock = &fakeClock{wallMs: r.clock.wallMs, mono: time.Hour}
	after.calls.auto = 200
	after.mustOpen()
	again := after.one()
	if again.Job.Attempts != 2 || again.Job.Fence <= c.Job.Fence || again.Job.Seq != c.Job.Seq {
		t.Errorf("after a power cut: %+v", again.Job)
	}
}

// TestNotSentCountsNoAttempt: the lease of a call that the dispatcher did not start is released,
// without counting an attempt.
func TestNotSentCountsNoAttempt(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.one().end(delivery.Outcome{NotSent: true})
	r.runIdle()
	c := r.one()
	if c.Job.Attempts != 1 {
		t.Errorf("attempt %d, want 1 again", c.Job.Attempts)
	}
	c.answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
}

// TestI17RetriesAndBackoff: each retry waits for its backoff, and none follows the last attempt.
func TestI17RetriesAndBackoff(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.MaxAttempts = 4 })
	r.add("a", 0)
	for n, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c := r.one()
		if c.Job.Attempts != n+1 {
			t.Fatalf("attempt %d, want %d", c.Job.Attempts, n+1)
		}
		c.answer(500)
		r.pass(wait - time.Millisecond)
		r.wantCalls("")
		r.pass(time.Millisecond)
	}
	r.one().answer(0)
	r.runIdle()
	r.wantState("a", "dead max_attempts 4")
	r.pass(time.Minute)
	r.wantCalls("")
	if v := r.timer("a"); v.LastError != "connection refused" {
		t.Errorf("last error %q", v.LastError)
	}
	r.audit()
}

// TestForcedCloseFreesHandles: a call of a dropped timer must not block the timer that reuses its
// slot.
func TestForcedCloseFreesHandles(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(2, nil)
	first := r.add("a", 0)
	old := r.one()
	r.do(timer.Command{Kind: timer.CloseTopic, Topic: 1, Force: true})
	got := r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: "b", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	if got.Handle != first.Handle {
		t.Skipf("handle %d, not %d again", got.Handle, first.Handle)
	}
	r.pass(time.Second)
	c := r.one()
	if c.Job.ID != "b" {
		t.Error(c.Job.ID)
	}
	old.answer(200)
	r.runIdle()
	c.answer(200)
	r.runIdle()
	for id, q := range r.scheduler().View.Inspect().Topics {
		if q.Calls != 0 {
			t.Errorf("topic %d counts %d calls, all have ended", id, q.Calls)
		}
	}
	r.audit()
}

// TestChangeUnderPendingLease: a change applied just before a lease makes the timer due again while
// that lease is still in the pipeline. The lease fails, and the timer must not be forgotten.
func TestChangeUnderPendingLease(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(979 * time.Millisecond)
	r.mustSubmit(timer.Command{Kind: timer.Fire, Topic: 1, ID: "a"})
	r.turn() // the fire is on disk
	r.step(time.Millisecond)
	r.host.workers[0].turn() // the lease is proposed, then the fire is applied
	h, _ := r.table().Lookup(1, "a")
	if f := r.scheduler().View.Inspect().Leases[h]; !f.Pending || r.table().Due(h).NextMs != r.clock.wallMs-1 {
		t.Fatalf("flight %+v, timer %+v", f, r.table().Due(h))
	}
	r.host.workers[0].turn() // the timer leaves the wheel a second time
	r.pass(time.Second)
	r.wantCalls("a")
	r.audit()
}
