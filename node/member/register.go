package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

const (
	registerInterval = 3 * time.Second
	registerRetry    = 200 * time.Millisecond // until the cluster knows of this start
)

// registration keeps the cluster's record of this node up to date, and its place in the meta group.
type registration struct {
	*local
	meta  *metaClient
	seen  *observer
	start *startCheck
	end   *ending
	place placeWatch
}

// run registers this node's address and version, whenever they have changed, and keeps its place.
func (r *registration) run(ctx context.Context) {
	for {
		r.register(ctx)
		r.keepPlace(ctx)
		if r.awaitCurrent(ctx) && !r.tasks.Sleep(ctx, registerInterval) || ctx.Err() != nil {
			return
		}
	}
}

// awaitCurrent waits a little until this node's copy is current, and reports it as current to its
// readers: no timer is called before, since its topic may have been paused or changed meanwhile.
func (r *registration) awaitCurrent(ctx context.Context) bool {
	for waited := time.Duration(0); waited < registerRetry; waited += appliedPoll {
		if r.Current() {
			r.State.SetCurrent()
			return true
		}
		if !r.tasks.Sleep(ctx, appliedPoll) {
			return false
		}
	}
	return false
}

// Current reports that this node's copy of the meta group's state is as new as its process: it
// leads, or the copy has the node's registration of this start, which came after all that was
// acknowledged before.
func (r *registration) Current() bool {
	if r.host.Leads(shard.Meta) {
		return true
	}
	known, ok := r.State.Node(r.id)
	id := r.Identity()
	return ok && known.Starts == id.Starts && id.Asked == id.Starts
}

func (r *registration) register(ctx context.Context) {
	if agreed, level := r.State.Level(), max(r.cfg.Level, feature.LevelFirst); agreed > level {
		r.cfg.Fail(fmt.Errorf("node: %w: the cluster has agreed on feature level %d, this release has %d (see --feature-level); start the newer release",
			ring.ErrTooOld, agreed, level))
		return
	}
	if id := r.Identity(); r.seen.isAlone() && id.Asked >= id.Starts {
		if _, removed := r.askForPlace(ctx); removed {
			r.end.leaveCluster()
			return
		}
	}
	self, err := r.describe()
	known, ok := r.State.Node(r.id)
	if err != nil || !ok || known.State == ring.NodeRemoved {
		return
	}
	if r.start.isOutdated() {
		return
	}
	if known.Name != self.Name && r.cfg.NamesProven {
		r.cfg.Fail(fmt.Errorf("node: the cluster knows this node as %s, not as %s: a node with a certificate keeps its name", known.Name, self.Name))
		return
	}
	if !r.start.mayRegister(ctx) {
		return
	}
	self.State, self.JoinedMs, self.SinceMs = known.State, known.JoinedMs, known.SinceMs
	if self == known {
		return
	}
	if known.Fenced == self.Starts {
		r.log.Warn("other nodes could not connect to this node's peer address, so the cluster considered this process ended; some of its calls may have been repeated")
	}
	_, err = r.meta.Propose(ctx, ring.Command{Verb: ring.Register, Node: &self, ClusterID: r.Identity().ClusterID})
	switch {
	case errors.Is(err, ring.ErrTooOld):
		r.cfg.Fail(fmt.Errorf("node: %w", err))
	case errors.Is(err, ring.ErrNameTaken): // it would lead shards, and call nothing: see Current
		r.cfg.Fail(fmt.Errorf("node: %w; the cluster knows this node as %s: start it with that --name", err, known.Name))
	case err != nil:
		r.log.Warn("this node's new addresses could not be registered; retrying", "error", err)
	}
}

// keepPlace looks whether this node's replica of the meta group still gets the others' entries. One
// that was silent for long while it joined was given up: it has another place by now, under another
// id, and it can hear of that only from nodes that have the row.
func (r *registration) keepPlace(ctx context.Context) {
	applied := r.host.Applied(shard.Meta)
	if r.host.Leads(shard.Meta) || applied != r.place.applied || !r.meta.behind(ctx, applied) {
		r.place = placeWatch{applied: applied}
		return
	}
	if r.place.rounds++; r.place.rounds < placeRounds {
		return
	}
	r.place.rounds = 0
	if !r.start.mayRegister(ctx) {
		return
	}
	row, removed := r.askForPlace(ctx)
	switch {
	case removed:
		r.end.leaveCluster()
	case row != nil && memberOf(row, r.id) > r.ownReplica():
		if known := r.Identity().Meta; known == nil || memberOf(row, r.id) > memberOf(known, r.id) {
			r.log.Warn("the cluster gave up this node's copy of the meta group while the node was away; it gets a new one")
			if err := r.Change(func(id *Identity) { id.Meta = row }); err != nil {
				r.log.Error("this node's new place in the meta group could not be stored; retrying", "error", err)
				return
			}
		}
		// The process before may have stored the place, and ended before its log had the replica.
		r.host.Place([]shard.Assignment{*row})
	}
}

// askForPlace asks other members for the cluster's record of this node; removed: it does not belong
// to it any more. Else row is the meta group's, if it names this node; nil: no member has answered
// so. A member's copy may stand still: the newest row counts, and the first that has a later
// replica of this node ends the search.
func (r *registration) askForPlace(ctx context.Context) (row *shard.Assignment, removed bool) {
	self, err := r.describe()
	if err != nil {
		return nil, false
	}
	for _, n := range r.others() {
		addr := r.AddressOf(n.ID)
		if addr == "" {
			continue
		}
		var a joinAnswer
		from, err := ask(ctx, r.Self, addr, methodJoin, self, &a)
		if isAnswer(err, removedCode) && r.end.believed(n, from, "was removed from the cluster") {
			return nil, true
		}
		if isAnswer(err, outdatedCode) && r.end.believed(n, from, "runs on an older copy of its data directory") {
			r.end.haltAsOlder(fmt.Errorf("%w (node %s says: %w)", ring.ErrStale, n.Name, err))
			return nil, false
		}
		if err == nil && from.Cluster == r.Identity().ClusterID && a.ClusterID == r.Identity().ClusterID && a.Meta != nil {
			if row == nil || a.Meta.Epoch > row.Epoch {
				row = a.Meta
			}
			if memberOf(row, r.id) > r.ownReplica() {
				break
			}
		}
	}
	return row, false
}

// placeRounds is how many times in a row the copy must have stood still behind the leader's.
const placeRounds = 2

// placeWatch is how the copy stood at the last look.
type placeWatch struct {
	applied uint64
	rounds  int
}

// behind reports that the meta group's leader has more than this node's copy, or cannot be found.
func (m *metaClient) behind(ctx context.Context, applied uint64) bool {
	index, err := m.metaIndex(ctx, 0, 0)
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok && moved.Leader != 0 {
		index, err = m.metaIndex(ctx, moved.Leader, 1)
	}
	return err != nil || index > applied
}

// ownReplica is this node's replica of the meta group by its own copy of that group's state.
func (r *registration) ownReplica() uint64 {
	row, _ := r.State.Row(shard.Meta)
	own, _ := row.Replica(r.id)
	return own.ID
}

// memberOf is a node's replica in a row; 0: it has none.
func memberOf(row *shard.Assignment, node uint64) uint64 {
	if member := placement.On(row.Members, node); member != nil {
		return member.Replica
	}
	return 0
}
