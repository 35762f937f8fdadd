package node

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/node/member"
	"carillon/node/metrics"
	"carillon/ring"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// growth is the growth of the number of shards, as this node sees it; nil: there is none.
func (c *core) growth() *backend.ReshardingView {
	r, on := c.member.State.Resharding()
	if !on {
		return nil
	}
	v := &backend.ReshardingView{From: r.From, To: r.To, Done: r.Done, Shard: r.Shard}
	row, _ := c.member.State.Row(r.Shard)
	switch {
	case shardState(&row, lead{node: c.member.SeenLeaders()[r.Shard]}, c.peers()) == backend.ShardNoQuorum:
		v.WaitsFor = backend.WaitsForMajority
	case !row.Settled && !r.Dividing:
		v.WaitsFor = backend.WaitsForMove
	case slices.ContainsFunc(c.host.LowDisks(), func(low timer.LowDiskError) bool { return row.Names(low.Node) }):
		v.WaitsFor = backend.WaitsForDisk
	case c.host.MemoryTight() && row.Names(c.member.ID()), slices.ContainsFunc(c.member.Tight(), row.Names):
		v.WaitsFor = backend.WaitsForMemory
	}
	return v
}

// grown is the growth of the number of shards as the feed shows it.
func (c *core) grown() backend.Growth {
	for {
		if r, on := c.member.State.Resharding(); on {
			return backend.Growth{From: r.From, To: r.To, Done: r.Done}
		}
		if n := c.member.State.Shards(); n.Parents == n.Now { // else it has begun just now
			return backend.Growth{From: n.Now, To: n.Now}
		}
	}
}

// shownCluster is the cluster as operators change it.
type shownCluster struct {
	*member.Member
	core *core
}

// shardMemory is about what a replica of a shard takes that has no timers: half of it its table's
// first pages. See docs/sizing.md.
const shardMemory = 200_000

// handlesShare: one part in so many of a shard's memory, or somewhat less, is what its timers'
// handles take, 4 bytes each. A new shard has as many as the one that it came of.
const handlesShare = 64

// PreviewShards implements backend.Cluster. It supposes that all shards are as large as this node's
// are on average: timers are spread by a hash.
func (s shownCluster) PreviewShards(ctx context.Context, shards int) (backend.GrowthNeeds, error) {
	if err := s.CatchUp(ctx); err != nil {
		return backend.GrowthNeeds{}, err
	}
	moves, err := s.State.GrowthMoves(shards)
	if err != nil {
		return backend.GrowthNeeds{}, err
	}
	here, now := int64(0), s.State.Shards().Now
	for _, g := range s.core.host.Groups() {
		if g.Group != ring.MetaGroup && g.Replica != 0 {
			here++
		}
	}
	replicas, nodes := 0, map[uint64]bool{}
	for _, row := range s.State.Rows() {
		if row.Group == ring.MetaGroup {
			continue
		}
		for _, r := range row.Replicas {
			replicas++
			nodes[r.Node] = true
		}
	}
	each := s.core.host.Stats().Memory.Tables / max(here, 1)
	needs := backend.GrowthNeeds{MemoryBytes: each, Moves: moves, Bytes: int64(moves) * each * int64(now) / int64(shards)}
	needs.LastingBytes = int64(replicas) * int64(shards-now) / int64(now) * (shardMemory + each/handlesShare) / int64(len(nodes))
	for n := now; n < shards; n *= 2 { // in each doubling every replica writes half of what it has
		needs.Bytes += int64(replicas) * each / 2
	}
	return needs, nil
}

func (p *process) showResharding(m *metrics.Metrics) {
	m.Gauge("carillon_shards", "Shards of the cluster; while their number grows those that are made.", func() int64 {
		state := p.core.Load().member.State
		if r, on := state.Resharding(); on {
			return int64(r.From + r.Done)
		}
		return int64(state.Shards().Now)
	})
	growth := func() backend.ReshardingView {
		if v := p.core.Load().growth(); v != nil {
			return *v
		}
		return backend.ReshardingView{}
	}
	m.Gauge("carillon_resharding_shards", "New shards that a growth of their number makes; 0: it does not grow.", func() int64 {
		v := growth()
		return int64(v.To - v.From)
	})
	m.Gauge("carillon_resharding_done", "New shards that it has made.", func() int64 { return int64(growth().Done) })
	for _, why := range []backend.ReshardingWait{backend.WaitsForMajority, backend.WaitsForMove, backend.WaitsForDisk, backend.WaitsForMemory} {
		m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carillon_resharding_waits", Help: "1 while the growth waits for the majority of a shard, for a move of it, for room on a disk, or for memory.",
			ConstLabels: prometheus.Labels{"for": string(why)},
		}, func() float64 {
			if growth().WaitsFor == why {
				return 1
			}
			return 0
		}))
	}
}
