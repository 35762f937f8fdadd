package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

func serial(p *timer.Policy) { p.Serial = true }

// TestOneOfAKeyAtATime: the timers of one key run in order, those of another key at the same time.
func TestOneOfAKeyAtATime(t *testing.T) {
	r := newReplica(t)
	r.topic(1, serial)
	a := r.add("{k}a", -2)
	b := r.add("{k}b", -1)
	c := r.add("{l}c", 0)
	r.turn()
	r.want("{k}a{l}c")
	r.waits(b, timer.WaitKey)
	if got := r.View.Standing(b); got.On != "{k}a" {
		t.Errorf("it waits for %q", got.On)
	}
	r.end(delivery.Outcome{Err: "timeout"})
	r.state(a, timer.Scheduled)
	r.want("{l}c") // a blocks the key through its backoff
	if got := r.View.Standing(b); got.For != timer.WaitKey || got.On != "{k}a" {
		t.Errorf("it waits for %v, %q", got.For, got.On)
	}
	r.end(delivery.Outcome{Status: 200})
	r.state(c, timer.Done)
	r.pass(time.Second)
	r.want("{k}a")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}b")
	r.end(delivery.Outcome{Status: 200})
	if i := r.View.Inspect(); i.KeyRefs != 0 || i.Topics[1].Keys != 0 || i.Topics[1].InLine != 0 {
		t.Errorf("it keeps %+v", i)
	}
}

// TestQueuedTimersWaitAgainOnceTheClockIsSetBack: what waits in a queue when the clock is set back
// is not due any more. It goes back to the wheel. Leased, it would hold its key and its receiver's
// place, and be given back; then the next of its key would have been leased instead when the clock
// is set right, and go first. Found by the simulator, seed 1000144.
func TestQueuedTimersWaitAgainOnceTheClockIsSetBack(t *testing.T) {
	const far = 60 * 60 * 1000
	r := newReplica(t)
	r.topic(1, serial)
	r.add("{k}a", -3)
	b, c := r.add("{k}b", -2), r.add("{k}c", -1)
	r.turn()
	r.want("{k}a")
	r.now.WallMs -= far
	r.apply(func(b *table.Batch) { b.SetClock() })
	r.end(delivery.Outcome{Status: 200})
	for range 5 {
		r.turn()
	}
	for _, h := range []timer.Handle{b, c} {
		if d := r.state(h, timer.Scheduled); d.Rev != 1 {
			t.Errorf("it was leased and given back: %+v", d)
		}
	}
	if r.permits != 0 || r.View.Inspect().Topics[1].InLine != 0 {
		t.Errorf("%d permits are held, %+v", r.permits, r.View.Inspect())
	}
	r.now.WallMs += far
	for _, id := range []string{"{k}b", "{k}c"} {
		r.pass(time.Second)
		r.want(id)
		r.endAll()
	}
}

// TestOrderWhileTheClockIsSetBack: the entry that sets a clock back empties the wheel, and the ones
// after it put the timers back. None of a key starts meanwhile. Found by the simulator.
func TestOrderWhileTheClockIsSetBack(t *testing.T) {
	const far = 20 * 60 * 1000
	r := newReplica(t)
	r.topic(1, serial)
	for i := range 100 {
		r.add(fmt.Sprint("before", i), -1)
	}
	r.add("{k}first", -2)
	for i := range 100 {
		r.add(fmt.Sprint("after", i), -1)
	}
	second := r.add("{k}second", -1)
	r.now.WallMs += far
	r.apply(func(b *table.Batch) { b.Tick() })
	r.budget = 1
	r.Run() // the first and last of them leave the wheel, {k}first does not
	r.now.WallMs -= far
	r.apply(func(b *table.Batch) { b.SetClock() })
	r.budget = 0
	r.Run()
	r.entry()
	r.state(second, timer.Scheduled)
	r.pass(time.Second)
	r.endAll()
	r.pass(time.Second)
	r.endAll()
	if n := r.table.Counts(1).Done; n != 202 {
		t.Errorf("%d are done", n)
	}
}

// TestEarlierTimerOfAKey: a lease that is ahead of its due time gives way to an earlier timer.
func TestEarlierTimerOfAKey(t *testing.T) {
	r := newReplica(t)
	r.topic(1, serial)
	late := r.add("{k}late", 18)
	r.turn()
	r.state(late, timer.Leased)
	r.add("{k}early", 5)
	r.turn()
	r.state(late, timer.Scheduled)
	r.pass(18 * time.Millisecond)
	r.want("{k}early")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}late")
}

// TestHeadIsCancelled: the next of the key goes when the head, waiting or blocking, is cancelled.
func TestHeadIsCancelled(t *testing.T) {
	r := newReplica(t)
	r.topic(1, serial)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	r.add("{k}a", -3)
	r.add("{k}b", -2)
	r.add("{k}c", -1)
	r.turn()
	r.command(timer.Command{Kind: timer.Cancel, ID: "{k}a"})
	delete(r.verdicts, "http://a")
	r.pass(time.Second)
	r.want("{k}b")
	r.end(delivery.Outcome{Err: "timeout"})
	r.want("")
	r.command(timer.Command{Kind: timer.Cancel, ID: "{k}b"})
	r.turn()
	r.want("{k}c")
}

// TestKeysOfANewLeader: a leader finds the timers that former leaders left leased or in backoff
// before it leases any of their keys.
func TestKeysOfANewLeader(t *testing.T) {
	r := newReplica(t)
	r.topic(1, serial)
	r.add("{k}a", -2)
	b := r.add("{k}b", -1)
	r.turn()
	r.end(delivery.Outcome{Err: "timeout"})
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.want("")
	r.waits(b, timer.WaitKey)
	r.pass(time.Second)
	r.want("{k}a")
	r.End() // while the call runs
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.want("{k}a")
	if got := r.View.Standing(b); got.On != "{k}a" {
		t.Errorf("it waits for %q", got.On)
	}
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}b")
}

// TestTopicBecomesSerial: the leases and backoffs of before count; when it is serial no more, all
// timers go.
func TestTopicBecomesSerial(t *testing.T) {
	r := newReplica(t)
	r.add("{k}a", 0)
	r.add("{k}b", 0)
	r.turn()
	c := r.add("{k}c", 0)
	r.topic(1, serial)
	r.turn()
	r.want("{k}a{k}b")
	r.end(delivery.Outcome{Err: "timeout"})
	r.end(delivery.Outcome{Err: "timeout"})
	r.turn()
	r.waits(c, timer.WaitKey)
	r.pass(time.Second)
	r.want("{k}a")
	r.topic(1, func(*timer.Policy) {})
	r.turn()
	if len(r.calls) != 3 {
		t.Errorf("calls of %q", r.called())
	}
}

// TestRearmedTimersAreInLineOnce: timers that wait for their key are in its line once, however often
// all timers are rearmed, also while queues are compacted; and none is lost.
func TestRearmedTimersAreInLineOnce(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"per key": perKey(timer.PerKey{Concurrency: 2}), "fair": perKey(timer.PerKey{Fair: true}), "serial": serial,
	} {
		t.Run(name, func(t *testing.T) {
			const timers = PopBudget + 100
			r := newReplica(t)
			r.topic(1, set)
			r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Minute}
			for i := range timers {
				r.add(fmt.Sprintf("{k}%d", i), -5)
			}
			r.turn()
			q := r.Scheduler.topics.byID[1]
			for n := range 5 {
				r.RearmAll()
				if r.turn(); n == 2 {
					r.Scheduler.Keys.deferCompaction(&q.keys[r.table.KeyHash(1)].first)
				}
				r.turn()
			}
			if k := q.keys[r.table.KeyHash(1)]; q.inLine+int(k.heads) != timers {
				t.Errorf("%d timers wait, and %d go first, of %d", q.inLine, k.heads, timers)
			}
		})
	}
}

// TestForcedDropOfKeys: keys whose timers were dropped by force are dropped.
func TestForcedDropOfKeys(t *testing.T) {
	for name, others := range map[string]int{"few slots": 0, "many slots": 50} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, serial)
			r.topic(2, func(*timer.Policy) {})
			r.add("{k}a", 0)
			for i := range others {
				r.add(string(rune('A'+i)), 1000, func(c *timer.Command) { c.Topic = 2 })
			}
			r.turn()
			r.end(delivery.Outcome{Err: "timeout"})
			if n := r.View.Inspect().KeyRefs; n != 1 {
				t.Fatalf("%d keys", n)
			}
			r.command(timer.Command{Kind: timer.CloseTopic, Force: true})
			r.Keys.ReviewDropped(0, 0)
			if i := r.View.Inspect(); i.KeyRefs != 0 || i.Topics[1].Keys != 0 {
				t.Errorf("it keeps %+v", i)
			}
		})
	}
}

// TestOutdatedEntriesOfKeys: cancelled timers leave the queues of their keys.
func TestOutdatedEntriesOfKeys(t *testing.T) {
	for name, keys := range map[string]int{"long queue": 1, "many queues": 600} {
		t.Run(name, func(t *testing.T) { checkOutdatedGo(t, keys, serial) })
	}
}

// checkOutdatedGo cancels all but one timer of each key while none may go, and sweeps.
func checkOutdatedGo(t *testing.T, keys int, set func(*timer.Policy)) {
	r := newReplica(t)
	r.topic(1, set)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
	id := func(i int) string { return fmt.Sprintf("{%d}%d", i%keys, i) }
	for i := range 1800 {
		r.add(id(i), -1)
	}
	r.turn()
	for i := keys; i < 1800; i++ {
		r.command(timer.Command{Kind: timer.Cancel, ID: id(i)})
	}
	for range 30 {
		r.Sweep()
		r.turn()
	}
	if n := r.View.Inspect().Topics[1].InLine; n > 2*keys+512 {
		t.Errorf("%d entries for %d timers", n, keys)
	}
}

// TestPruneIsInOrder: two runs of the same prune set the same lane of a key aside.
func TestPruneIsInOrder(t *testing.T) {
	seen := map[table.Target]bool{}
	for range 12 {
		r := newReplica(t)
		r.topic(1, perKey(timer.PerKey{Concurrency: 1}))
		r.add("{k}first", -9)
		r.add("{k}second", -8)
		r.turn()
		for i := range 6 * (PopBudget + 2) {
			r.add(fmt.Sprint("{k}", i), -1, url(fmt.Sprint("http://", i%6)))
		}
		r.turn()
		r.Scheduler.Keys.prune(r.Scheduler.topics.byID[1])
		if len(r.compaction.queues) != 1 {
			t.Fatalf("%d lanes are set aside", len(r.compaction.queues))
		}
		seen[r.table.Due(r.compaction.queues[0].top().handle).Target] = true
	}
	if len(seen) != 1 {
		t.Fatalf("%d lanes were first", len(seen))
	}
}
