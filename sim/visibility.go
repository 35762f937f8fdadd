package sim

import (
	"maps"
	"slices"
	"time"

	"carillon/timer"
)

// What is promised of limits at once is promised unless nodes that lead do not know of each other (docs/operations.md, "Order, limits,
// quotas"). Whether that is so is seen here by which beats came through, not by what nodes made of them. A process that for partFor has
// neither heard of another nor of anybody who hears it takes the other's part for free. It is right to do so if everything is led by somebody
// it does hear of: who leads has counted all leases of its shards. Else, if it leads something itself, it is blind: what the other leads, or
// what consumers have of a shard that is nobody's, is not counted. The same goes for what consumers got from a process before the one that
// has now run for partFor: so long it says that it is unsure of that.
const (
	partFor   = 5 * time.Second
	longLook  = 500 * time.Millisecond // who was stopped for long has heard nobody, and that says nothing of others
	hearsFor  = 1400 * time.Millisecond
	beatEvery = 250 * time.Millisecond
)

// visibility is what a process can know of one other.
type visibility struct {
	silence time.Duration // by the process's clock, while it ran
	said    time.Duration // when its last beat came; 0: none did
	at      time.Duration // when that was sent; the world's time
	word    time.Duration // when the last beat of it was sent that the process knows anybody to have heard; the world's time
	age     time.Duration // of its process, by that beat
	counted uint32        // of its processes before the one with so many starts nothing is left that nobody counts
	passed  bool          // since it is silent, all that it led has come to others
	starts  uint32
	leads   []timer.ShardID // by its last beat
	knows   []timer.ShardID // … what others lead that it hears of itself
}

// view is what a beat says of who is there.
type view struct {
	starts uint32
	age    time.Duration
	leads  []timer.ShardID
	knows  []timer.ShardID
	hears  []heardOf
	at     time.Duration // when it was sent; the world's time
}

// heardOf is the last word that was heard of a node: one that lay in a buffer says nothing of the time since it was sent.
type heardOf struct {
	node uint64
	word time.Duration
}

// lookOnce is the look of a heartbeat, which goes to several others at once.
func (n *node) lookOnce() view {
	if n.view.at != n.w.now || n.view.starts != n.starts {
		n.view = n.look(n.ledHere())
	}
	return n.view
}

// ledHere are the timer shards that the process leads.
func (n *node) ledHere() (ids []timer.ShardID) {
	for id := timer.ShardID(1); int(id) <= n.w.swarm.shards; id++ {
		if p := n.host.Progress(id); p.Leads && p.Serves {
			ids = append(ids, id)
		}
	}
	return ids
}

// look is a process's look around, with each heartbeat.
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
	for id := timer.ShardID(1); int(id) <= n.w.swarm.shards; id++ {
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

// others are the nodes that this one knows of.
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

// see takes a beat.
func (n *node) see(from uint64, v view) {
	s := n.visibilityOf(from)
	if s.said != 0 && v.at < s.at {
		return // it was overtaken
	}
	s.at = v.at
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
