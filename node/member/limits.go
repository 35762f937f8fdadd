package member

import (
	"carillon/ring"
	"carillon/timer"
)

// reportLimits says in each heartbeat how many of topics' leases at once this node may come to; see
// ring.Shares.
func (m *Member) reportLimits(wallMs int64, mine []timer.ShardID) ring.Says {
	_, shards, _ := m.State.Cluster()
	leader := m.Leaders()
	st := ring.Observation{
		Now: m.clock.Mono(), WallMs: wallMs, Shards: shards, Leads: map[uint64]int64{}, Mine: mine, Topics: m.State.Limited(), Held: m.host.Held,
	}
	for id, node := range leader {
		if int(id) <= shards {
			st.Leads[node]++
		}
	}
	for _, n := range m.State.Nodes() {
		if n.ID != m.id {
			st.Others = append(st.Others, n.ID)
		}
	}
	return m.Limits.Look(&st)
}
