package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// TestSweepInATurn: a sweep looks at as many topics and keys as the turn has time for, and the next
// turns finish it.
func TestSweepInATurn(t *testing.T) {
	r := newReplica(t)
	const topics, steps = 1000, 64
	for id := timer.TopicID(2); id < topics; id++ {
		r.Scheduler.topics.queue(id)
	}
	r.budget = steps
	r.Sweep()
	if n := len(r.Scheduler.topics.list); n < topics-steps-2 || n >= topics-2 || !r.wakes {
		t.Errorf("%d topics are left, wakes %t", n, r.wakes)
	}
	r.turn()
	if n := len(r.Scheduler.topics.list); n > 1 {
		t.Errorf("%d topics are left in the end", n)
	}
}

// TestSweepOfKeysInATurn is TestSweepInATurn where the buckets of the topics' keys have filled.
func TestSweepOfKeysInATurn(t *testing.T) {
	r := newReplica(t)
	const topics, keys = 20, 100
	for id := timer.TopicID(1); id <= topics; id++ {
		r.topic(id, perKey(timer.PerKey{Rate: rate(1, 1)}))
		q := r.Scheduler.topics.queue(id)
		for k := range keys {
			h := r.add(fmt.Sprintf("{%d}", k), 3_600_000, func(c *timer.Command) { c.Topic = id })
			r.Scheduler.Keys.key(q, h).bucket.at = r.now.Mono // it was used
		}
	}
	r.now.Mono += time.Hour
	left := func() (n int) {
		for _, q := range r.Scheduler.topics.list {
			n += len(q.keys)
		}
		return n
	}
	before := left()
	r.spent, r.budget = 0, 2*keys/keysInStep
	r.Sweep()
	if n := before - left(); n < keys || n > 3*keys || !r.wakes {
		t.Errorf("%d of %d keys are dropped, wakes %t", n, before, r.wakes)
	}
	r.turn()
	if n := left(); n > 0 {
		t.Errorf("%d keys are left in the end", n)
	}
}

// TestPruneInATurn is TestSweepInATurn for the keys of a topic.
func TestPruneInATurn(t *testing.T) {
	r := newReplica(t)
	r.topic(1, serial)
	const keys = 1000
	for i := range 2 * keys {
		r.add(fmt.Sprintf("{%d}%d", i%keys, i), 0)
	}
	r.leaving = true // nothing is leased
	r.turn()
	for i := keys; i < 2*keys; i++ {
		r.command(timer.Command{Kind: timer.Cancel, ID: fmt.Sprintf("{%d}%d", i%keys, i)})
	}
	q := r.Scheduler.topics.byID[1]
	left := q.inLine
	r.spent, r.budget = 0, 100
	r.Scheduler.Keys.prune(q)
	if n := left - q.inLine; n < 50 || n > 100 {
		t.Errorf("%d of %d outdated entries have left", n, left)
	}
}

// TestWalksInATurn: the walks over the table of a new leader end with the time of a turn, and the
// next turns finish them.
func TestWalksInATurn(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Concurrency: 1}))
	for i := range 1000 {
		r.add(fmt.Sprint(i), 3_600_000)
	}
	r.turn()
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.spent, r.budget = 0, 1
	r.Run()
	if a, b, c := r.due.rearmFrom, r.inherited.from, r.Scheduler.Keys.scanFrom; a != scanStep || b != scanStep || c != scanStep || !r.wakes {
		t.Errorf("the walks are at %d, %d and %d", a, b, c)
	}
	r.turn()
	if r.due.rearming || r.inherited.scanning || r.Scheduler.Keys.scanning {
		t.Error("the walks do not end")
	}
}
