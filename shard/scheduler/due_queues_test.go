package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wheel"
)

func TestTimerIsCalledWhenDue(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 1000)
	r.turn()
	if wake := r.NextWake(); wake > startMs+1000 || wake < startMs {
		t.Errorf("it runs next at %d ms, want a little before the timer is due", wake-startMs)
	}
	r.pass(900 * time.Millisecond)
	r.want("")
	r.pass(100 * time.Millisecond)
	r.want("a")
	if d := r.state(a, timer.Leased); d.Attempts != 1 {
		t.Errorf("%d attempts", d.Attempts)
	}
	c := r.end(delivery.Outcome{Status: 204})
	if r.state(a, timer.Done); c.Topic.Name != "topic" || c.Deadline <= r.now.Lease {
		t.Errorf("called with %+v", c.Delivery)
	}
	if len(r.fired) != 1 || len(r.lateness) != 1 || r.lateness[0] != 0 || r.permits != 0 {
		t.Errorf("outcomes %v, lateness %v, %d permits in use", r.fired, r.lateness, r.permits)
	}
	if i := r.View.Inspect(); len(i.Leases) != 0 || i.Topics[1].Queued != 0 || i.Topics[1].Calls != 0 {
		t.Errorf("it keeps %+v", i)
	}
}

func TestFailedCallIsRetried(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 2 })
	a := r.add("a", 0)
	r.turn()
	r.end(delivery.Outcome{Status: 500, Err: "status 500"})
	if d := r.state(a, timer.Scheduled); d.NextMs != startMs+1000 {
		t.Errorf("it is tried again at %d, want after 1000 ms", d.NextMs-startMs)
	}
	r.waits(a, timer.WaitBackoff)
	r.pass(time.Second)
	r.want("a")
	r.end(delivery.Outcome{Status: 500, Err: "status 500"})
	r.state(a, timer.Dead)
}

// TestDeadLetterIsForgotten: after its retention a dead letter is dropped.
func TestDeadLetterIsForgotten(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts, p.DeadRetentionMs = 1, 2000 })
	a := r.add("a", 0)
	r.turn()
	r.end(delivery.Outcome{Status: 500, Err: "status 500"})
	r.pass(time.Second)
	r.state(a, timer.Dead)
	r.pass(2 * time.Second)
	if d := r.table.Due(a); d.State == timer.Dead {
		t.Error("it is kept past its retention")
	}
}

func TestTimerExpires(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Minute}
	a := r.add("a", 0, func(c *timer.Command) { c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = true, 500 })
	r.turn()
	r.want("")
	r.waits(a, timer.WaitBreaker)
	r.pass(time.Second)
	r.state(a, timer.Dead)
	if r.expired != 1 {
		t.Errorf("%d timers expired", r.expired)
	}
}

// TestClockStepsBack: a timer that left the wheel ahead of its time waits, and leases ahead of
// their time are returned.
func TestClockStepsBack(t *testing.T) {
	r := newReplica(t)
	h := r.add("a", 15)
	r.turn()
	r.state(h, timer.Leased)
	if !r.View.Hides(h) || r.View.Unstarted() != 1 {
		t.Error("a lease ahead of its time is shown")
	}
	shown := timer.Timer{Topic: 1, ID: "a", Seq: r.table.Due(h).Seq, State: timer.Leased, Attempts: 1}
	if r.View.Overlay(&shown); shown.State != timer.Scheduled || shown.Attempts != 0 {
		t.Errorf("clients see %v after %d attempts", shown.State, shown.Attempts)
	}
	var sums [1]timer.Counts
	if r.View.Count([]timer.TopicID{1}, sums[:]); sums[0].Scheduled != 1 || sums[0].Leased != 0 || r.View.Totals().Scheduled != 1 {
		t.Errorf("it counts %+v, in all %+v", sums[0], r.View.Totals())
	}
	r.now.WallMs -= 10_000
	r.turn()
	if r.state(h, timer.Scheduled); r.permits != 0 {
		t.Errorf("%d permits are kept", r.permits)
	}
	r.pass(10 * time.Second)
	r.want("")
	r.pass(15 * time.Millisecond)
	r.want("a")
}

// TestNotCaughtUpWhileDueTimersWaitOutsideTheWheel: timers that had left the wheel when the clock
// was set back a little are due again, and the turn's time ends before all of them are queued.
func TestNotCaughtUpWhileDueTimersWaitOutsideTheWheel(t *testing.T) {
	r := newReplica(t)
	for i := range 3 {
		h := r.add(fmt.Sprint(i), 1000)
		d := r.table.Due(h)
		r.due.later.push(entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev})
	}
	r.now.WallMs += 1000
	r.table.Advance(r.now.WallMs, 1<<20)
	r.table.Pop(make([]wheel.Handle, 8))
	r.budget = 1
	for r.due.later.len() > 0 {
		if r.spent = 0; r.due.caughtUp {
			t.Fatalf("%d timers that are due wait outside of the wheel", r.due.later.len())
		}
		r.due.take()
	}
	if !r.due.caughtUp {
		t.Error("it is not known that all are queued")
	}
}

func TestClockInDoubt(t *testing.T) {
	r := newReplica(t)
	r.now.Trust = clocks.Held
	h := r.add("a", 0)
	r.turn()
	r.want("")
	if r.KnowsTime() {
		t.Error("it knows the time")
	}
	r.now.WallMs += 2000
	r.waits(h, timer.WaitLeader)
	r.now.Trust = clocks.Sure
	r.turn()
	r.want("a")
}

// TestClockInDoubtAheadOfTheCall: a lease that was taken before does not start.
func TestClockInDoubtAheadOfTheCall(t *testing.T) {
	r := newReplica(t)
	h := r.add("a", 15)
	r.turn()
	r.state(h, timer.Leased)
	r.now.Trust = clocks.Held
	r.pass(100 * time.Millisecond)
	r.want("")
	r.now.Trust = clocks.Sure
	r.turn()
	r.want("a")
}

// TestOutcomeOfAWrongClock: an outcome that was decided while the clock was ahead, and is not
// proposed yet, is corrected.
func TestOutcomeOfAWrongClock(t *testing.T) {
	r := newReplica(t)
	h := r.add("a", 0)
	r.turn()
	c := r.calls[0]
	r.now.WallMs += 3_600_000
	c.done(delivery.Outcome{Err: "timeout", StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
	r.posted[0](false)
	r.posted = nil
	r.now.WallMs -= 3_600_000
	r.Rebase()
	r.turn()
	if d := r.state(h, timer.Scheduled); d.NextMs != startMs+1000 {
		t.Errorf("it is tried again after %d ms", d.NextMs-startMs)
	}
}

// TestRetryOfAFireByAWrongClock: a timer that was fired by hand while the clock was ahead is retried
// after its backoff, wherever the clock is set back meanwhile. So is an occurrence that its series
// has left.
func TestRetryOfAFireByAWrongClock(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, fired := range []bool{true, false} {
			r := newReplica(t)
			var h timer.Handle
			if fired {
				h = r.add("a", 7_200_000)
				r.now.WallMs += 3_600_000
				r.command(timer.Command{Kind: timer.Fire, ID: "a"})
			} else {
				r.now.WallMs += 3_600_000
				r.add("a", 0, every(time.Minute, func(p *timer.Repeat) { p.Overlap = true }))
				r.turn()
				h = r.named("a")
				r.calls, r.now.WallMs = nil, r.now.WallMs+60_000
			}
			r.turn()
			c := r.calls[0]
			r.now.WallMs = startMs
			setBack := func() {
				r.apply(func(b *table.Batch) { b.SetClock() })
				r.Rebase()
			}
			if first {
				setBack()
			}
			c.done(delivery.Outcome{Err: "timeout", StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
			r.posted[0](false)
			r.posted = nil
			if !first {
				setBack()
			}
			r.turn()
			r.apply(func(b *table.Batch) { b.Tick() })
			if d := r.state(h, timer.Scheduled); d.NextMs != startMs+1000 {
				t.Errorf("fired %v, set back ahead of its end %v: it is tried again after %d ms", fired, first, d.NextMs-startMs)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.SpreadMs = 1000 })
	for i := range 50 {
		r.add(string(rune('A'+i)), 0)
	}
	r.turn()
	first := len(r.calls)
	r.pass(500 * time.Millisecond)
	half := len(r.calls)
	r.pass(500 * time.Millisecond)
	if first > 5 || half < 15 || half > 35 || len(r.calls) != 50 {
		t.Errorf("%d calls at first, %d after half, %d in the end", first, half, len(r.calls))
	}
}

// TestSpreadChanges: timers that wait for their spread follow a policy with another one, also where
// they have waited for long, and nothing else of the topic is due.
func TestSpreadChanges(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"none": func(*timer.Policy) {}, "less": func(p *timer.Policy) { p.SpreadMs = 10 }, "pulled": pulled,
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, func(p *timer.Policy) { p.SpreadMs = 3_600_000 })
			for i := range 50 {
				r.add(string(rune('A'+i)), 0)
			}
			r.turn()
			for range 5 {
				r.Sweep()
				r.turn()
			}
			r.counted("spread 50 ")
			r.topic(1, set)
			r.pass(100 * time.Millisecond)
			if n := len(r.calls) + len(r.pull(1, 100)); n != 50 {
				t.Errorf("%d of 50 timers started", n)
			}
		})
	}
}

// TestNewContentKeepsTheSpread: a timer that waits for its spread counts so when only its content is
// changed, and follows a policy with another spread.
func TestNewContentKeepsTheSpread(t *testing.T) {
	for name, rule := range map[string]timer.Merge{"replace": timer.MergeReplace, "collect": timer.MergeCollect} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, func(p *timer.Policy) { p.SpreadMs = 3_600_000 })
			dueMs := r.now.WallMs
			for n := range 3 {
				got := r.command(timer.Command{Kind: timer.Add, ID: "a", Merge: rule, Content: uint64(n), Spec: &timer.Spec{
					DueMs: dueMs, Payload: []byte{'0' + byte(n)}, PayloadKind: timer.JSONPayload, Collect: &timer.Collect{},
				}})
				if want := []timer.Code{timer.Created, timer.Merged}[min(n, 1)]; got.Code != want {
					t.Fatalf("add %d: %v, want %v", n, got.Code, want)
				}
				r.turn()
				r.counted("spread 1 ")
			}
			for range 5 {
				r.Sweep()
				r.turn()
			}
			r.topic(1, func(*timer.Policy) {})
			r.pass(100 * time.Millisecond)
			r.want("a")
		})
	}
}

// TestTurnEnds: a turn whose time is over leaves the rest to the next one, and none is forgotten.
func TestTurnEnds(t *testing.T) {
	r := newReplica(t)
	for i := range 300 {
		r.add(string(rune(0x1000+i)), 0)
	}
	r.budget = 40
	r.Run()
	r.entry()
	if n := len(r.Leases.byTimer); n == 0 || n > 2*leastLeases {
		t.Errorf("%d leases in a turn without time", n)
	}
	r.turn()
	if len(r.calls) != 300 {
		t.Errorf("%d calls", len(r.calls))
	}
}

// TestLeastOfReceivers: in a turn without time a shard takes little, even if each timer has a
// receiver of its own, which costs more.
func TestLeastOfReceivers(t *testing.T) {
	const most = 128 // steps; of these 16 shards can have their least in a turn
	r := newReplica(t)
	for i := range 300 {
		r.add(fmt.Sprint("t", i), 0, func(c *timer.Command) { c.Spec.Callback.URL = fmt.Sprintf("http://receiver-%d/", i) })
	}
	r.budget = 1
	r.Run()
	r.entry()
	if r.spent > most || len(r.Leases.byTimer) == 0 {
		t.Errorf("%d steps and %d leases in a turn without time", r.spent, len(r.Leases.byTimer))
	}
	r.budget = 0
	if r.turn(); len(r.calls) != 300 {
		t.Errorf("%d calls", len(r.calls))
	}
}

// TestDroppedEntry: what the log does not take is done again.
func TestDroppedEntry(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 0)
	r.dropping = true
	r.Run()
	r.entry()
	r.dropping = false
	if r.state(a, timer.Scheduled); r.permits != 0 || r.Leases.pipeline.proposed != 0 {
		t.Errorf("%d permits, %d leases are kept", r.permits, r.Leases.pipeline.proposed)
	}
	r.turn()
	r.want("a")
	c := r.calls[0]
	c.done(delivery.Outcome{Status: 200, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
	r.dropping = true
	r.posted[0](false)
	r.posted = nil
	r.entry()
	r.dropping = false
	r.turn()
	r.state(a, timer.Done)
}

func TestCanary(t *testing.T) {
	r := newReplica(t)
	r.command(timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: table.CanaryID, Spec: &timer.Spec{DueMs: r.now.WallMs}})
	r.turn()
	if r.canaries != 1 || len(r.calls) != 0 {
		t.Errorf("%d canaries, %d calls", r.canaries, len(r.calls))
	}
}

// TestNothingStartsByOldTopics: a process that has not learned yet what was decided before it began
// calls nothing, lets nothing expire, and judges no consumer's lease: the topic may be paused or
// changed.
func TestNothingStartsByOldTopics(t *testing.T) {
	r := newReplica(t)
	r.stale = true
	a := r.add("a", 0)
	r.pass(time.Second)
	r.want("")
	r.waits(a, timer.WaitLeader)
	if d := r.table.Due(a); r.Scheduler.Outcomes.CanJudge(a, &d) {
		t.Error("it judges by topics that may be old")
	}
	r.stale = false
	r.Refresh()
	r.turn()
	r.want("a")
}

// TestLookAheadFollowsTheLongestCommit: one long commit among many short ones counts for this second
// and the next, and no longer.
func TestLookAheadFollowsTheLongestCommit(t *testing.T) {
	const short, long = time.Millisecond, 60 * time.Millisecond
	dq := &dueQueues{leader: &leader{}}
	at := func(now, commit, want time.Duration) {
		t.Helper()
		if dq.learn(commit, now); dq.lookAhead != want {
			t.Errorf("after %v a lease is proposed %v ahead, want %v", now, dq.lookAhead, want)
		}
	}
	at(900*time.Millisecond, short, minLookAhead)
	at(910*time.Millisecond, long, 2*long)
	for range 1000 {
		dq.learn(short, 920*time.Millisecond)
	}
	at(1900*time.Millisecond, short, 2*long)
	at(2100*time.Millisecond, short, minLookAhead)
	at(3*time.Second, long, 2*long)
	at(5*time.Second, short, minLookAhead) // nothing was committed in the second before
	at(5*time.Second, 10*MaxLookAhead, MaxLookAhead)
}

// TestDeadLettersAfterTheClockWasFarAhead: while the clock was ten years ahead the wheel went
// there. Dead letters of today are due at once by it, again and again; serial topics wait until
// every due timer has left the wheel.
func TestDeadLettersAfterTheClockWasFarAhead(t *testing.T) {
	const far = 10 * 365 * 24 * 3600 * 1000
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Serial = true })
	later := r.add("later", 60_000)
	r.turn()
	r.now.WallMs += far
	r.topics[1].Paused = true
	r.turn()
	r.now.WallMs -= far
	r.topics[1].Paused = false
	for i := range 2 * popChunk {
		r.add(fmt.Sprint("dead", i), -1, func(c *timer.Command) { c.Spec.HasExpiry = true })
	}
	r.turn()
	if n := r.table.Counts(1).Dead; n != 2*popChunk {
		t.Fatalf("%d timers are dead", n)
	}
	r.add("{k}a", 0)
	if r.turn(); r.wakes {
		t.Error("its turns have no end")
	}
	r.want("{k}a")
	r.end(delivery.Outcome{Status: 200})
	r.pass(time.Minute)
	r.want("later")
	r.end(delivery.Outcome{Status: 200})
	r.state(later, timer.Done)
	r.now.WallMs += r.topics[1].Policy.DeadRetentionMs
	if r.turn(); r.table.Counts(1).Dead != 0 {
		t.Errorf("%d dead letters are kept longer than they should", r.table.Counts(1).Dead)
	}
}
