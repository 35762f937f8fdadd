package scheduler

import (
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// pause pauses a topic, or resumes it.
func (r *replica) pause(paused bool) {
	p := *r.topics[1]
	p.Paused = paused
	r.topics[1] = &p
	r.Refresh(1)
}

func TestPause(t *testing.T) {
	r := newReplica(t)
	r.pause(true)
	a := r.add("a", 0)
	r.turn()
	r.want("")
	r.waits(a, timer.WaitPaused)
	var sums [1]timer.Counts
	r.now.WallMs += 3000
	if r.View.Count([]timer.TopicID{1}, sums[:]); sums[0].Waiting[timer.WaitPaused] != 1 || sums[0].OldestOverdueMs != 3000 {
		t.Errorf("counts: %+v", sums[0])
	}
	r.pause(false)
	r.turn()
	r.want("a")
	r.end(delivery.Outcome{Status: 200})
	if len(r.lateness) != 1 || r.lateness[0] != 3000 {
		t.Errorf("lateness: %v", r.lateness)
	}
}

// TestPauseAheadOfTheCall: a lease whose topic is paused before its call starts is returned.
func TestPauseAheadOfTheCall(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 15)
	r.turn()
	r.state(a, timer.Leased)
	r.pause(true)
	r.pass(15 * time.Millisecond)
	r.want("")
	r.state(a, timer.Scheduled)
}

// TestChangeLooksAtItsTopicAlone: a change of one topic takes no time by the others that wait.
func TestChangeLooksAtItsTopicAlone(t *testing.T) {
	r := newReplica(t)
	for id := timer.TopicID(1); id <= 500; id++ {
		r.topic(id, func(p *timer.Policy) { p.Callback.URL = "" })
		r.add("a", 0, func(c *timer.Command) { c.Topic = id })
	}
	r.pass(2 * time.Second)
	steps := func() int {
		r.spent = 0
		r.Run()
		return r.spent
	}
	idle := steps()
	r.topic(7, func(*timer.Policy) {})
	if n := steps() - idle; n > 100 {
		t.Errorf("%d steps for one topic", n)
	}
	r.turn()
	r.want("a")
	if r.topic(501, func(*timer.Policy) {}); r.Refresh(501) {
		t.Error("there is something to do for a topic that has nothing")
	}
	if !r.Refresh() {
		t.Error("nothing is looked at though any topic may have changed")
	}
	if n := steps() - idle; n < 499 {
		t.Errorf("%d steps for all topics", n)
	}
}

// TestReceiverChanges: timers that wait move to the topic's new receiver.
func TestReceiverChanges(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
	for i := range 2000 {
		r.add(string(rune(0x1000+i)), -5000)
	}
	r.turn()
	r.want("")
	r.topic(1, func(p *timer.Policy) { p.Callback.URL = "http://b" })
	r.Run()
	if n := r.View.Inspect().Topics[1].Queued; n == 0 || n == 2000 {
		t.Errorf("%d timers are moved in one turn", n)
	}
	r.turn()
	if len(r.calls) != 2000 {
		t.Errorf("%d calls", len(r.calls))
	}
}

// TestReceiverChangesAheadOfTheCall: a lease whose topic gets another receiver before its call
// starts is returned, and taken anew for that one. The permit was for the first.
func TestReceiverChangesAheadOfTheCall(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 15)
	r.turn()
	r.state(a, timer.Leased)
	r.topic(1, func(p *timer.Policy) { p.Callback.URL = "http://b" })
	r.pass(15 * time.Millisecond)
	r.want("a")
	if d := r.state(a, timer.Leased); d.Attempts != 1 || r.permits != 1 {
		t.Errorf("attempt %d runs, with %d permits", d.Attempts, r.permits)
	}
}

// TestReceiverChangesTwice: the policy changes again while the timers are still being queued by the
// one before. Those that were are queued once more, and none is lost.
func TestReceiverChangesTwice(t *testing.T) {
	for _, set := range []func(*timer.Policy){func(*timer.Policy) {}, serial, pulled} {
		r := newReplica(t)
		r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
		change := func(url string) {
			r.topic(1, func(p *timer.Policy) { set(p); p.Callback.URL = url })
		}
		change("http://a")
		r.leaving = true // nothing is leased
		for i := range 2000 {
			r.add(string(rune(0x1000+i)), -5000)
		}
		r.turn()
		change("http://b")
		r.Run()
		change("http://c")
		r.turn()
		if n := r.View.Inspect().Topics[1].Queued; n != 2000 {
			t.Errorf("%d of 2000 timers are queued", n)
		}
	}
}

// TestOutdatedEntries: cancelled timers leave the queues, and topics without timers are dropped.
func TestOutdatedEntries(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
	id := func(i int) string { return string(rune(0x1000 + i)) }
	for i := range 3000 {
		r.add(id(i), -1)
	}
	r.turn()
	for i := 1; i < 3000; i++ {
		r.command(timer.Command{Kind: timer.Cancel, ID: id(i)})
	}
	r.Sweep()
	r.turn()
	if n := r.View.Inspect().Topics[1].Queued; n != 1 {
		t.Errorf("%d entries for one timer", n)
	}
	r.command(timer.Command{Kind: timer.Cancel, ID: id(0)})
	for range 5 {
		r.Sweep()
		r.turn()
	}
	if n := len(r.View.Inspect().Topics); n != 0 {
		t.Errorf("%d topics are kept", n)
	}
	delete(r.verdicts, "http://a")
	r.add("later", 0)
	r.turn()
	r.want("later")
}

// TestTopicIsKeptWhileACallRuns: its leases are found by it.
func TestTopicIsKeptWhileACallRuns(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(*timer.Policy) {})
	r.add("a", 0)
	r.turn()
	r.want("a")
	r.topic(1, func(p *timer.Policy) { p.Callback.URL = "http://b" })
	for range 5 {
		r.Sweep()
		r.turn()
		r.leasesOfTopics("while the call runs")
	}
	if n := r.Scheduler.topics.byID[1].leases.Len(); n != 1 {
		t.Errorf("the topic has %d leases", n)
	}
	r.end(delivery.Outcome{Status: 200})
	for range 5 {
		r.Sweep()
		r.turn()
	}
	if n := len(r.View.Inspect().Topics); n != 0 {
		t.Errorf("%d topics are kept", n)
	}
}

// TestSerialBehindAProposedLease: a topic becomes serial while a lease is on its way. It counts for
// its key, though the walk over the table has not found it (I21).
func TestSerialBehindAProposedLease(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(*timer.Policy) {})
	r.add("{k}a", 0)
	r.Run()
	var b table.Batch
	b.Reset(r.now.WallMs, 1, 1)
	r.items = nil
	r.Lease(&b)
	items := r.items
	if len(items) != 1 {
		t.Fatalf("%d leases are proposed", len(items))
	}
	r.topic(1, serial)
	later := r.add("{k}b", 0)
	for range 5 {
		r.Run()
	}
	if r.entry(); r.table.Due(later).State == timer.Leased {
		t.Error("another timer of the key is leased before it")
	}
	results, err := r.table.Apply(b.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	items[0](&results[0], true)
	r.turn()
	r.want("{k}a")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}b")
}

// TestOutdatedLaterTimers: timers that wait beyond the look-ahead leave their queue when cancelled.
func TestOutdatedLaterTimers(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	id := func(i int) string { return string(rune(0x1000 + i)) }
	for i := range 1500 {
		r.add(id(i), 15)
	}
	r.Run()
	r.Run()
	if n := r.due.exact.len(); n < 1000 {
		t.Fatalf("%d timers wait for their instant", n)
	}
	for i := 1; i < 1500; i++ {
		r.command(timer.Command{Kind: timer.Cancel, ID: id(i)})
	}
	r.Sweep()
	r.turn()
	if n := r.due.exact.len() + r.View.Inspect().Compacting; n != 1 {
		t.Errorf("%d entries for one timer", n)
	}
	r.pass(15 * time.Millisecond)
	if got := r.pull(1, 10); len(got) != 1 {
		t.Errorf("pulled %v", got)
	}
}

// TestTurnsOfTopics: tenants have their turns, and in each its topics.
func TestTurnsOfTopics(t *testing.T) {
	var all turns
	all.tenants = map[string]*tenantTurns{}
	topics := map[timer.TopicID]string{1: "a", 2: "a", 3: "b"}
	queues := map[timer.TopicID]*topicQueue{}
	for id := timer.TopicID(1); id <= 3; id++ {
		q := &topicQueue{id: id}
		queues[id] = q
		all.join(q, topics[id])
	}
	count := map[timer.TopicID]int{}
	for range 8 {
		q := all.next()
		all.took(q, 1)
		count[q.id]++
	}
	if count[1] != 2 || count[2] != 2 || count[3] != 4 {
		t.Errorf("turns: %v", count)
	}
	all.leave(queues[3])
	all.leave(queues[3])
	all.leave(queues[1])
	if q := all.next(); q != queues[2] {
		t.Errorf("next is topic %d", q.id)
	}
	if all.leave(queues[2]); all.next() != nil {
		t.Error("a tenant without topics has a turn")
	}
	for _, q := range queues {
		all.forget(q)
		all.forget(q)
	}
	if len(all.tenants) != 0 {
		t.Errorf("%d tenants without topics are kept", len(all.tenants))
	}
}

// TestTurnsOfCallsOfMany: a topic that has leased many timers in a turn waits until the others have
// leased as many, of its tenant and of others; also if it was gone for a while. Nobody waits for
// those that have nothing.
func TestTurnsOfCallsOfMany(t *testing.T) {
	for name, tenants := range map[string][2]string{"one tenant": {"a", "a"}, "two": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			all := turns{tenants: map[string]*tenantTurns{}}
			many, plain := &topicQueue{id: 1}, &topicQueue{id: 2}
			all.join(many, tenants[0])
			all.join(plain, tenants[1])
			leased := map[*topicQueue]int{}
			for n := range 3030 {
				q := all.next()
				leases := 1
				if q == many {
					leases = 1000
				}
				if q == many && n%2 == 0 {
					all.leave(q)
				}
				all.took(q, leases)
				all.join(q, q.tenant.name)
				leased[q] += leases
			}
			if got := leased[many]; got < 3000 || got > 4000 {
				t.Errorf("a topic with calls of 1,000 leased %d, and the other %d", got, leased[plain])
			}
			all.leave(plain)
			for range 3 {
				if q := all.next(); q != many {
					t.Fatalf("next is topic %d", q.id)
				}
				all.took(many, 1000)
			}
			all.join(plain, tenants[1])
			if q := all.next(); q != plain {
				t.Error("one that comes back waits for a call of many")
			}
		})
	}
}
