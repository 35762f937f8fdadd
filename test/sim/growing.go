package sim

import (
	"cmp"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// One run in eight doubles the number of its shards, at a moment of the first phase; half of those
// do it twice, at one request or at two. The product does all that: its meta group, controller,
// routing and hosts. Clients and judges name a timer by the shard that gave its number, which moves
// with it; where it is by now is holder.

// growing is the doubling of a run.
type growing struct {
	chance    chance
	on        bool
	doublings int
	atOnce    bool // all are asked for at once; else each when the one before seems to have ended
	born      int  // the last shard that had a leader
}

func (w *World) drawGrowing() {
	g := &w.growing
	g.chance = newChance(w.cfg.Seed, 67)
	g.on = g.chance.IntN(8) == 0 || w.cfg.Profile == grows || w.cfg.Profile == wide
	if !g.on {
		return
	}
	w.swarm.replicaFaults.overtake = 0 // its timers have a topic that there never was: it is awaited
	g.doublings = 1
	if again := newChance(w.cfg.Seed, 83); w.cfg.Profile != wide && again.IntN(2) == 0 {
		g.doublings, g.atOnce = 2, again.IntN(2) == 0
	}
}

// grows is the profile in which every run doubles.
const grows = "growing"

// most is how many shards there are in the end.
func (w *World) most() int { return w.swarm.shards << w.growing.doublings }

// grow begins the doubling at a drawn moment. A second one has to fit in, too.
func (w *World) grow() {
	if g := &w.growing; g.on {
		w.checker.times.founded, w.checker.times.most = w.swarm.shards, w.most()
		within := w.swarm.safety * 3 / 4
		if g.doublings > 1 {
			within = max(within/3, 2*time.Second)
		}
		w.after(g.chance.between(time.Second, within), w.askToGrow)
	}
}

// askToGrow asks a node, again and again, until there are as many shards as there are to be. What
// is asked for while shards double is refused.
func (w *World) askToGrow() {
	known := w.known()
	if known >= w.most() {
		return
	}
	if n := w.anyUpOf(w.growing.chance); n != nil && n.member != nil {
		to := 2 * known
		if w.growing.atOnce {
			to = w.most()
		}
		w.note(n, "grow", uint64(known), 0, "")
		n.tasks.Go(func() {
			_ = n.member.SetShards(n.tasks.ctx, to) // it is asked again
		})
	}
	w.after(w.growing.chance.between(500*time.Millisecond, 2*time.Second), w.askToGrow)
}

// anyUpOf draws a node with a running process.
func (w *World) anyUpOf(c chance) *node {
	var there []*node
	for _, n := range w.nodes {
		if n.host != nil && !n.paused && !n.gone {
			there = append(there, n)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[c.IntN(len(there))]
}

// known is the greatest number of shards of which a node knows.
func (w *World) known() int {
	most := w.swarm.shards
	for _, n := range w.nodes {
		if n.state != nil {
			most = max(most, n.state.Shards().Now)
		}
	}
	return most
}

// shards is up to which shard there is one by now.
func (w *World) shards() int { return max(w.swarm.shards, w.growing.born) }

// growOut waits until all shards are divided. While a new replica is to be filled on the node that
// stays down, its shard is not divided, nor are those after it (seed 1190116 of the growing ones).
func (w *World) growOut() {
	if !w.growing.on || w.passUntil(growLimit, w.divided) {
		return
	}
	if n := w.awaited(); n != nil {
		n.held = false
		n.start()
		if w.passUntil(growLimit, w.divided) {
			return
		}
	}
	w.violate("growth", "%s after the repair not all shards are divided: %s", growLimit, w.describe())
}

// awaited is the node that stays down, if a move to it is under way.
func (w *World) awaited() *node {
	m := w.metaLeader()
	if m == nil {
		return nil
	}
	for _, row := range m.state.Rows() {
		for _, r := range row.Replicas {
			if n := w.node(r.Node); !row.Settled && n != nil && n.held {
				return n
			}
		}
	}
	return nil
}

// growLimit is how soon a healed cluster has divided all its shards.
const growLimit = 2 * time.Minute

// divided reports whether all shards are divided, and have dropped what has left them.
func (w *World) divided() bool {
	for id := timer.ShardID(1); int(id) <= w.most(); id++ {
		n := w.leader(id)
		if n == nil {
			return false
		}
		if t := n.host.Table(id); t.DividedOf() != w.most() || t.Leaving() {
			return false
		}
	}
	return true
}

// holder is the shard that has a timer now.
func (w *World) holder(topic timer.TopicID, id string) timer.ShardID {
	return w.holderOf(&timer.Topic{ID: topic, Name: w.topics[topic-1]}, id)
}

func (w *World) holderOf(t *timer.Topic, id string) timer.ShardID {
	at := timer.ShardOf(t, id, w.swarm.shards)
	for of := 2 * w.swarm.shards; of <= w.most(); of *= 2 {
		if n := w.leader(at); n == nil || n.host.Table(at).DividedOf() < of {
			break
		}
		at = timer.ShardOf(t, id, of)
	}
	return at
}

// holderAt is the shard that has a call's timer, as the replicas of a node know.
func (n *node) holderAt(j *scheduler.Delivery) timer.ShardID {
	at := j.Shard
	for of := 2 * n.w.swarm.shards; of <= n.w.most() && j.Topic != nil; of *= 2 {
		if int(at) > of { // it came of a later doubling
			continue
		}
		if t := n.host.Table(at); t == nil || t.DividedOf() < of {
			break
		}
		at = timer.ShardOf(j.Topic, j.Job.ID, of)
	}
	return at
}

// keyOf names a timer by the shard that gave its number. shard is the one that was asked for it, in
// a cluster that does not grow.
func keyOf(shard timer.ShardID, t *timer.Timer) timerKey {
	return timerKey{cmp.Or(t.Origin, shard), t.Seq}
}

func keyOfCall(j *scheduler.Delivery) timerKey {
	return timerKey{cmp.Or(j.Job.Origin, j.Shard), j.Job.Seq}
}

// shardOf is the shard of a timer by the number with which a node counts.
func (n *node) shardOf(t *timer.Topic, id string) timer.ShardID {
	of, _ := n.member.Shards()
	return timer.ShardOf(t, id, of)
}

// claimOf is an update of a lease, sent as the product sends that of a receipt.
func (n *node) claimOf(topic timer.TopicID, id string, cmd *timer.Command) timer.Op {
	place := n.router.PlaceOf(topic, id)
	if place == 0 { // the node does not know the topic yet
		return timer.Op{Shard: n.w.place(topic, id), Brief: true, Command: cmd}
	}
	of, _ := n.member.Shards()
	return timer.Op{Shard: timer.ShardID(1 + (place-1)%uint64(of)), Place: place, Brief: true, Command: cmd}
}

// family is the shard that a shard was divided from, or itself.
func (w *World) family(id timer.ShardID) timer.ShardID {
	return 1 + (id-1)%timer.ShardID(w.swarm.shards)
}
