package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
)

// counted checks what the timers of topic 1 wait for.
func (r *replica) counted(want string) {
	r.t.Helper()
	var sums [1]timer.Counts
	r.View.Count([]timer.TopicID{1}, sums[:])
	got := ""
	for _, cause := range timer.WaitCauses() {
		if n := sums[0].Waiting[cause]; n != 0 {
			got += fmt.Sprintf("%s %d ", cause, n)
		}
	}
	if got != want {
		r.t.Fatalf("counted %q, want %q", got, want)
	}
}

// backlog adds timers that are due, and lets two seconds pass.
func (r *replica) backlog(n int) (last timer.Handle) {
	for i := range n {
		last = r.add(fmt.Sprintf("a%03d", i), 0)
	}
	r.turn()
	r.pass(2 * time.Second)
	return last
}

// TestBacklogWaitsForItsLimit: between the end of a call and the next lease a place is free, and the
// backlog waits for its limit all the same.
func TestBacklogWaitsForItsLimit(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Concurrency = 1 })
	last := r.backlog(300)
	r.waits(last, timer.WaitConcurrency)
	r.counted("concurrency 299 ")
	c := r.calls[0]
	r.permits--
	c.done(delivery.Outcome{Status: 200, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
	r.leaving = true // turns without leases: the topic has the free place
	r.turn()
	r.waits(last, timer.WaitConcurrency)
	r.counted("concurrency 299 ")
	r.leaving = false
	r.Wake()
	r.pass(2 * time.Second)
	r.counted("concurrency 298 ")
}

// TestBacklogWaitsForItsReceiver: the same of a receiver that is full.
func TestBacklogWaitsForItsReceiver(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
	last := r.backlog(300)
	r.waits(last, timer.WaitSlots)
	r.counted("slots 300 ")
	r.permits++
	r.waiters[0].Receiver.Granted(permit{r, "http://a"})
	r.posted[0](false)
	r.posted = nil
	r.waits(last, timer.WaitSlots)
	r.counted("slots 300 ")
	delete(r.verdicts, "http://a")
	r.turn()
	if len(r.calls) != 300 {
		t.Errorf("%d calls", len(r.calls))
	}
}

// TestArrayWaitsForTheOneBefore: an array of collect that is due waits for the one before it, also
// when that is paused or waits to be tried again, and it is counted so.
func TestArrayWaitsForTheOneBefore(t *testing.T) {
	r := newReplica(t)
	collect := func(n int) {
		r.command(timer.Command{Kind: timer.Add, ID: "c", Merge: timer.MergeCollect, Spec: &timer.Spec{
			DueMs: r.now.WallMs + 60_000, HasExpiry: true, ExpiresAfterMs: 3_600_000, PayloadKind: timer.JSONPayload, Payload: fmt.Append(nil, n), Collect: &timer.Collect{Max: 1},
		}})
		r.turn()
	}
	collect(1)
	r.want("c")
	first := r.table.Find(1, []byte("c"))
	collect(2)
	collect(3)
	second, third := r.table.NextLive(r.table.Find(1, []byte("c"))), r.table.Find(1, []byte("c"))
	r.pass(2 * time.Second)
	for _, h := range []timer.Handle{second, third} {
		r.waits(h, timer.WaitOrder)
	}
	r.counted("order 2 ")
	var all timer.Waiting
	if at := 0; !r.View.Waiting(&at, &all) || all[timer.WaitOrder] != 2 || all[timer.WaitLeader] != 0 {
		t.Errorf("all count %v", all)
	}
	r.end(delivery.Outcome{Status: 500})
	r.pass(2 * time.Second)
	r.want("c")
	r.end(delivery.Outcome{Status: 500}) // the wait for the third attempt is longer
	r.waits(first, timer.WaitBackoff)
	r.waits(second, timer.WaitOrder)
	r.counted("backoff 1 order 2 ")
	r.due.rearmAll()
	r.pass(100 * time.Millisecond)
	r.counted("backoff 1 order 2 ")
	r.command(timer.Command{Kind: timer.Pause, ID: "c"})
	r.pass(5 * time.Second)
	r.waits(first, timer.WaitHeld)
	r.waits(third, timer.WaitOrder)
	r.counted("paused 1 order 2 ")
	if n, leased := r.Left(); n != 1 || leased != 0 {
		t.Errorf("%d are left", n)
	}
	r.command(timer.Command{Kind: timer.Resume, ID: "c"})
	r.pass(time.Second)
	for _, behind := range []string{"order 2 ", "order 1 ", ""} {
		r.want("c")
		r.counted(behind)
		r.end(delivery.Outcome{Status: 200})
	}
	r.counted("")
}

// TestArrayExpiresBehindAnother: one that waits behind another expires at its time.
func TestArrayExpiresBehindAnother(t *testing.T) {
	r := newReplica(t)
	for range 2 {
		r.command(timer.Command{Kind: timer.Add, ID: "c", Merge: timer.MergeCollect, Spec: &timer.Spec{
			DueMs: r.now.WallMs, HasExpiry: true, ExpiresAfterMs: 10_000, PayloadKind: timer.JSONPayload, Payload: []byte("1"), Collect: &timer.Collect{Max: 1},
		}})
		r.turn()
	}
	r.pass(9 * time.Second)
	r.counted("order 1 ")
	r.pass(2 * time.Second)
	r.counted("")
	r.state(r.table.Find(1, []byte("c")), timer.Leased)
	if r.expired != 1 {
		t.Errorf("%d have expired", r.expired)
	}
}

// TestRedriveWithADelayHasAReason: a dead letter that is redriven for later is past its due time
// and not called, so it waits for the time of its next attempt; then, as any other, for its spread.
func TestRedriveWithADelayHasAReason(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1 })
	a := r.add("a", 0)
	r.turn()
	r.end(delivery.Outcome{Status: 500})
	r.state(a, timer.Dead)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts, p.SpreadMs = 1, 60_000 })
	r.pass(time.Second)
	r.command(timer.Command{Kind: timer.Redrive, ID: "a", DueMs: r.now.WallMs + 5000})
	r.pass(time.Second)
	r.waits(a, timer.WaitBackoff)
	r.counted("backoff 1 ")
	r.pass(4 * time.Second)
	r.waits(a, timer.WaitSpread)
	r.counted("spread 1 ")
	r.pass(time.Minute)
	r.want("a")
	r.counted("")
	r.end(delivery.Outcome{Status: 200})
	r.state(a, timer.Done)
}
