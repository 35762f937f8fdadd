package sim

import (
	"maps"
	"slices"
	"time"

	"carillon/ring"
	"carillon/shard"
)

// silentAfter is without how long a beat a node counts as one that leads nothing.
const silentAfter = 5 * time.Second

// ledHere are the timer shards that the process leads.
func (n *node) ledHere() (ids []shard.ID) {
	if n.host == nil {
		return nil
	}
	for id := shard.ID(1); int(id) <= n.w.swarm.shards; id++ {
		if p := n.host.Progress(id); p.Leads && p.Serves {
			ids = append(ids, id)
		}
	}
	return ids
}

// says is what the process says in its next beat of its parts of topics' limits.
func (n *node) says(mine []shard.ID) ring.Says {
	if n.host == nil {
		return ring.Says{Untold: true}
	}
	st := ring.Standing{
		Now: n.clock.Mono(), WallMs: n.clock.WallMs(), Shards: n.w.swarm.shards, Leads: map[uint64]int64{}, Mine: mine,
		Topics: n.state.Limited(), Held: n.host.Held,
	}
	leader := map[shard.ID]uint64{}
	for _, id := range slices.Sorted(maps.Keys(n.peers)) {
		if f := n.peers[id]; n.clock.Mono()-f.heard < silentAfter {
			for _, s := range f.leads {
				leader[s] = id
			}
		}
	}
	for _, s := range mine {
		leader[s] = n.id
	}
	for _, id := range leader {
		st.Leads[id]++
	}
	st.Others = n.others()
	return n.shares.Look(&st)
}

// knowsNobody is how a process begins.
func (n *node) knowsNobody() {
	n.peers, n.shares = map[uint64]*peerFacts{}, ring.NewShares(n.id, n.starts)
	n.sights, n.looked, n.age = map[uint64]*sight{}, 0, 0
}

// hearParts takes what a node says of its parts, and leads.
func (n *node) hearParts(from uint64, leads []shard.ID, says *ring.Says, sees view) {
	f := n.peers[from]
	if says.Untold || says.Seq <= f.seq {
		return // it has no host yet; or it was overtaken
	}
	f.seq, f.leads = says.Seq, leads
	n.shares.Hear(n.clock.Mono(), from, says)
	n.see(from, sees)
}
