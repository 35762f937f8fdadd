package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/internal/feature"
	"carillon/timer"
)

// newest is the feature level of the newest release. It is one above this build's, so that there
// are two.
const newest = feature.LevelOfTests

// drawRelease draws the release of a starting process. The operator does not know the cluster's
// feature level. A process that is too old says so and is replaced by the newer release.
func (n *node) drawRelease() {
	if !n.w.swarm.replicaFaults.releases || n.w.calm {
		return
	}
	n.drawZones()
	level := newest
	if n.w.odds.IntN(2) == 0 {
		level = feature.LevelFirst
	}
	if level != n.level {
		n.level = level
		n.w.counts.Changed++
		n.w.note(n, "release", uint64(level), 0, "")
	}
}

// finalize plays an operator: it finalizes an upgrade at a random time, without regard to the
// processes' releases.
func (w *World) finalize() {
	w.operator(w.inUse(w.odds), w.finalizeAt, func(err error) {
		if errors.Is(err, timer.ErrFeatureLevel) {
			w.counts.TooEarly++
		}
	})
}

func (w *World) finalizeAt(ctx context.Context, n *node) error {
	w.finalizing = true
	before := n.state.Level()
	level, err := n.member.Finalize(ctx)
	if err == nil && !w.calm && level > before {
		w.counts.Finalized++
	}
	return err
}

// checkLevel checks that the feature level of a founded cluster rises only after an operator has
// requested it.
func (n *node) checkLevel(now agreed) {
	was := n.agreed
	n.w.level = max(n.w.level, now.level)
	if was.founded && now.level > was.level && !n.w.finalizing {
		n.w.violate("versions", "node %d: feature level %d after %d, but no operator has finalized an upgrade", n.id, now.level, was.level)
	}
}

// agreedLevel is the members' feature level: the highest that any of them has known, because it never
// falls. After a power cut of all, nobody may know it for a moment.
func (w *World) agreedLevel() feature.Level {
	w.level = max(w.level, feature.LevelFirst)
	for _, n := range w.nodes {
		if n.state != nil {
			w.level = max(w.level, n.state.Level())
		}
	}
	return w.level
}

// tooOld ends a process whose release is older than the cluster's feature level. The next process
// runs the newest release.
func (n *node) tooOld() {
	n.w.counts.TooOld++
	n.w.note(n, "too old", uint64(n.level), 0, "")
	n.level = newest
	n.stop(false)
}

// upgrade installs the newest release on a machine with a stopped group, or with a process that the
// cluster refuses because of its release. An operator would see both.
func (n *node) upgrade() {
	if n.host == nil && n.level < n.w.agreedLevel() || n.host != nil && n.hasStopped() {
		n.tooOld()
	}
}

// hasStopped reports whether one of the groups is stopped.
func (n *node) hasStopped() bool {
	for id := range n.w.shards() + 1 {
		if n.host.Progress(timer.ShardID(id)).Stopped != nil {
			return true
		}
	}
	return false
}

// upgradeAll restarts all processes with the newest release, one after another in random order.
// When the upgrade is finalized the cluster has the newest level, and replicas compare their
// states.
func (w *World) upgradeAll() {
	nodes := slices.Clone(w.nodes)
	w.odds.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for _, n := range nodes {
		if n.gone || n.level == newest {
			continue
		}
		n.level = newest
		if n.up {
			n.stop(false)
		}
		w.passUntil(20*time.Second, w.serving)
	}
	atNewest := func(ctx context.Context, n *node) error {
		if err := w.finalizeAt(ctx, n); err != nil {
			return err
		}
		if level := n.state.Level(); level != newest {
			return fmt.Errorf("feature level %d", level)
		}
		return nil
	}
	if !w.insist(atNewest) {
		w.violate("versions", "all nodes run the newest release, but cannot finalize the upgrade: level %d, %v", w.agreedLevel(), w.refusal)
	}
	compared := func() bool {
		for id := range w.shards() + 1 {
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
		w.violate("versions", "a minute after all have agreed on level %d, not all groups compare their states", newest)
	}
}
