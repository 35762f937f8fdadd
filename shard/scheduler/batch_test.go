package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// newBatchReplica returns a replica whose topic calls many timers at once.
func newBatchReplica(t *testing.T, b timer.Batch, set ...func(*timer.Policy)) *replica {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) {
		p.Batch = &b
		for _, f := range set {
			f(p)
		}
	})
	return r
}

// ids are the timers of a call, in its order.
func (b *batch) ids() string {
	var list []string
	for i := range b.Jobs {
		list = append(list, b.Jobs[i].ID)
	}
	return strings.Join(list, " ")
}

// wantBatches checks the timers of the calls of many that run, sorted.
func (r *replica) wantBatches(want ...string) {
	r.t.Helper()
	var got []string
	for _, b := range r.batches {
		got = append(got, b.ids())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Fatalf("calls of many run with %q, want %q", got, want)
	}
}

// endBatch ends the call of many that began first; failed are its timers that the receiver names.
func (r *replica) endBatch(o delivery.Outcome, failed ...string) *batch {
	r.t.Helper()
	if len(r.batches) == 0 {
		r.t.Fatal("no call of many runs")
	}
	b := r.batches[0]
	r.batches = r.batches[1:]
	o.StartedMs, o.EndedMs = r.now.WallMs, r.now.WallMs
	list := make([]delivery.Outcome, len(b.Jobs))
	for i := range list {
		if list[i] = o; slices.Contains(failed, b.Jobs[i].ID) {
			list[i].Err = "failed"
		}
	}
	r.permits--
	b.done(list)
	r.turn()
	return b
}

// TestBatchGoesWhenFull: a full call goes at once, the rest when its wait is over, and each call
// takes one permit.
func TestBatchGoesWhenFull(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 3, WaitMs: 2000})
	for i := range 7 {
		r.add(fmt.Sprint(i), 0)
	}
	last := r.table.Named(1, []byte("6"), 0)
	r.turn()
	r.wantBatches("0 1 2", "3 4 5")
	if r.permits != 2 {
		t.Fatalf("%d permits are in use, want 2", r.permits)
	}
	r.waits(last, timer.WaitBatch)
	var sum [1]timer.Counts
	r.View.Count([]timer.TopicID{1}, sum[:])
	if sum[0].Waiting[timer.WaitBatch] != 1 || sum[0].Ready != 1 {
		t.Fatalf("counts are %+v", sum[0])
	}
	if at := r.NextWake(); at != startMs+2000 {
		t.Fatalf("wakes at %d, want %d", at-startMs, 2000)
	}
	r.pass(1900 * time.Millisecond)
	r.wantBatches("0 1 2", "3 4 5")
	r.pass(100 * time.Millisecond)
	r.wantBatches("0 1 2", "3 4 5", "6")
	for range 3 {
		r.endBatch(delivery.Outcome{Status: 200})
	}
	if r.permits != 0 || r.state(last, timer.Done).Attempts != 1 || len(r.lateness) != 7 {
		t.Fatalf("%d permits are in use, %d latenesses", r.permits, len(r.lateness))
	}
}

// TestBatchOfNoWait: what is due in one turn goes in one call, and none goes before it is due.
func TestBatchOfNoWait(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100})
	r.add("a", 0)
	r.add("b", 0)
	r.add("c", 150)
	r.turn()
	r.wantBatches("a b")
	if r.View.Inspect().Leases[r.table.Named(1, []byte("c"), 0)] != (InspectedLease{}) || len(r.Leases.byTimer) != 2 {
		t.Fatal("a timer is leased ahead of its due time")
	}
	r.pass(100 * time.Millisecond)
	r.wantBatches("a b")
	r.pass(100 * time.Millisecond)
	r.wantBatches("a b", "c")
}

// TestBatchStartsOnceItIsLeased: after the turn in which its leases are applied another one comes at
// once.
func TestBatchStartsOnceItIsLeased(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100})
	r.add("a", 0)
	r.add("b", 0)
	r.Run()
	if !r.entry() || len(r.Leases.calls) != 1 {
		t.Fatal("no call is leased")
	}
	if at := r.NextWake(); at > r.now.WallMs {
		t.Errorf("the call is leased, and starts %d ms later", at-r.now.WallMs)
	}
}

// TestBatchGroups: only timers of one URL, method and time-out share a call, and by key those of
// one key, or without one; those with headers of their own and calls without a body go alone.
func TestBatchGroups(t *testing.T) {
	set := func(f func(*timer.Callback)) func(*timer.Command) {
		return func(c *timer.Command) { f(&c.Spec.Callback) }
	}
	r := newBatchReplica(t, timer.Batch{Max: 10})
	for i, with := range []func(*timer.Callback){
		func(*timer.Callback) {},
		func(c *timer.Callback) { c.URL = "http://a" }, // the topic's
		func(c *timer.Callback) { c.URL = "http://b" },
		func(c *timer.Callback) { c.Method = "PUT" },
		func(c *timer.Callback) { c.TimeoutMs = 1000 },
		func(c *timer.Callback) { c.Method = "GET" },
		func(c *timer.Callback) { c.HasHeaders = true },
		func(c *timer.Callback) { c.Method = "PUT" },
	} {
		r.add(fmt.Sprint(i), 0, set(with))
	}
	r.turn()
	r.wantBatches("0 1", "2", "3 7", "4")
	r.want("56")

	r = newBatchReplica(t, timer.Batch{Max: 10, ByKey: true})
	for _, id := range []string{"{k}1", "{l}1", "{k}2", "m", "n"} {
		r.add(id, 0)
	}
	r.turn()
	r.wantBatches("m n", "{k}1 {k}2", "{l}1")
}

// TestBatchOutcomes: each timer of a call has its own outcome, and a retry goes alone.
func TestBatchOutcomes(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10})
	a, b := r.add("a", 0), r.add("b", 0)
	r.turn()
	r.endBatch(delivery.Outcome{Status: 200}, "b")
	r.state(a, timer.Done)
	if d := r.state(b, timer.Scheduled); d.Attempts != 1 || d.NextMs != r.now.WallMs+1000 || d.Status != 200 {
		t.Fatalf("the failed timer is %+v", d)
	}
	r.add("c", 900)
	r.pass(time.Second)
	r.wantBatches("c")
	r.want("b")
	r.endBatch(delivery.Outcome{Status: 500, Err: "status 500"})
	r.end(delivery.Outcome{Status: 200})
	r.state(b, timer.Done)
	if len(r.fired) != 4 {
		t.Fatalf("%d outcomes are counted, want 4", len(r.fired))
	}
}

// TestBatchNotSent: a call that could not be made gives all its timers back, and they go again in
// one call.
func TestBatchNotSent(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10})
	a, b := r.add("a", 0), r.add("b", 0)
	r.turn()
	r.endBatch(delivery.Outcome{NotSent: true, Err: "not sent"})
	r.wantBatches("a b")
	for _, h := range []timer.Handle{a, b} {
		if d := r.state(h, timer.Leased); d.Attempts != 1 {
			t.Fatalf("attempt %d, want 1", d.Attempts)
		}
	}
	if r.permits != 1 {
		t.Fatalf("%d permits are in use", r.permits)
	}
}

// TestBatchLosesLeases: a timer whose lease is void leaves the call, and the rest goes; if all
// leave, the permit is free.
func TestBatchLosesLeases(t *testing.T) {
	stale := func(r *replica) { // no call may start until a majority confirms
		r.now.Lease += 10 * time.Second
		r.now.Mono += 10 * time.Second
	}
	held := func(t *testing.T, set ...func(*timer.Policy)) (r *replica, h []timer.Handle) {
		r = newBatchReplica(t, timer.Batch{Max: 10}, set...)
		for i := range 3 {
			h = append(h, r.add(fmt.Sprint(i), 0, func(c *timer.Command) { c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = i == 2, 100 }))
		}
		r.Run()
		r.entry()
		if len(r.Leases.calls) != 1 || r.permits != 1 {
			t.Fatal("no call waits to start")
		}
		return r, h
	}
	t.Run("cancel", func(t *testing.T) {
		r, h := held(t)
		cmd := timer.Command{Kind: timer.Cancel, Topic: 1, ID: "0"}
		if !r.entry(func(b *table.Batch) { r.Leases.GiveWay(b, &cmd, &change{}) }) {
			t.Fatal("nothing was proposed")
		}
		r.state(h[0], timer.Scheduled)
		if got := r.command(cmd); got.Code != timer.Prevented {
			t.Fatalf("the cancel is answered %v", got.Code)
		}
		r.turn()
		r.wantBatches("1 2")
	})
	t.Run("expiry", func(t *testing.T) {
		r, h := held(t)
		r.now.WallMs += 200
		r.turn()
		r.wantBatches("0 1")
		r.pass(200 * time.Millisecond)
		r.state(h[2], timer.Dead)
	})
	t.Run("pause", func(t *testing.T) {
		r, h := held(t)
		paused := *r.topics[1]
		paused.Paused = true
		r.topics[1] = &paused
		r.Refresh()
		r.turn()
		r.wantBatches()
		r.state(h[0], timer.Scheduled)
		if r.permits != 0 {
			t.Fatalf("%d permits are in use", r.permits)
		}
	})
	t.Run("policy", func(t *testing.T) {
		r, _ := held(t)
		r.topic(1, func(*timer.Policy) {})
		r.turn()
		r.wantBatches()
		r.want("012")
	})
	t.Run("clock", func(t *testing.T) {
		r, h := held(t)
		r.now.WallMs -= 5000
		r.turn()
		r.wantBatches()
		r.state(h[0], timer.Scheduled)
		r.pass(6 * time.Second)
		r.wantBatches("0 1 2")
	})
	t.Run("doubt", func(t *testing.T) {
		r, _ := held(t)
		stale(r)
		r.turn()
		r.wantBatches()
		if len(r.confirms) == 0 {
			t.Fatal("nobody is asked")
		}
		r.confirms[len(r.confirms)-1](nil)
		r.turn()
		r.wantBatches("0 1 2")
	})
	t.Run("end", func(t *testing.T) {
		r, _ := held(t)
		r.End()
		if r.permits != 0 || len(r.reports) != 3 {
			t.Fatalf("%d permits are in use, %d reports", r.permits, len(r.reports))
		}
	})
	t.Run("drain", func(t *testing.T) {
		r, _ := held(t)
		r.leaving = true
		r.Leases.Drain()
		r.turn()
		if r.Leases.Drain() != 0 || r.permits != 0 {
			t.Fatalf("%d permits are in use", r.permits)
		}
	})
}

// TestBatchLogRefuses: leases that the log does not take leave nothing behind.
func TestBatchLogRefuses(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10})
	r.add("a", 0)
	r.add("b", 0)
	r.dropping = true
	r.Run()
	r.entry()
	if r.permits != 0 || len(r.Leases.byTimer) != 0 || len(r.Leases.calls) != 0 {
		t.Fatalf("%d permits, %d leases", r.permits, len(r.Leases.byTimer))
	}
	r.dropping = false
	r.turn()
	r.wantBatches("a b")
}

// TestBatchForgetsCancelled: timers that were cancelled while they waited make no call full.
func TestBatchForgetsCancelled(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 3, WaitMs: 5000})
	r.add("a", 0)
	r.add("b", 0)
	r.turn()
	r.command(timer.Command{Kind: timer.Cancel, ID: "b"})
	r.add("c", 0)
	r.turn()
	r.wantBatches()
	if r.permits != 0 {
		t.Fatalf("%d permits are in use", r.permits)
	}
	r.add("d", 0)
	r.turn()
	r.wantBatches("a c d")
}

// TestBatchIsSetAsideTwice: a queue with outdated timers is set aside again while what was in it,
// or in another one, is still being queued again. None of its timers is lost.
func TestBatchIsSetAsideTwice(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 4, WaitMs: 5000})
	cancel := func(id string) { r.command(timer.Command{Kind: timer.Cancel, ID: id}) }
	for _, id := range []string{"a", "x", "y"} {
		r.add(id, 0)
	}
	r.turn()
	cancel("x")
	cancel("y")
	r.budget = 1 // one timer is queued again in a turn
	r.add("c", 0)
	r.step()
	if r.View.Inspect().Compacting == 0 {
		t.Fatal("nothing is set aside")
	}
	r.step()
	r.add("z", 0)
	r.step()
	cancel("z")
	r.add("e", 0)
	r.add("f", 0)
	r.step()
	r.budget = 0
	r.turn()
	r.wantBatches("a c e f")
}

// TestBatchWaitsFromItsFirst: after a full call the wait counts from the first timer that is left.
func TestBatchWaitsFromItsFirst(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 2, WaitMs: 1000})
	r.add("a", 0)
	r.pass(600 * time.Millisecond)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: 100 * time.Millisecond}
	r.add("b", 0)
	r.add("c", 0)
	r.pass(100 * time.Millisecond)
	delete(r.verdicts, "http://a")
	r.pass(100 * time.Millisecond)
	r.wantBatches("a b")
	r.pass(700 * time.Millisecond)
	r.wantBatches("a b")
	r.pass(100 * time.Millisecond)
	r.wantBatches("a b", "c")
}

// TestBatchBody: a call ends where its body would be over 1 MiB.
func TestBatchBody(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100, WaitMs: 60_000})
	for i := range 5 {
		r.add(fmt.Sprint(i), 0, func(c *timer.Command) {
			c.Spec.PayloadKind, c.Spec.Payload = timer.JSONPayload, []byte(`"`+strings.Repeat("x", 250<<10)+`"`)
		})
	}
	r.turn()
	r.wantBatches("0 1 2 3")
}

// collect adds a payload of so many bytes to an array, which is full with most of them.
func collect(bytes, most int) func(*timer.Command) {
	return func(c *timer.Command) {
		c.Merge, c.Spec.Collect = timer.MergeCollect, &timer.Collect{Max: most}
		c.Spec.PayloadKind, c.Spec.Payload = timer.JSONPayload, []byte(`"`+strings.Repeat("x", bytes-2)+`"`)
	}
}

// TestBatchOfArrays: the arrays of timers that collect count in the body of a call, also what is
// appended in the entry that leases them.
func TestBatchOfArrays(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100, WaitMs: 60_000})
	for i := range 5 {
		r.add(fmt.Sprint(i), 0, collect(250<<10, 1))
	}
	r.turn()
	r.wantBatches("0 1 2 3")

	r = newBatchReplica(t, timer.Batch{Max: 6})
	for i := range 6 {
		r.add(fmt.Sprint(i), 0, collect(4, 10))
	}
	r.Run()
	r.entry(func(b *table.Batch) {
		for i := range 6 {
			c := timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: r.now.WallMs}}
			collect(250<<10, 10)(&c)
			b.Command(&c)
			r.items = append(r.items, func(*timer.Result, bool) {})
		}
	})
	r.turn()
	r.wantBatches("0 1 2 3", "4 5")
	if r.permits != 2 {
		t.Errorf("%d permits are in use", r.permits)
	}
}

// TestBatchLimits: concurrency counts the timers of a call, not the call.
func TestBatchLimits(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10}, func(p *timer.Policy) { p.Concurrency = 3 })
	for i := range 7 {
		r.add(fmt.Sprint(i), 0)
	}
	r.turn()
	r.wantBatches("0 1 2")
	if got := r.cfg.Limiters.Inspect()[1]; got.Leases != 3 || r.permits != 1 {
		t.Fatalf("the limit counts %+v, %d permits are in use", got, r.permits)
	}
	r.endBatch(delivery.Outcome{Status: 200})
	r.wantBatches("3 4 5")
}

// TestBatchBreaker: a receiver that is shut costs no attempt, and the timers go in one call after.
func TestBatchBreaker(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10})
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	h := r.add("a", 0)
	r.add("b", 0)
	r.turn()
	r.wantBatches()
	r.waits(h, timer.WaitBreaker)
	delete(r.verdicts, "http://a")
	r.pass(1100 * time.Millisecond)
	r.wantBatches("a b")
	if d := r.state(h, timer.Leased); d.Attempts != 1 {
		t.Fatalf("attempt %d", d.Attempts)
	}
}

// TestBatchManyKeys: the queues of many keys are dropped when they have nothing, and a turn keeps
// to its time.
func TestBatchManyKeys(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10, ByKey: true})
	const keys = 500
	for i := range keys {
		r.add(fmt.Sprintf("{k%d}x", i), 0)
	}
	r.turn()
	for len(r.batches) > 0 {
		r.endBatch(delivery.Outcome{Status: 200})
	}
	if r.permits != 0 || len(r.fired) != keys {
		t.Fatalf("%d permits are in use, %d outcomes", r.permits, len(r.fired))
	}
	for range 3 {
		r.Sweep()
	}
	if q := r.Scheduler.topics.byID[1]; q != nil && len(q.dests)+len(q.groups)+r.Scheduler.topics.gathering.Len() > 0 {
		t.Fatalf("%d queues and %d ways to them are left", len(q.dests), len(q.groups))
	}
}

// TestBatchQueuedTwice: a timer that is queued twice, as after the log has refused an item, is in a
// call once.
func TestBatchQueuedTwice(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10, WaitMs: 1000})
	a, b := r.add("a", 0), r.add("b", 0)
	r.turn()
	r.RearmAll()
	r.turn()
	if q := r.Scheduler.topics.byID[1]; q.queued() != 4 {
		t.Fatalf("%d entries are queued, want each timer twice", q.queued())
	}
	r.pass(time.Second)
	r.wantBatches("a b")
	r.endBatch(delivery.Outcome{Status: 200})
	r.state(a, timer.Done)
	r.state(b, timer.Done)
	if r.permits != 0 || len(r.Leases.byTimer) != 0 {
		t.Fatalf("%d permits, %d leases", r.permits, len(r.Leases.byTimer))
	}
}

// TestBatchOfKeys: a call has as many timers of a key as its limits let go, and the keys of a fair
// topic take turns in it.
func TestBatchOfKeys(t *testing.T) {
	add := func(r *replica) {
		for _, id := range []string{"{k}1", "{k}2", "{k}3", "{k}4", "{l}1", "{l}2", "{l}3"} {
			r.add(id, 0)
		}
		r.turn()
	}
	r := newBatchReplica(t, timer.Batch{Max: 10}, perKey(timer.PerKey{Concurrency: 2, Fair: true}))
	add(r)
	r.wantBatches("{k}1 {l}1 {k}2 {l}2")
	r.waits(r.table.Named(1, []byte("{k}3"), 0), timer.WaitKey)
	r.endBatch(delivery.Outcome{Status: 200})
	r.wantBatches("{k}3 {l}3 {k}4")
	r.endBatch(delivery.Outcome{Status: 200})
	r.leftover()

	r = newBatchReplica(t, timer.Batch{Max: 3, ByKey: true}, perKey(timer.PerKey{Rate: rate(0.01, 4)}))
	r.pass(400 * time.Second)
	add(r)
	r.wantBatches("{k}1 {k}2 {k}3", "{k}4", "{l}1 {l}2 {l}3")
}

// TestBatchPassesAKeyOver: a timer whose key's limit another call has used up in the same turn goes
// when that one has ended.
func TestBatchPassesAKeyOver(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 10}, perKey(timer.PerKey{Concurrency: 1}))
	r.add("{k}b", -9, url("http://b"))
	r.add("{l}a", -8)
	r.add("{k}a", -7)
	r.turn()
	r.wantBatches("{k}b", "{l}a")
	r.endBatch(delivery.Outcome{Status: 200})
	r.wantBatches("{k}a", "{l}a")
}

// TestBatchLeavesTheRest: a call takes no more timers out of its queue than the topic's limit
// grants.
func TestBatchLeavesTheRest(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 1000}, func(p *timer.Policy) { p.Rate = rate(0.01, 1) })
	for i := range 500 {
		r.add(fmt.Sprint(i), -int64(i*7919%500))
	}
	r.Run()
	fresh := &r.Scheduler.topics.byID[1].dests[0].fresh
	var want heap[entry]
	for e := range fresh.all() {
		want.items.Push(e)
	}
	want.pop()
	r.entry()
	if !slices.Equal(slices.Collect(fresh.all()), slices.Collect(want.all())) {
		t.Error("others than the one that goes left the queue")
	}
}

// TestBatchDropsSomeAtATime: of a call's queue with many outdated entries some are dropped at once,
// and those behind them are set aside. Timers that are gone do not fill a call.
func TestBatchDropsSomeAtATime(t *testing.T) {
	for name, waitMs := range map[string]int64{"goes": 0, "waits": 60_000} {
		t.Run(name, func(t *testing.T) {
			r := newBatchReplica(t, timer.Batch{Max: 1000, WaitMs: waitMs})
			const gone = 4 * PopBudget
			r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Millisecond}
			first, last := r.add("first", -900), r.add("last", -100)
			for i := range gone {
				r.add(fmt.Sprint(i), -800)
			}
			r.turn()
			for i := range gone {
				r.command(timer.Command{Kind: timer.Cancel, ID: fmt.Sprint(i)})
			}
			delete(r.verdicts, "http://a")
			r.now.Mono += time.Millisecond
			r.Run()
			q := r.Scheduler.topics.byID[1]
			r.entry(func(b *table.Batch) {
				r.wakes, r.spent = false, 0
				r.proposer.leaseOne(b, q)
				aside := 0
				for _, p := range r.compaction.queues {
					aside += p.len()
				}
				if q.queued() != 0 || aside < gone-PopBudget || r.spent > PopBudget || !r.wakes {
					t.Errorf("%d entries are queued, %d set aside in %d steps, wakes %t", q.queued(), aside, r.spent, r.wakes)
				}
			})
			if waitMs == 0 {
				r.turn()
				r.wantBatches("first", "last")
				return
			}
			r.turn()
			r.wantBatches()
			if r.permits != 0 {
				t.Errorf("%d permits are in use", r.permits)
			}
			r.waits(first, timer.WaitBatch)
			r.waits(last, timer.WaitBatch)
			r.pass(time.Minute)
			r.wantBatches("first last")
		})
	}
}

// TestBatchInATurn: a call whose leases end the time of a turn is the last one of it.
func TestBatchInATurn(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100})
	for i := range 300 {
		r.add(fmt.Sprint(i), 0)
	}
	r.Run()
	r.spent, r.budget = 0, 50*leaseSteps
	r.entry()
	if n := len(r.Leases.byTimer); n != 100 {
		t.Errorf("%d leases in a turn, want those of one call", n)
	}
	r.budget = 0
	r.turn()
	if len(r.batches) != 3 {
		t.Errorf("%d calls", len(r.batches))
	}
}

// TestCallsOfManyLeaveOthersTheirTurns: while a topic has calls of a thousand to make, another
// one's timers do not go one by one between them.
func TestCallsOfManyLeaveOthersTheirTurns(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 1000})
	r.topic(2, func(*timer.Policy) {})
	for i := range 20 {
		r.add(fmt.Sprintf("plain-%d", i), 0, func(c *timer.Command) { c.Topic = 2 })
	}
	for i := range 8000 {
		r.add(fmt.Sprint(i), 0)
	}
	for r.step(); len(r.calls) < 20; r.step() {
	}
	if len(r.batches) > 3 {
		t.Errorf("20 calls waited for %d of many", len(r.batches))
	}
	if r.turn(); len(r.batches) != 8 {
		t.Errorf("%d calls of many run, want 8", len(r.batches))
	}
}

// TestBatchGathersForAShutReceiver: timers whose call is not full wait for that, as a read and the
// counts say alike, also where the breaker of the receiver is open.
func TestBatchGathersForAShutReceiver(t *testing.T) {
	r := newBatchReplica(t, timer.Batch{Max: 100, WaitMs: 2000, ByKey: true})
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
	var all []timer.Handle
	for _, id := range []string{"{a}1", "{b}1", "{b}2"} {
		all = append(all, r.add(id, 0))
	}
	r.turn()
	for _, h := range all {
		r.waits(h, timer.WaitBatch)
	}
	r.counted("batch 3 ")
}
