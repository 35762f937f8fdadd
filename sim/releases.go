package sim

import (
	"slices"
	"time"

	"carillon/shard"
	"carillon/timer"
)

// drawRelease has a process begin with this release or the one before. Whoever runs it does not
// know what the cluster has agreed on; a process that is too old says so, and is begun anew with
// the newer one.
func (n *node) drawRelease() {
	if !n.w.swarm.replicaFaults.releases || n.w.calm {
		return
	}
	if level := shard.LevelFirst + shard.Level(n.w.odds.IntN(int(shard.LevelOfBuild))); level != n.level {
		n.level = level
		n.w.counts.Changed++
		n.w.note(n, "release", uint64(level), 0, "")
	}
}

// agreedLevel is what the members have agreed on: the highest that any of them knows of, as it
// never falls.
func (w *World) agreedLevel() shard.Level {
	level := shard.LevelFirst
	for _, n := range w.nodes {
		if n.state != nil {
			level = max(level, n.state.Level())
		}
	}
	return level
}

// tooOld ends a process whose release is older than what the cluster has agreed on. The next is of
// the newer one.
func (n *node) tooOld() {
	n.w.counts.TooOld++
	n.w.note(n, "too old", uint64(n.level), 0, "")
	n.level = shard.LevelOfBuild
	n.stop(false)
}

// upgrade is what an operator does who sees that a group is stopped, or that the node is not let
// in for its release.
func (n *node) upgrade() {
	if n.host == nil && n.level < n.w.agreedLevel() || n.host != nil && n.hasStopped() {
		n.tooOld()
	}
}

// hasStopped says whether one of the groups is stopped, which the operator sees.
func (n *node) hasStopped() bool {
	for id := range n.w.swarm.shards + 1 {
		if n.host.Progress(timer.ShardID(id)).Stopped != nil {
			return true
		}
	}
	return false
}

// upgradeAll begins the processes anew with the newest release, one after the other in any order.
// The cluster then agrees on its level, and states are compared.
func (w *World) upgradeAll() {
	nodes := slices.Clone(w.nodes)
	w.odds.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for _, n := range nodes {
		if n.gone || n.level == shard.LevelOfBuild {
			continue
		}
		n.level = shard.LevelOfBuild
		if n.up {
			n.stop(false)
		}
		w.passUntil(20*time.Second, w.serving)
	}
	agreed := func() bool {
		leader := w.metaLeader()
		return leader != nil && leader.state.Level() == shard.LevelOfBuild
	}
	if !w.passUntil(30*time.Second, agreed) {
		w.violate("versions", "all run the newest release, and have agreed on level %d", w.agreedLevel())
	}
	compared := func() bool {
		for id := range w.swarm.shards + 1 {
			leader := w.leader(timer.ShardID(id))
			if leader == nil {
				return false
			}
			p := leader.host.Progress(timer.ShardID(id))
			_, s := leader.host.Inspect(timer.ShardID(id))
			if len(s.Voters)+len(s.Learners) > 1 && p.Compared == 0 {
				return false
			}
		}
		return true
	}
	if !w.passUntil(time.Minute, compared) {
		w.violate("versions", "a minute after all have agreed on level %d, not all groups compare their states", shard.LevelOfBuild)
	}
}
