package member

import (
	"context"
	"fmt"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	registerEach      = 3 * time.Second
	registerAgainEach = 200 * time.Millisecond // until the cluster knows of this start
)

// keepRegistered tells the cluster where this node is now, and its version, whenever that has changed.
func (m *Member) keepRegistered(ctx context.Context) {
	for {
		m.register(ctx)
		each := registerEach
		if !m.Current() {
			each = registerAgainEach
		}
		if !m.tasks.Sleep(ctx, each) {
			return
		}
	}
}

// Current reports that this node's copy of what the cluster has agreed on is as new as its process: it leads, or the copy has the
// node's registration of this start, which came after all that was acknowledged before.
func (m *Member) Current() bool {
	if m.host.Leads(shard.Meta) {
		return true
	}
	known, ok := m.State.Node(m.id)
	return ok && known.Starts == m.Identity().Starts
}

func (m *Member) register(ctx context.Context) {
	if m.alone() && m.askWhetherRemoved(ctx) {
		m.leaveCluster()
		return
	}
	self, err := m.describe()
	known, ok := m.State.Node(m.id)
	if err != nil || !ok || known.State == ring.NodeRemoved {
		return
	}
	if known.Name != self.Name && m.cfg.NamesProven {
		m.cfg.Fail(fmt.Errorf("node: the cluster knows this node as %s, not as %s: where nodes have certificates they keep their names", known.Name, self.Name))
		return
	}
	self.State, self.JoinedMs, self.SinceMs = known.State, known.JoinedMs, known.SinceMs
	if self == known {
		return
	}
	if _, err := m.Propose(ctx, ring.Command{Verb: ring.Register, Node: &self, ClusterID: m.Identity().ClusterID}); err != nil {
		m.log.Warn("the cluster was not told this node's new addresses; it is tried again", "error", err)
	}
}
