package member

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// The number of timer shards grows while a cluster runs. A node learns of it from its copy of the
// meta group's state, stores it in its identity, and only then lets its host grow: its log never
// has records of a group that its next start would not know.

// growRetry is the pause after the number could not be stored.
const growRetry = time.Second

// shardCount is the number of timer shards with which this node counts.
type shardCount struct {
	ring.Shards
	steady bool // the host counts with it, too
}

// shardCounter has the present shardCount.
type shardCounter struct{ now atomic.Pointer[shardCount] }

// begin counts as the identity does. Where the number has grown once, the host has to know first
// what is being divided.
func (c *shardCounter) begin(id *Identity) {
	first := cmp.Or(id.FirstShards, id.Shards)
	c.now.Store(&shardCount{Shards: ring.Shards{Now: id.Shards, First: first, Parents: id.Shards}, steady: first == id.Shards})
}

// Shards is the number of timer shards, and the one that the cluster was founded with.
func (c *shardCounter) Shards() (now, first int) {
	n := c.now.Load()
	return n.Now, n.First
}

// Steady reports whether the host, and this node's copy of the state, count with that number too.
// Otherwise what is read of a shard may be whole or half.
func (l *local) Steady() bool {
	n := l.now.Load()
	return n.steady && n.Now == l.host.Shards() && n.Now >= l.State.Shards().Now
}

// followShards lets this node count with as many shards as its copy of the state has; false: it
// does not yet, and tries again.
func (m *Member) followShards(ctx context.Context) bool {
	want := m.State.Shards()
	have := m.now.Load()
	if want.Now == 0 || want == have.Shards && have.steady {
		return true
	}
	if want.Now < m.Identity().Shards {
		return true // after a start its copy can be older than what it has stored
	}
	if id := m.Identity(); id.Shards != want.Now {
		err := m.Change(func(id *Identity) { id.Shards, id.FirstShards = want.Now, want.First })
		if err != nil {
			m.log.Error("the new number of shards could not be stored; retrying", "shards", want.Now, "error", err)
			m.tasks.Go(func() {
				if m.tasks.Sleep(ctx, growRetry) {
					m.look()
				}
			})
			return false
		}
		m.log.Info("the number of shards doubles: one after the other gives half of its timers to a new one", "shards", want.Now, "before", id.Shards)
	}
	m.now.Store(&shardCount{Shards: have.Shards})
	m.host.Grow(want.Now, want.Parents)
	m.now.Store(&shardCount{Shards: want, steady: true})
	if have.Parents < have.Now && want.Parents == want.Now {
		m.log.Info("all shards are divided; the new ones spread over the nodes", "shards", want.Now)
	}
	return true
}

// SetShards lets the number of shards grow to a multiple by 2, 4, 8, …
func (m *Member) SetShards(ctx context.Context, shards int) error {
	return m.order(ctx, ring.Command{Verb: ring.SetShards, Shards: shards})
}

// holder is the shard that has the timers of a shard: itself, or the one that it is yet to be
// divided from.
func (l *local) holder(id timer.ShardID) timer.ShardID {
	if from := l.State.UndividedFrom(id); from != 0 {
		return from
	}
	return id
}

func (m *Member) SetReplicas(ctx context.Context, replicas int) error {
	return m.order(ctx, ring.Command{Verb: ring.SetReplicas, Replicas: replicas})
}
