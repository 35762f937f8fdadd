package sim

import (
	"maps"
	"slices"
	"time"

	"carillon/timer"
)

// Concurrency limits hold unless leaders do not know of each other (docs/operations.md, "Order,
// limits, quotas"). The checker decides that by the heartbeats that arrived, not by the nodes'
// conclusions. If a process has for partFor heard neither another process nor any process that
// hears it, it may use the other's share. That is right if every shard is led by a process that it
// does hear of, because a leader has counted all leases of its shards. Otherwise a process that
// leads a shard is blind: it does not count leases of the other, or consumers' leases of a shard
// without a leader. The same holds for leases from an earlier process of a node, until the current
// one has run for partFor and reports no uncertainty.
const (
	partFor = 5 * time.Second
	// a process that was paused for long has heard nobody, which says nothing about the others
	longLook  = 500 * time.Millisecond
	hearsFor  = 1400 * time.Millisecond
	beatEvery = 250 * time.Millisecond
)

// visibility is the knowledge that a process can have of another one.
type visibility struct {
	silence time.Duration // by the process's clock, while it ran
	said    time.Duration // when its last heartbeat arrived; 0: none has
	at      time.Duration // when that heartbeat was sent, in the world's time
	// sending time of its last heartbeat that anybody is known to have heard, in the world's time
	word    time.Duration
	age     time.Duration // age of its process, by that heartbeat
	counted uint32        // all leases from before the process with this start number are counted
	passed  bool          // since its silence all its shards have come to others
	starts  uint32
	leads   []timer.ShardID // by its last heartbeat
	knows   []timer.ShardID // … the shards led by nodes that it hears itself
}

// view is the content of a heartbeat.
type view struct {
	starts uint32
	age    time.Duration
	leads  []timer.ShardID
	knows  []timer.ShardID
	hears  []heardOf
	at     time.Duration // when it was sent, in the world's time
}

// heardOf is when the last heartbeat heard from a node was sent. Arrival times would not do: a
// heartbeat in a buffer says nothing of the time since it was sent.
type heardOf struct {
	node uint64
	word time.Duration
}

// lookOnce is the view for a heartbeat, which goes to several nodes at once.
func (n *node) lookOnce() view {
	if n.view.at != n.w.now || n.view.starts != n.starts {
		n.view = n.look(n.ledHere())
	}
	return n.view
}

// ledHere are the timer shards that the process leads.
func (n *node) ledHere() (ids []timer.ShardID) {
	for id := timer.ShardID(1); int(id) <= n.w.shards(); id++ {
		if p := n.host.Progress(id); p.Leads && p.Serves {
			ids = append(ids, id)
		}
	}
	return ids
}

// look updates the process's visibility of all others, at each heartbeat.
func (n *node) look(mine []timer.ShardID) view {
	now := n.clock.Mono()
	passed := min(now-n.looked, longLook)
	if n.looked == 0 {
		passed = 0
	}
	n.looked = now
	n.age += passed
	v := view{starts: n.starts, age: n.age, leads: mine, at: n.w.now}
	led := slices.Clone(mine)
	members := n.others()
	for _, id := range members {
		n.visibilityOf(id)
	}
	known := slices.Sorted(maps.Keys(n.sights))
	for _, id := range known {
		s := n.sights[id]
		if s.silence += passed; s.said == 0 {
			continue
		}
		if s.silence < partFor {
			led = append(append(led, s.leads...), s.knows...)
		}
		if now-s.said < hearsFor {
			v.hears = append(v.hears, heardOf{id, s.word})
			v.knows = append(v.knows, s.leads...)
		}
	}
	all := true
	for id := timer.ShardID(1); int(id) <= n.w.shards(); id++ {
		all = all && slices.Contains(led, id)
	}
	for _, id := range known {
		s := n.sights[id]
		quiet := s.silence >= partFor
		switch {
		case quiet && !slices.Contains(members, id):
			delete(n.sights, id)
		case all:
			s.counted, s.passed = s.starts, quiet
		case len(mine) == 0: // it leases nothing
		case quiet && !s.passed, s.starts > 1 && s.starts != s.counted && s.age >= partFor:
			n.w.checker.limits.blindUntil = n.w.now + beatEvery
		}
	}
	return v
}

// others are the other nodes that this one knows.
func (n *node) others() (ids []uint64) {
	for _, m := range n.state.Nodes() {
		if m.ID != n.id {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (n *node) visibilityOf(id uint64) *visibility {
	if n.sights[id] == nil {
		n.sights[id] = &visibility{}
	}
	return n.sights[id]
}

// see handles a heartbeat.
func (n *node) see(from uint64, v view) {
	s := n.visibilityOf(from)
	if s.said != 0 && v.at < s.at {
		return // a newer one has arrived before it
	}
	s.at = v.at
	if n.w.now-v.at > beatEvery {
		n.w.checker.limits.lateUntil = n.w.now + partFor
	}
	s.silence, s.said, s.age, s.starts, s.leads, s.knows, s.passed = 0, n.clock.Mono(), v.age, v.starts, v.leads, v.knows, false
	s.word = max(s.word, v.at)
	for _, h := range v.hears {
		if h.node == n.id {
			continue
		}
		if o := n.visibilityOf(h.node); h.word > o.word {
			o.word, o.silence, o.passed = h.word, 0, false
		}
	}
}
