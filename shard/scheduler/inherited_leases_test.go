package scheduler

import (
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wheel"
)

var other = table.NewIncarnation(otherNode, 1)

// inherit has the replica lead after another process, which has leased the timer a for a call.
func (r *replica) inherit() (a timer.Handle) {
	r.t.Helper()
	r.End()
	a = r.add("a", 0)
	d := r.table.Due(a)
	r.takeover(other)
	r.apply(func(b *table.Batch) { b.Lease(15_000, a, d.Seq, d.Rev) })
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	return a
}

// TestInheritedLeaseIsWaitedOut: nothing proves that its process has ended.
func TestInheritedLeaseIsWaitedOut(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1 }) // it may not be called once more
	a := r.inherit()
	if len(r.fences) != 0 {
		t.Error("a fence is asked for")
	}
	r.pass(14900 * time.Millisecond)
	r.state(a, timer.Leased)
	r.pass(200 * time.Millisecond)
	if d := r.state(a, timer.Dead); d.Attempts != 1 {
		t.Errorf("%d attempts", d.Attempts)
	}
}

// TestInheritedLeaseOfAnEndedProcess: it is over at once.
func TestInheritedLeaseOfAnEndedProcess(t *testing.T) {
	r := newReplica(t)
	r.ended[other] = true
	r.inherit()
	r.want("a")
}

// TestInheritedLeaseOfAFencedProcess: it is over as soon as that process starts no calls any more.
func TestInheritedLeaseOfAFencedProcess(t *testing.T) {
	r := newReplica(t)
	a := r.inherit()
	if len(r.fences) != 1 {
		t.Fatalf("%d fences are asked for", len(r.fences))
	}
	r.fences[0](timer.ErrOverloaded)
	r.ScanAgain()
	r.turn()
	if len(r.fences) != 2 {
		t.Fatal("a fence that failed is not asked for again")
	}
	r.fences[1](nil)
	r.turn()
	r.state(a, timer.Leased)
	r.pass(StartWithin)
	r.want("")
	r.state(a, timer.Leased)
	r.pass(StartWithin/10 + 3*time.Millisecond)
	r.want("a")
}

// TestInheritedLeaseOfASlowPart: its process may start the call for longer.
func TestInheritedLeaseOfASlowPart(t *testing.T) {
	r := newReplica(t)
	r.End()
	a := r.add("a", 0)
	d := r.table.Due(a)
	r.takeover(other)
	r.apply(func(b *table.Batch) {
		b.Takeover(0)
		b.Lease(15_000, a, d.Seq, d.Rev)
	})
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.fences[0](nil)
	r.pass(SlowStartWithin)
	r.want("")
	r.pass(SlowStartWithin/10 + 3*time.Millisecond)
	r.want("a")
	r.state(a, timer.Leased)
}

// TestTopicIsNotKnownYet: a lease is not judged by a policy that this node does not know.
func TestTopicIsNotKnownYet(t *testing.T) {
	r := newReplica(t)
	r.ended[other] = true
	known := r.topics[1]
	delete(r.topics, 1)
	a := r.inherit()
	r.pass(time.Second)
	r.state(a, timer.Leased)
	r.topics[1] = known
	r.Refresh()
	r.pass(time.Second)
	r.want("a")
}

// TestInheritedConsumersLease: it lasts in full from the takeover on.
func TestInheritedConsumersLease(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	a := r.add("a", 0)
	d := r.table.Due(a)
	r.apply(func(b *table.Batch) { b.Pull(30_000, a, d.Seq, d.Rev) })
	r.pass(10 * time.Second)
	r.End()
	r.Begin()
	r.pass(29 * time.Second)
	r.state(a, timer.Leased)
	r.pass(2 * time.Second)
	r.state(a, timer.Scheduled)
}

// TestReports: a former leader reports how its lease ended until it sees that it is over.
func TestReports(t *testing.T) {
	r := newReplica(t)
	a, b := r.add("a", 0), r.add("b", 15)
	r.turn()
	r.End()
	if len(r.reports) != 1 || r.reports[0].Handle != b || !r.reports[0].Attempt.NotSent {
		t.Fatalf("reports: %+v", r.reports)
	}
	r.end(delivery.Outcome{Status: 200})
	if len(r.reports) != 2 || r.reports[1].Handle != a || r.reports[1].Attempt.Status != 200 || r.permits != 0 {
		t.Fatalf("reports: %+v, %d permits", r.reports, r.permits)
	}
	r.pass(time.Second)
	if n := len(r.reports); n < 8 || n > 14 {
		t.Errorf("%d reports in a second", n)
	}
	r.Reports.End(b, r.reports[0].Fence)
	d := r.table.Due(a)
	r.apply(func(b *table.Batch) {
		b.Outcome(&table.Outcome{Kind: table.Ack, Handle: a, Seq: d.Seq, Fence: d.Fence, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
	})
	r.pass(3 * time.Second)
	if r.View.InFlight() != 0 {
		t.Errorf("%d leases are reported on", r.View.InFlight())
	}
}

// TestReportEndsAtLast: a report whose lease no leader ends is given up.
func TestReportEndsAtLast(t *testing.T) {
	r := newReplica(t)
	r.add("a", 0)
	r.turn()
	r.End()
	r.gone = true
	r.end(delivery.Outcome{Status: 200})
	r.pass(reportGrace)
	if r.View.InFlight() != 1 {
		t.Error("it is given up")
	}
	r.pass(20 * time.Second)
	if r.View.InFlight() != 0 {
		t.Error("it is reported for ever")
	}
}

// TestReportOfAFormerLeader: its outcome is proposed, once.
func TestReportOfAFormerLeader(t *testing.T) {
	r := newReplica(t)
	a := r.inherit()
	d := r.table.Due(a)
	report := &Report{Owner: other, Handle: a, Seq: d.Seq, Fence: d.Fence, Rev: d.Rev - 1,
		Attempt: delivery.Outcome{Status: 200, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs}}
	forged := *report
	forged.Owner = table.NewIncarnation(3, 1)
	if r.Reports.Judge(&forged) {
		t.Error("another's report ends the lease")
	}
	if r.Reports.Judge(report) {
		t.Error("it is over before its outcome is applied")
	}
	r.turn()
	r.state(a, timer.Done)
	if !r.Reports.Judge(report) || len(r.fired) != 1 {
		t.Errorf("it is not over; outcomes %v", r.fired)
	}
}

// TestReportOfAnUnusedLease: it is returned, and the timer goes at once.
func TestReportOfAnUnusedLease(t *testing.T) {
	r := newReplica(t)
	a := r.inherit()
	d := r.table.Due(a)
	r.Reports.Judge(&Report{Owner: other, Handle: a, Seq: d.Seq, Rev: d.Rev - 1, Attempt: delivery.Outcome{NotSent: true}})
	r.turn()
	r.want("a")
	if d = r.state(a, timer.Leased); d.Attempts != 1 {
		t.Errorf("%d attempts", d.Attempts)
	}
}

// TestLeadsAgain: a leader that is elected again judges its own calls, during them and after.
func TestLeadsAgain(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 0)
	b := r.add("b", 0)
	r.turn()
	r.End()
	r.end(delivery.Outcome{Status: 200})
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.state(a, timer.Done)
	r.state(b, timer.Leased)
	r.end(delivery.Outcome{Status: 200})
	r.state(b, timer.Done)
}

// TestLeadsAgainLate: a call that ended while this node did not lead has the start that it had,
// however late the node leads again.
func TestLeadsAgainLate(t *testing.T) {
	r := newReplica(t)
	h, calledMs := r.add("a", 0), r.now.WallMs
	r.turn()
	r.End()
	r.end(delivery.Outcome{Err: "timeout"})
	r.pass(70 * time.Second)
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	if len(r.fired) != 1 || r.fired[0].StartedMs != calledMs {
		t.Errorf("it judges %+v, want a start at %d", r.fired, calledMs)
	}
	if d := r.table.Due(h); d.Attempts < 1 || d.FiredMs < calledMs {
		t.Errorf("the timer is %+v", d)
	}
}

// nobody is the owner of timers that the child has got.
func nobody(timer.Handle, uint64, *timer.Topic, string) *Scheduler { return nil }

// TestLeaveByTwoDivisionsAtOnce: a former leader was behind while its shard was divided twice. Each
// lease goes to the shard that has its timer, which is told how the call ended.
func TestLeaveByTwoDivisionsAtOnce(t *testing.T) {
	first, second, third := newReplica(t), newReplica(t), newReplica(t)
	stays, left, leftLater := first.add("a", 0), first.add("b", 0), first.add("c", 0)
	first.turn()
	for _, r := range []*replica{first, second, third} {
		r.End()
	}
	owners := map[timer.Handle]*Scheduler{stays: first.Scheduler, left: second.Scheduler, leftLater: third.Scheduler}
	first.SetTable(table.New(1, startMs)) // none of them is there any more, and no division says where they are
	first.Leave(third.Scheduler, func(h timer.Handle, _ uint64, _ *timer.Topic, _ string) *Scheduler { return owners[h] })
	second.turn()
	third.turn()
	for _, c := range first.calls {
		c.done(delivery.Outcome{Status: 200, StartedMs: first.now.WallMs, EndedMs: first.now.WallMs})
	}
	for range 2 {
		for _, r := range []*replica{first, second, third} {
			r.turn()
		}
	}
	for r, want := range map[*replica]timer.Handle{first: stays, second: left, third: leftLater} {
		if len(r.reports) != 1 || r.reports[0].Handle != want || r.reports[0].Attempt.Status != 200 {
			t.Errorf("shard of timer %d reports %+v", want, r.reports)
		}
	}
}

// TestLeaveToAShardThatHasBeenDivided: a lease goes to the shard that had its timer when the lease
// left. If that has been divided meanwhile, the lease goes on to its child, as one of a call that
// runs, or has ended, and so does what counts at limits.
func TestLeaveToAShardThatHasBeenDivided(t *testing.T) {
	for _, running := range []bool{true, false} {
		first, second, third := newReplica(t), newReplica(t), newReplica(t)
		left := first.add("a", 0)
		if second.add("a", time.Hour.Milliseconds()) != left {
			t.Fatal("it is another timer there")
		}
		first.turn()
		for _, r := range []*replica{first, second, third} {
			r.End()
		}
		end := func() { first.end(delivery.Outcome{Status: 200}) }
		if !running {
			end()
		}
		first.limits.carriedOver.put(&carriedLease{handle: left, seq: first.Leases.byTimer[left].seq, until: time.Hour})
		first.SetTable(table.New(1, startMs))
		first.reports = nil
		first.Leave(third.Scheduler, func(timer.Handle, uint64, *timer.Topic, string) *Scheduler { return second.Scheduler })
		second.apply(func(b *table.Batch) { b.Divide(2, []uint64{1 << left}) })
		second.Leave(third.Scheduler, nobody)
		turns := func() {
			for range 3 {
				for _, r := range []*replica{first, second, third} {
					r.turn()
				}
			}
		}
		turns()
		if running {
			end()
			turns()
		}
		if len(third.reports) != 1 || third.reports[0].Handle != left || third.reports[0].Attempt.Status != 200 {
			t.Errorf("running %v: the child reports %+v", running, third.reports)
		}
		if len(first.reports)+len(second.reports) > 0 {
			t.Errorf("running %v: so do %+v and %+v", running, first.reports, second.reports)
		}
		if c := third.limits.carriedOver.byTimer[left]; len(second.limits.carriedOver.byTimer) > 0 || c == nil || c.until != time.Hour {
			t.Errorf("running %v: at limits count %v, of the child %v", running, second.limits.carriedOver.byTimer, c)
		}
	}
}

// TestLeftLeaseLandsOnce: a lease that leaves while its call runs counts no more in its queue, also
// when it ends in the child: else the queue would be kept for ever.
func TestLeftLeaseLandsOnce(t *testing.T) {
	r, child := newReplica(t), newReplica(t)
	child.End()
	h := r.add("a", 0)
	r.turn()
	fence, n := r.table.Due(h).Fence, r.Scheduler.topics.byID[1].dests[0]
	r.apply(func(b *table.Batch) { b.Divide(2, []uint64{1 << h}) })
	r.Leave(child.Scheduler, nobody)
	child.turn()
	r.end(delivery.Outcome{Status: 200})
	child.turn()
	if len(child.reports) != 1 {
		t.Fatalf("the child reports %+v", child.reports)
	}
	child.Reports.End(h, fence)
	if n.flying != 0 || len(child.Leases.byTimer) != 0 {
		t.Errorf("%d leases of the queue run, %d are reported", n.flying, len(child.Leases.byTimer))
	}
}

// TestLeftLeaseOfAConsumer: it counts at its limit, also where the child's replica has yet to learn
// of it.
func TestLeftLeaseOfAConsumer(t *testing.T) {
	r, child := newReplica(t), newReplica(t)
	child.End()
	r.topic(1, func(p *timer.Policy) { pulled(p); p.Concurrency = 5 })
	h := r.add("a", 0)
	r.turn()
	if got := r.pull(1, 1); len(got) != 1 || r.cfg.Limiters.Held(1) != 1 {
		t.Fatalf("pulled %v, and %d leases count", got, r.cfg.Limiters.Held(1))
	}
	r.apply(func(b *table.Batch) { b.Divide(2, []uint64{1 << h}) })
	r.Leave(child.Scheduler, nobody)
	child.turn()
	child.pass(time.Second)
	if n := r.cfg.Limiters.Held(1); n != 1 {
		t.Errorf("%d leases count", n)
	}
}

// TestOverdueWithoutTheCanary: what is due in a shard without a leader is counted without the
// canary, whether the former leader has taken that out of the wheel or not.
func TestOverdueWithoutTheCanary(t *testing.T) {
	for _, popped := range []bool{false, true} {
		r := newReplica(t)
		r.command(timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: table.CanaryID, Spec: &timer.Spec{DueMs: r.now.WallMs}})
		r.table.Advance(r.now.WallMs, WheelBudget)
		if popped {
			r.table.Pop(make([]wheel.Handle, 1))
		}
		for _, id := range []string{"a", "b", "c"} {
			r.add(id, 1000)
		}
		r.table.Advance(r.now.WallMs+2000, WheelBudget)
		if n := r.table.Overdue(); n != 3 {
			t.Errorf("popped %v: %d are overdue, want 3", popped, n)
		}
	}
}

// TestReportOfATimerThatLeftLongAgo: a leader whose shard is divided again does not say that the
// lease of a timer is over that left in the division before. Found by the simulator.
func TestReportOfATimerThatLeftLongAgo(t *testing.T) {
	r := newReplica(t)
	gone, next := r.add("gone", 0), r.add("next", time.Hour.Milliseconds())
	r.turn()
	report := &Report{Owner: table.NewIncarnation(ownNode, 1), Handle: gone, Seq: r.table.Due(gone).Seq, Fence: r.table.Due(gone).Fence}
	if report.Fence == 0 {
		t.Fatal("it is not leased")
	}
	for i, h := range []timer.Handle{gone, next} {
		r.apply(func(b *table.Batch) { b.Divide(2<<i, []uint64{1 << h}) })
		if r.Reports.Judge(report) {
			t.Errorf("division %d: a lease that left is said to be over", i+1)
		}
		if i == 0 {
			r.apply(func(b *table.Batch) { b.Sweep(1000) })
		}
	}
}
