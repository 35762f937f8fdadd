package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// TestReceiverIsBusy: a queue whose receiver is full waits there, and goes when it is granted a
// permit.
func TestReceiverIsBusy(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
	a := r.add("a", 0)
	r.turn()
	r.want("")
	r.waits(a, timer.WaitSlots)
	if len(r.waiters) != 1 {
		t.Fatalf("%d wait", len(r.waiters))
	}
	r.permits++
	r.waiters[0].Receiver.Granted(permit{r, "http://a"})
	r.turn()
	r.want("a")

	r.add("b", 0)
	r.turn()
	r.waiters[1].Receiver.Refused(time.Second)
	delete(r.verdicts, "http://a")
	r.turn()
	r.want("a")
	r.pass(time.Second)
	r.want("ab")
}

// TestPermitWithoutUse: a permit that comes when nothing is left to call is given to others.
func TestPermitWithoutUse(t *testing.T) {
	for name, before := range map[string]func(r *replica){
		"cancelled": func(r *replica) {
			r.command(timer.Command{Kind: timer.Cancel, ID: "a"})
		},
		"paused": func(r *replica) {
			r.topics[1] = &timer.Topic{ID: 1, Policy: r.topics[1].Policy, Paused: true}
			r.Refresh()
		},
		"no lead": func(r *replica) { r.End() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
			r.add("a", 0)
			r.turn()
			before(r)
			r.turn()
			r.permits++
			r.waiters[0].Receiver.Granted(permit{r, "http://a"})
			if r.turn(); r.permits != 0 {
				t.Error("the permit is kept")
			}
			r.want("")
		})
	}
}

func TestNodeIsFull(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.NodeFull, Class: 1}
	a := r.add("a", 0)
	b := r.add("b", 0)
	r.turn()
	r.pass(2 * time.Second)
	r.waits(a, timer.WaitSlots)
	var sum timer.Waiting
	at := 0
	if !r.View.Waiting(&at, &sum) || sum[timer.WaitSlots] != 2 {
		t.Errorf("they wait for %v", sum)
	}
	if len(r.waiters) != 1 {
		t.Fatalf("%d wait", len(r.waiters))
	}
	cancelled := 0
	r.waiters[0].Node.GrantedSlot(1, credit{&cancelled})
	r.turn()
	r.want("a")
	r.state(b, timer.Scheduled)
	if len(r.waiters) != 2 || cancelled != 0 {
		t.Fatalf("%d asked, %d credits were returned", len(r.waiters), cancelled)
	}
	r.command(timer.Command{Kind: timer.Cancel, ID: "b"})
	r.waiters[1].Node.GrantedSlot(1, credit{&cancelled})
	if r.turn(); cancelled != 1 {
		t.Errorf("a credit without use is kept")
	}
	r.add("c", 0)
	r.turn()
	r.End()
	r.waiters[2].Node.GrantedSlot(1, credit{&cancelled})
	if r.turn(); cancelled != 2 {
		t.Errorf("a credit after the leadership is kept")
	}
}

// TestCreditAtTheEnd: a credit that no lease has used is returned with the leadership.
func TestCreditAtTheEnd(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.NodeFull}
	r.add("a", 0)
	r.turn()
	cancelled := 0
	r.waiters[0].Node.GrantedSlot(0, credit{&cancelled})
	r.posted[0](false)
	if r.End(); cancelled != 1 {
		t.Error("the credit is kept")
	}
}

// TestStoppedHost: an event that comes when no worker runs gives back what it has.
func TestStoppedHost(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.NodeFull}
	r.add("a", 0)
	r.turn()
	cancelled := 0
	r.waiters[0].Node.GrantedSlot(0, credit{&cancelled})
	r.posted[0](true)
	r.permits++
	r.waiters[0].Receiver.Granted(permit{r, "http://a"})
	r.posted[1](true)
	if cancelled != 1 || r.permits != 0 {
		t.Errorf("%d credits returned, %d permits kept", cancelled, r.permits)
	}
}

func TestBreakerIsOpen(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	a := r.add("a", 0)
	r.turn()
	r.waits(a, timer.WaitBreaker)
	delete(r.verdicts, "http://a")
	r.pass(900 * time.Millisecond)
	r.want("")
	r.pass(100 * time.Millisecond)
	r.want("a")
}

// TestReceiversOfATopic: a timer may name its own receiver, and one that is shut holds up no other.
func TestReceiversOfATopic(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://b"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
	at := func(url string) func(*timer.Command) {
		return func(c *timer.Command) { c.Spec.Callback.URL = url }
	}
	r.add("a", 0, at("http://b"))
	r.add("b", 0, at("http://c"))
	r.add("c", 0)
	r.turn()
	r.want("bc")
	sum := map[Destination]int{}
	var cursor DueCursor
	if !r.View.DueFor(&cursor, sum) || sum["http://b"] != 1 || sum["http://a"] != 0 {
		t.Errorf("due: %v", sum)
	}
}

func TestNoURL(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Callback.URL = "" })
	a := r.add("a", 0)
	r.turn()
	r.waits(a, timer.WaitNoCallback)
	r.topic(1, func(*timer.Policy) {})
	r.turn()
	r.want("a")
}

// TestLeadershipIsProven: no call starts when a majority followed too long ago, until one has
// confirmed.
func TestLeadershipIsProven(t *testing.T) {
	r := newReplica(t)
	r.add("a", 15)
	r.turn()
	r.now.WallMs += 3000
	r.now.Lease += 3 * time.Second
	r.now.Mono += 3 * time.Second
	r.turn()
	r.want("")
	if !r.InDoubt() || len(r.confirms) != 1 {
		t.Fatalf("doubt: %t, %d confirmations", r.InDoubt(), len(r.confirms))
	}
	r.confirms[0](timer.ErrOverloaded)
	r.turn()
	r.confirms[1](nil)
	r.turn()
	r.want("a")
}

// confirmAfter answers the confirmation that is pending, after a while.
func (r *replica) confirmAfter(d time.Duration) {
	r.t.Helper()
	r.pass(d)
	if len(r.confirms) == 0 {
		r.t.Fatal("no confirmation is asked for")
	}
	last := r.confirms[len(r.confirms)-1]
	r.confirms = nil
	last(nil)
	r.turn()
}

// TestSlowLeader: a leader whose confirmations or commits take long declares that its leases have
// the longer bound, and takes it back when all are quick again.
func TestSlowLeader(t *testing.T) {
	r := newReplica(t)
	within := func(id string) time.Duration {
		t.Helper()
		a := r.add(id, 0)
		r.turn()
		call := r.calls[len(r.calls)-1]
		if r.state(a, timer.Leased); call.Job.ID != id {
			t.Fatalf("%s is not called", id)
		}
		return call.Deadline - r.now.Lease - 10*time.Second
	}
	if d := within("a"); d != StartWithin {
		t.Errorf("a call may begin for %v", d)
	}
	r.Doubt()
	r.turn()
	r.confirmAfter(slowFrom/2 - time.Millisecond)
	if d := within("b"); d != StartWithin {
		t.Errorf("after a quick confirmation a call may begin for %v", d)
	}
	r.Doubt()
	r.turn()
	r.dropping = true
	r.confirmAfter(slowFrom / 2)
	if r.dropping = false; r.table.StartsSlowly() {
		t.Fatal("it was declared by an entry that the log did not take")
	}
	r.turn()
	if d := within("c"); d != SlowStartWithin {
		t.Errorf("a call may begin for %v", d)
	}
	r.pass(minSlowFor - time.Second)
	if d := within("d"); d != SlowStartWithin {
		t.Errorf("a call may begin for %v before %v are over", d, minSlowFor)
	}
	for _, id := range []string{"x", "y"} { // until the slow one is not of the last two seconds
		r.pass(time.Second)
		r.add(id, 0)
		r.turn()
	}
	if d := within("e"); d != StartWithin {
		t.Errorf("a call may begin for %v", d)
	}
	if owner := r.table.LeaseOwner(r.table.LastFence()); owner != r.cfg.Owner {
		t.Errorf("its leases are owned by %x", owner)
	}
}

// TestSlowAgainAndAgain: a leader that becomes slow again soon keeps the longer bound for twice as
// long each time, and a minute later for the shortest time again.
func TestSlowAgainAndAgain(t *testing.T) {
	r := newReplica(t)
	n := 0
	step := func(confirmed time.Duration) {
		n++
		r.add(fmt.Sprint("t", n), r.now.WallMs)
		r.Doubt()
		r.turn()
		r.confirmAfter(confirmed)
		r.turn()
	}
	slow := func() time.Duration {
		t.Helper()
		began := r.now.Mono
		if step(slowFrom / 2); !r.table.StartsSlowly() {
			t.Fatal("a slow confirmation makes nobody slow")
		}
		for r.table.StartsSlowly() {
			r.pass(500 * time.Millisecond)
			step(time.Millisecond)
		}
		return (r.now.Mono - began).Round(time.Second)
	}
	for i, want := range []time.Duration{2, 4, 8, 16, 16} {
		want *= time.Second
		if d := slow(); d < want || d > want+time.Second {
			t.Errorf("time %d: slow for %v, want %v", i+1, d, want)
		}
	}
	r.pass(slowAgain)
	if d := slow(); d > 3*time.Second {
		t.Errorf("a minute later: slow for %v", d)
	}
}

// TestSlowConfirmationsStopNoCall: when each takes longer than a proof lasts by the short bound,
// the lease is returned, and taken again with the long one.
func TestSlowConfirmationsStopNoCall(t *testing.T) {
	for _, many := range []bool{false, true} {
		r := newReplica(t)
		due := int64(15)
		if many {
			due = 0
			r.topic(1, func(p *timer.Policy) { p.Batch = &timer.Batch{Max: 2} })
		}
		a := r.add("a", due)
		b := r.add("b", due)
		r.Run()
		var batch table.Batch
		batch.Reset(r.now.WallMs, 1, 1)
		r.items = nil
		r.Lease(&batch)
		results, err := r.table.Apply(batch.Bytes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.now.WallMs += 300
		r.now.Lease += 300 * time.Millisecond
		r.now.Mono += 300 * time.Millisecond
		for i := range results {
			r.items[i](&results[i], true)
		}
		r.turn()
		for range 3 {
			if len(r.confirms) > 0 {
				r.confirmAfter(300 * time.Millisecond)
			}
		}
		called := len(r.calls)
		for _, g := range r.batches {
			called += len(g.Jobs)
		}
		if r.state(b, timer.Leased); called != 2 || r.InDoubt() {
			t.Errorf("many %t: %d of 2 are called, doubt %t", many, called, r.InDoubt())
		}
		if d := r.state(a, timer.Leased); d.Attempts != 1 || d.Fence <= results[len(results)-1].Fence {
			t.Errorf("many %t: attempt %d, lease %d", many, d.Attempts, d.Fence)
		}
	}
}

// TestProofIsRenewedInTime: a lease that is taken further ahead than a proof lasts waits for no
// confirmation when it is due.
func TestProofIsRenewedInTime(t *testing.T) {
	r := newReplica(t)
	r.due.learn(80*time.Millisecond, r.now.Mono)
	a := r.add("a", 160)
	r.turn()
	r.state(a, timer.Leased)
	next := time.Duration(r.NextWake()-r.now.WallMs) * time.Millisecond
	if next >= 160*time.Millisecond || next < 50*time.Millisecond {
		t.Fatalf("it wakes after %v", next)
	}
	r.pass(next)
	if len(r.confirms) != 1 || r.InDoubt() {
		t.Fatalf("%d confirmations are asked for, doubt %t", len(r.confirms), r.InDoubt())
	}
	r.confirms[0](nil)
	r.turn()
	r.pass(160*time.Millisecond - next)
	if r.want("a"); len(r.confirms) != 1 {
		t.Errorf("%d confirmations", len(r.confirms))
	}
}

// TestDoubtOutlivesAnEarlierQuestion: a confirmation that was asked for before the doubt began does
// not end it.
func TestDoubtOutlivesAnEarlierQuestion(t *testing.T) {
	r := newReplica(t)
	r.Doubt()
	r.turn()
	r.now.Lease += time.Hour
	r.Doubt()
	r.confirms[0](nil)
	r.turn()
	if !r.InDoubt() || len(r.confirms) != 2 {
		t.Fatalf("doubt %t, %d confirmations", r.InDoubt(), len(r.confirms))
	}
	r.confirms[1](nil)
	if r.InDoubt() {
		t.Error("it stays in doubt")
	}
}

// TestGiveWay: a client's change returns the lease of a timer that has not started. It waits for one
// that is not applied yet.
func TestGiveWay(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 15)
	r.turn()
	cancel := &timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"}
	waiting := &change{until: r.now.Mono + time.Second}
	r.entry(func(b *table.Batch) {
		if !r.Leases.GiveWay(b, cancel, waiting) {
			t.Error("it waits for a lease that is applied")
		}
	})
	if r.state(a, timer.Scheduled); r.permits != 0 {
		t.Error("the permit is kept")
	}
	r.turn()
	r.state(a, timer.Leased)

	b := r.add("b", 15)
	r.Run()
	var batch table.Batch
	batch.Reset(r.now.WallMs, 1, 1)
	r.items = nil
	r.Lease(&batch)
	cancel.ID = "b"
	if r.Leases.GiveWay(&batch, cancel, waiting) {
		t.Error("it does not wait for a lease in the pipeline")
	}
	late := &change{until: r.now.Mono}
	if r.Leases.GiveWay(&batch, cancel, late) || r.View.Inspect().Leases[b].Waiting != 2 {
		t.Errorf("%+v", r.View.Inspect().Leases[b])
	}
	r.Leases.Expire(r.now.Mono)
	if late.err != nil || waiting.err != nil {
		t.Error("the first in line has time")
	}
	r.Leases.Expire(r.now.Mono + time.Second)
	if late.err != timer.ErrOverloaded || waiting.err != timer.ErrOverloaded {
		t.Errorf("answers: %v, %v", late.err, waiting.err)
	}
	results, err := r.table.Apply(batch.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		r.items[i](&results[i], true)
	}
	r.Run()
	r.entry()
	if r.state(b, timer.Scheduled); r.permits != 1 {
		t.Errorf("%d permits in use", r.permits)
	}
}

// TestCancelGivesBackWhatItEnds: a cancel of an id returns the leases of all its timers that have
// not ended, also where a redriven array is older than the one that goes first. One that names an
// older occurrence leaves the others' leases.
func TestCancelGivesBackWhatItEnds(t *testing.T) {
	cancelled := func(r *replica, seq uint64) (code timer.Code) {
		t.Helper()
		c := timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a", Seq: seq}
		r.entry(func(b *table.Batch) {
			if !r.Leases.GiveWay(b, &c, &change{}) {
				t.Error("it waits for a lease that is applied")
			}
			b.Command(&c)
			r.items = append(r.items, func(result *timer.Result, _ bool) { code = result.Code })
		})
		return code
	}
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1 })
	dead := r.add("a", 0, collect(4, 1))
	r.turn()
	r.end(delivery.Outcome{Status: 500})
	r.state(dead, timer.Dead)
	front := r.add("a", 15, collect(4, 2))
	r.command(timer.Command{Kind: timer.Redrive, ID: "a", DueMs: r.now.WallMs + 60_000})
	r.turn()
	r.state(front, timer.Leased)
	next := timer.Command{Kind: timer.Add, ID: "a", Spec: &timer.Spec{DueMs: r.now.WallMs + 60_000}}
	collect(4, 1)(&next)
	behind := r.command(next).Handle
	r.state(dead, timer.Scheduled)
	if code := cancelled(r, 0); code != timer.Prevented || r.permits != 0 || r.table.Totals().Leased+r.table.Totals().Scheduled != 0 {
		t.Errorf("cancelled: code %d, %d permits are in use, %+v; handles %d %d %d", code, r.permits, r.table.Totals(), dead, front, behind)
	}

	r = newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1 })
	series := r.add("a", 0, func(c *timer.Command) { c.Spec.Repeat = &timer.Repeat{EveryMs: 1000} })
	var occurrences []timer.Handle
	for range 2 {
		occurrences = append(occurrences, r.table.Named(1, []byte("a"), 0))
		r.pass(time.Second)
		r.end(delivery.Outcome{Status: 500})
	}
	var seqs []uint64
	for _, h := range occurrences {
		seqs = append(seqs, r.state(h, timer.Dead).Seq)
		r.command(timer.Command{Kind: timer.Redrive, ID: "a", Seq: seqs[len(seqs)-1], DueMs: r.now.WallMs + 15})
	}
	r.turn()
	for _, h := range occurrences {
		r.state(h, timer.Leased)
	}
	if code := cancelled(r, seqs[0]); code != timer.Prevented || r.table.Live(occurrences[0], seqs[0]) {
		t.Errorf("one of series %d: code %d", series, code)
	}
	r.state(occurrences[1], timer.Leased)
	if code := cancelled(r, seqs[0]); code != timer.VersionMismatch {
		t.Errorf("one that is gone: code %d", code)
	}
	r.state(occurrences[1], timer.Leased)
	if code := cancelled(r, 0); code != timer.Prevented || r.permits != 0 {
		t.Errorf("all: code %d, %d permits are in use", code, r.permits)
	}
}

// TestDeliveryIsChanged: leases that have not started are returned when the log changes a topic's
// delivery, and its timers go again once it is changed back.
func TestDeliveryIsChanged(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 15)
	r.turn()
	c := timer.Command{Kind: timer.Deliver, Topic: 1, Turn: 1, Pull: true}
	r.entry(func(b *table.Batch) { r.Leases.GiveWay(b, &c, nil) })
	r.state(a, timer.Scheduled)
	r.command(c)
	r.pass(time.Second)
	r.want("")
	c.Turn, c.Pull = 2, false
	r.command(c)
	r.DeliveryChanged(1)
	r.turn()
	r.want("a")
}

func TestDrain(t *testing.T) {
	r := newReplica(t)
	a, b := r.add("a", 0), r.add("b", 15)
	r.turn()
	r.leaving = true
	if n := r.Leases.Drain(); n != 2 {
		t.Errorf("%d leases have not ended", n)
	}
	r.turn()
	r.state(b, timer.Scheduled)
	if n := r.Leases.Drain(); n != 1 || r.View.InFlight() != 1 {
		t.Errorf("%d leases have not ended", n)
	}
	r.end(delivery.Outcome{Status: 200})
	if r.state(a, timer.Done); r.Leases.Drain() != 0 {
		t.Error("an ended lease counts")
	}
}

// TestSlotOfADroppedTimer: a timer in the slot of one whose topic was dropped by force is called while
// that one's call runs. Each has its lease, and the topic has what is left.
func TestSlotOfADroppedTimer(t *testing.T) {
	r := newReplica(t)
	before := r.add("a", 0)
	r.turn()
	got := r.command(timer.Command{Kind: timer.CloseTopic, Force: true})
	r.Keys.ReviewDropped(0, got.Handle)
	r.command(timer.Command{Kind: timer.OpenTopic})
	if after := r.add("b", 0); after != before {
		t.Fatalf("slot %d, and before %d", after, before)
	}
	r.turn()
	r.leasesOfTopics("in the same slot")
	r.want("ab")
	r.end(delivery.Outcome{Status: 200})
	r.leasesOfTopics("after the call of the timer that is gone")
	r.state(before, timer.Leased)
	r.end(delivery.Outcome{Status: 200})
	r.leasesOfTopics("after both")
	if r.state(before, timer.Done); r.View.InFlight() != 0 || r.permits != 0 {
		t.Errorf("%d leases, %d permits", r.View.InFlight(), r.permits)
	}
}

// TestForcedDrop: a call whose topic was dropped by force ends without an outcome.
func TestForcedDrop(t *testing.T) {
	r := newReplica(t)
	r.add("a", 0)
	r.turn()
	b := r.add("b", 15)
	r.turn()
	got := r.command(timer.Command{Kind: timer.CloseTopic, Force: true})
	r.Keys.ReviewDropped(0, got.Handle)
	r.end(delivery.Outcome{Status: 200})
	r.pass(100 * time.Millisecond)
	r.want("")
	if r.View.InFlight() != 0 || r.permits != 0 || len(r.fired) != 0 {
		t.Errorf("%d leases, %d permits, outcomes %v; timer %d", r.View.InFlight(), r.permits, r.fired, b)
	}
}
