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
	limits := c.growthLimits()
	v.WaitsFor = limits.wait(&row, r.Dividing)
	return v
}

// growthLimits is what a shard waits for before it is divided, as this node sees it.
type growthLimits struct {
	leaders map[timer.ShardID]uint64
	peers   peers
	lowDisk []timer.LowDiskError
	tight   []uint64 // nodes whose memory is
}

func (c *core) growthLimits() growthLimits {
	l := growthLimits{leaders: c.member.SeenLeaders(), peers: c.peers(), lowDisk: c.host.LowDisks(), tight: c.member.Tight()}
	if c.host.MemoryTight() {
		l.tight = append(l.tight, c.member.ID())
	}
	return l
}

// wait is why a shard is not divided now; "": nothing is unusual. dividing: it has begun.
func (l *growthLimits) wait(row *ring.Assignment, dividing bool) backend.ReshardingWait {
	switch {
	case shardState(row, lead{node: l.leaders[row.Group]}, l.peers) == backend.ShardNoQuorum:
		return backend.WaitsForMajority
	case !row.Settled && !dividing:
		return backend.WaitsForMove
	case slices.ContainsFunc(l.lowDisk, func(low timer.LowDiskError) bool { return row.Names(low.Node) }):
		return backend.WaitsForDisk
	case slices.ContainsFunc(l.tight, row.Names):
		return backend.WaitsForMemory
	default:
		return ""
	}
}

// expectedWait is for what a growth would wait as things are, and at which shard; "": for nothing.
// Most moves end soon, so that another reason is preferred.
func (c *core) expectedWait() (why backend.ReshardingWait, shard timer.ShardID) {
	limits := c.growthLimits()
	for _, row := range c.member.State.Rows() {
		if row.Group == ring.MetaGroup {
			continue
		}
		switch wait := limits.wait(&row, false); {
		case wait == "":
		case wait != backend.WaitsForMove:
			return wait, row.Group
		case why == "":
			why, shard = wait, row.Group
		}
	}
	return why, shard
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
	needs.WaitsFor, needs.Shard = s.core.expectedWait()
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
