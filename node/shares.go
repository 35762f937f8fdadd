package node

import (
	"carillon/ring"
	"carillon/shard"
)

// share says in each beat what this node may come to of topics' leases at once; see ring.Shares.
func (c *core) share(now int64, mine []shard.ID) ring.Says {
	_, shards, _ := c.state.Cluster()
	_, leader := c.leaders()
	st := ring.Standing{
		Now: c.p.clock.Mono(), WallMs: now, Shards: shards, Leads: map[uint64]int64{}, Mine: mine, Topics: c.state.Limited(), Held: c.host.Held,
	}
	for id, node := range leader {
		if int(id) <= shards {
			st.Leads[node]++
		}
	}
	for _, n := range c.state.Nodes() {
		if n.ID != c.self {
			st.Others = append(st.Others, n.ID)
		}
	}
	return c.shares.Look(&st)
}
