package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/internal/feature"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

const (
	registerEach      = 3 * time.Second
	registerAgainEach = 200 * time.Millisecond // until the cluster knows of this start
)

// keepRegistered tells the cluster where this node is now, and its version, whenever that has
// changed.
func (m *Member) keepRegistered(ctx context.Context) {
	for {
		m.register(ctx)
		m.keepPlace(ctx)
		each := registerEach
		if !m.Current() {
			each = registerAgainEach
		}
		if !m.tasks.Sleep(ctx, each) {
			return
		}
	}
}

// Current reports that this node's copy of the meta group's state is as new as its process: it
// leads, or the copy has the node's registration of this start, which came after all that was
// acknowledged before.
func (m *Member) Current() bool {
	if m.host.Leads(shard.Meta) {
		return true
	}
	known, ok := m.State.Node(m.id)
	id := m.Identity()
	return ok && known.Starts == id.Starts && id.Asked == id.Starts
}

func (m *Member) register(ctx context.Context) {
	if agreed, level := m.State.Level(), max(m.cfg.Level, feature.LevelFirst); agreed > level {
		m.cfg.Fail(fmt.Errorf("node: %w: the cluster has agreed on feature level %d, this release has %d (see --feature-level); start the newer release",
			ring.ErrTooOld, agreed, level))
		return
	}
	if id := m.Identity(); m.alone() && id.Asked >= id.Starts {
		if _, removed := m.askForPlace(ctx); removed {
			m.leaveCluster()
			return
		}
	}
	self, err := m.describe()
	known, ok := m.State.Node(m.id)
	if err != nil || !ok || known.State == ring.NodeRemoved {
		return
	}
	if m.isOutdated() {
		return
	}
	if known.Name != self.Name && m.cfg.NamesProven {
		m.cfg.Fail(fmt.Errorf("node: the cluster knows this node as %s, not as %s: where nodes have certificates they keep their names", known.Name, self.Name))
		return
	}
	if !m.mayRegister(ctx) {
		return
	}
	self.State, self.JoinedMs, self.SinceMs = known.State, known.JoinedMs, known.SinceMs
	if self == known {
		return
	}
	if known.Fenced == self.Starts {
		m.log.Warn("the cluster took this process for gone, and some of its calls may have been repeated: its peer address refused connections to others")
	}
	_, err = m.Propose(ctx, ring.Command{Verb: ring.Register, Node: &self, ClusterID: m.Identity().ClusterID})
	switch {
	case errors.Is(err, ring.ErrTooOld):
		m.cfg.Fail(fmt.Errorf("node: %w", err))
	case err != nil:
		m.log.Warn("the cluster was not told this node's new addresses; it is tried again", "error", err)
	}
}

// keepPlace looks whether this node's replica of the meta group still gets the others' entries. One
// that was silent for long while it joined was given up: it has another place by now, under another
// id, and it can hear of that only from nodes that have the row.
func (m *Member) keepPlace(ctx context.Context) {
	applied := m.host.Applied(shard.Meta)
	if m.host.Leads(shard.Meta) || applied != m.place.applied || !m.behind(ctx, applied) {
		m.place = placeWatch{applied: applied}
		return
	}
	if m.place.rounds++; m.place.rounds < placeRounds {
		return
	}
	m.place.rounds = 0
	if !m.mayRegister(ctx) {
		return
	}
	row, removed := m.askForPlace(ctx)
	switch {
	case removed:
		m.leaveCluster()
	case row != nil && memberOf(row, m.id) > memberOf(m.metaRow(), m.id):
		m.log.Warn("this node's copy of what the cluster has agreed on was given up while it was away; it gets another")
		if err := m.Change(func(id *Identity) { id.Meta = row }); err != nil {
			m.log.Error("the node's new place was not noted; it is asked for again", "error", err)
			return
		}
		m.host.Place([]shard.Assignment{*row})
	}
}

// placeRounds is how many times in a row the copy must have stood still behind the leader's.
const placeRounds = 2

// placeWatch is how the copy stood at the last look.
type placeWatch struct {
	applied uint64
	rounds  int
}

// behind reports that the meta group's leader has more than this node's copy, or cannot be found.
func (m *Member) behind(ctx context.Context, applied uint64) bool {
	index, err := m.metaIndex(ctx, 0, 0)
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok && moved.Leader != 0 {
		index, err = m.metaIndex(ctx, moved.Leader, 1)
	}
	return err != nil || index > applied
}

// metaRow is the meta group's row as this node has followed it.
func (m *Member) metaRow() *shard.Assignment {
	if id := m.Identity(); id.Meta != nil {
		if row, ok := m.State.Row(shard.Meta); !ok || memberOf(id.Meta, m.id) > replicaOn(&row, m.id) {
			return id.Meta
		}
	}
	row, _ := m.State.Row(shard.Meta)
	host := row.ForHost()
	return &host
}

func replicaOn(row *ring.Assignment, node uint64) uint64 {
	r, _ := row.Replica(node)
	return r.ID
}

// memberOf is a node's replica in a row; 0: it has none.
func memberOf(row *shard.Assignment, node uint64) uint64 {
	for _, member := range row.Members {
		if member.Node == node {
			return member.Replica
		}
	}
	return 0
}
