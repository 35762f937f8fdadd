package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

func pulled(p *timer.Policy) { p.Pull = true }

// TestPullBehindOutdatedTimers: in one turn a pull drops PopBudget timers that have been cancelled, or
// have expired, at most. The next turns find what is behind them, and announce it.
func TestPullBehindOutdatedTimers(t *testing.T) {
	for name, outdate := range map[string]func(r *replica, id string){
		"cancelled": func(r *replica, id string) { r.command(timer.Command{Kind: timer.Cancel, ID: id}) },
		"expired":   func(*replica, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			const outdated = 3 * PopBudget
			r := newReplica(t)
			r.topic(1, pulled)
			for i := range outdated {
				r.add(fmt.Sprint(i), -5, func(c *timer.Command) { c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = true, 50 })
			}
			last := r.add("last", -1)
			r.turn()
			for i := range outdated {
				outdate(r, fmt.Sprint(i))
			}
			r.now.WallMs += 100
			shard := []*Scheduler{r.Scheduler}
			before := r.View.Inspect().Topics[1].Queued
			list := TopCandidates(shard, 1, 1)
			if n := before - r.View.Inspect().Topics[1].Queued; n > PopBudget || len(list) > 0 {
				t.Fatalf("%d timers are dropped in one turn, and %d found", n, len(list))
			}
			for turns := 1; len(list) == 0; turns++ {
				r.ready = map[timer.TopicID]int{}
				if r.step(); turns > 4 || r.ready[1] == 0 {
					t.Fatalf("turn %d finds nothing, and announces %d timers", turns, r.ready[1])
				}
				list = TopCandidates(shard, 1, 1)
			}
			if got := r.pull(1, 9); len(got) != 1 || got[0] != last {
				t.Errorf("pulled %v, want %d", got, last)
			}
		})
	}
}

// update makes an update of a lease, and reports whether the scheduler allowed it.
func (r *replica) update(h timer.Handle, kind timer.Kind, set ...func(*timer.LeaseUpdate)) bool {
	r.t.Helper()
	d := r.table.Due(h)
	cmd := &timer.Command{Kind: kind, Topic: 1, Claim: &timer.LeaseUpdate{Handle: h, Seq: d.Seq, Fence: d.Fence}}
	for _, f := range set {
		f(cmd.Claim)
	}
	if !r.Consumers.Updatable(cmd, &d) {
		return false
	}
	out := r.Consumers.Decide(cmd, &d)
	got := r.apply(func(b *table.Batch) { b.Outcome(&out) })[0]
	if got.Code != timer.OK {
		r.t.Fatalf("the update is answered %v", got.Code)
	}
	r.Consumers.Updated(cmd)
	r.Keys.Review(got.Handle)
	r.turn()
	return true
}

func TestPull(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	a, b := r.add("a", 0), r.add("b", -1)
	r.add("later", 15)
	r.turn()
	if r.want(""); r.ready[1] != 2 {
		t.Errorf("%d timers are announced", r.ready[1])
	}
	r.waits(a, timer.WaitConsumer)
	if list := TopCandidates([]*Scheduler{r.Scheduler}, 1, 10); len(list) != 2 || list[0].DueMs != startMs-1 {
		t.Errorf("candidates: %v", list)
	}
	if got := r.pull(1, 1); len(got) != 1 || got[0] != b {
		t.Errorf("pulled %v, want %d", got, b)
	}
	r.ready = map[timer.TopicID]int{}
	if r.Tick(); r.ready[1] != 1 {
		t.Errorf("%d timers are announced again", r.ready[1])
	}
	if got := r.pull(1, 9); len(got) != 1 || got[0] != a {
		t.Errorf("pulled %v, want %d", got, a)
	}
	if i := r.View.Inspect(); i.ConsumerLeases != 2 {
		t.Errorf("%d leases", i.ConsumerLeases)
	}
	r.ready = map[timer.TopicID]int{}
	if r.Tick(); len(r.ready) != 0 {
		t.Errorf("announced: %v", r.ready)
	}
	if got := r.pull(7, 1); got != nil {
		t.Errorf("pulled %v of a topic without timers", got)
	}
}

func TestUpdatesOfALease(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	take := func() timer.Handle {
		t.Helper()
		h := r.add("a", 0)
		r.turn()
		if got := r.pull(1, 1); len(got) != 1 {
			t.Fatalf("pulled %v", got)
		}
		return h
	}
	h := take()
	fence := r.table.Due(h).Fence
	r.pass(20 * time.Second)
	if !r.update(h, timer.ExtendLease) {
		t.Error("it cannot be extended")
	}
	r.pass(29 * time.Second)
	r.state(h, timer.Leased)
	if !r.update(h, timer.AckLease) {
		t.Error("it cannot be acked")
	}
	r.state(h, timer.Done)
	ack := &timer.Command{Kind: timer.AckLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: h, Seq: 1, Fence: fence}}
	if got := r.Consumers.LeaseOver(ack, timer.Result{Code: timer.Skipped}); got.Code != timer.OK {
		t.Errorf("a repeated ack is answered %v", got.Code)
	}
	ack.Claim.Fence += 100
	if got := r.Consumers.LeaseOver(ack, timer.Result{Code: timer.Skipped}); got.Code != timer.Skipped {
		t.Errorf("the ack of another lease is answered %v", got.Code)
	}

	h = take()
	if !r.update(h, timer.ReturnLease) {
		t.Error("it cannot be returned")
	}
	if d := r.state(h, timer.Scheduled); d.Attempts != 0 {
		t.Errorf("a returned lease counts as %d attempts", d.Attempts)
	}
	r.pull(1, 1)
	r.update(h, timer.NackLease, func(u *timer.LeaseUpdate) { u.HasDelay, u.DelayMs, u.Reason = true, 5000, "no" })
	if d := r.state(h, timer.Scheduled); d.NextMs != r.now.WallMs+5000 {
		t.Errorf("it is tried again in %d ms", d.NextMs-r.now.WallMs)
	}
	r.pass(5 * time.Second)
	r.pull(1, 1)
	r.update(h, timer.NackLease)
	if d := r.state(h, timer.Scheduled); d.NextMs != r.now.WallMs+2000 {
		t.Errorf("it is tried again in %d ms", d.NextMs-r.now.WallMs)
	}
}

// TestExtendedLeaseHoldsUpNoOther: the lease of another timer runs out at its time.
func TestExtendedLeaseHoldsUpNoOther(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	a, b := r.add("a", 0), r.add("b", 0)
	r.turn()
	if got := r.pull(1, 2); len(got) != 2 {
		t.Fatalf("pulled %v", got)
	}
	r.pass(10 * time.Second)
	if !r.update(a, timer.ExtendLease) {
		t.Error("it cannot be extended")
	}
	r.pass(21 * time.Second)
	r.state(a, timer.Leased)
	r.state(b, timer.Scheduled)
	r.pass(9 * time.Second)
	r.state(a, timer.Scheduled)
}

// TestLeaseRunsOut: the next pull may take the timer at once.
func TestLeaseRunsOut(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	h := r.add("a", 0)
	r.turn()
	r.pull(1, 1)
	r.pass(29 * time.Second)
	if wake := r.NextWake(); wake > r.now.WallMs+1000 {
		t.Errorf("it runs next in %d ms", wake-r.now.WallMs)
	}
	r.state(h, timer.Leased)
	r.pass(time.Second)
	r.state(h, timer.Scheduled)
	if got := r.pull(1, 1); len(got) != 1 {
		t.Errorf("pulled %v", got)
	}
}

func TestDroppedPull(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Pull, p.Serial, p.Concurrency = true, true, 1 })
	h := r.add("a", 0)
	r.turn()
	r.dropping = true
	if got := r.pull(1, 1); got != nil {
		t.Errorf("pulled %v", got)
	}
	r.dropping = false
	r.turn()
	if got := r.pull(1, 1); len(got) != 1 || got[0] != h {
		t.Errorf("pulled %v", got)
	}
	if r.held() != 1 || len(r.Pulls.fresh) != 0 {
		t.Errorf("%d leases count", r.held())
	}
}

// TestReceiverReports: after a 202 the receiver has the timer until it reports.
func TestReceiverReports(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Report, p.Concurrency = true, 1 })
	h := r.add("a", 0)
	r.turn()
	d := r.table.Due(h)
	early := &change{}
	if !r.Consumers.AwaitAnswer(early, h, &d) {
		t.Error("an update does not wait for the call's answer")
	}
	r.end(delivery.Outcome{Status: 202})
	if len(r.resumed) != 1 {
		t.Error("the update waits on")
	}
	if d = r.state(h, timer.Leased); d.Holder == table.ByCall || r.View.InFlight() != 0 || r.held() != 1 {
		t.Errorf("held by %v, %d active, %d count", d.Holder, r.View.InFlight(), r.held())
	}
	if r.Consumers.AwaitAnswer(early, h, &d) {
		t.Error("an update waits for no call")
	}
	if r.update(h, timer.ReturnLease) {
		t.Error("a receiver returns its lease")
	}
	r.update(h, timer.AckLease)
	r.state(h, timer.Done)
	if r.held() != 0 {
		t.Errorf("%d leases count", r.held())
	}
}

// TestReceiverReportsEarly: its report may come before its answer, and an ack need not wait.
func TestReceiverReportsEarly(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Report = true })
	h := r.add("a", 0)
	r.turn()
	if !r.update(h, timer.ExtendLease) {
		t.Error("it cannot be extended")
	}
	r.update(h, timer.AckLease)
	r.state(h, timer.Done)
	r.end(delivery.Outcome{Status: 202})
	if r.View.InFlight() != 0 {
		t.Error("the call goes on")
	}
}

func TestAckedLeases(t *testing.T) {
	var a acked
	for fence := range uint64(maxAcked + 10) {
		a.add(fence)
	}
	if a.has(9) || !a.has(10) || !a.has(maxAcked+9) || len(a.set) != maxAcked {
		t.Errorf("%d acks are kept", len(a.set))
	}
}
