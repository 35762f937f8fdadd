package member

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"carillon/internal/placement"
	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
)

const (
	readyPoll = 20 * time.Millisecond
	// How long a removed node's connections stay: it has to learn that it was removed.
	forgetDelay = 2 * time.Second
)

// Host is the part of the node's shards that a Member needs: shard.Host, which describes it.
type Host interface {
	Started() <-chan struct{}
	NotReady(wasReady bool) error
	Leads(id timer.ShardID) bool
	Leader(id timer.ShardID) (node uint64, ok bool)
	LacksLeader(id timer.ShardID, wasReady bool) bool
	Size(id timer.ShardID) (bytes int64, full bool)
	Groups() []shard.GroupStatus
	Held(topic timer.TopicID) int
	KeyWeights(topic timer.TopicID) int
	Grow(shards, parents int)
	Shards() int
	Place(rows []shard.Assignment)
	Cordon(on bool)
	Fault() string
	Wrong() []placement.WrongReplica
	Restarted()
	Propose(cmd []byte) (any, error)
	Confirm(id timer.ShardID) (index uint64, err error)
	Applied(id timer.ShardID) uint64
	LogEnd() (opened, synced uint64)
	Disk() wal.Disk
	MemoryTight() bool
}

// local is this node as each part of a Member sees it: its start and identity, its shards, and its
// copy of the meta group's state.
type local struct {
	*Self
	shardCounter
	State *ring.State

	host    Host                            // set by Attach
	running atomic.Pointer[context.Context] // of Run; nil: the member does not run yet
}

// context is the context of Run, or one that never ends while the member does not run.
func (l *local) context() context.Context {
	if ctx := l.running.Load(); ctx != nil {
		return *ctx
	}
	return context.Background()
}

// Member is this node once it is of a cluster: its shards, and its copy of the meta group's state.
// It implements shard.Placement, and package route's view of the cluster. Each of its parts decides
// one thing, and has a file of its own.
type Member struct {
	*local
	*observer     // the other nodes, by their heartbeats
	*metaClient   // commands and questions for the meta group
	*startCheck   // whether this process has the newest copy of its data directory
	*fences       // takes over early what an ended process left
	*settledMoves // moves that are done

	Limits *ring.LimitAllocator // of the limits that topics have in the whole cluster

	registration *registration
	refresher    *memberRefresh
	controller   *controller
	heartbeats   *heartbeatSender
	ending       *ending
	shown        shownMoves

	onMembers func() // called when members or their addresses have changed
	onLeads   func(id timer.ShardID, node uint64)
	changed   task.Signal // rows, nodes or their addresses have changed
	wasReady  atomic.Bool // Ready has been nil: that one shard's leader changes does not count any more
}

// NewMember makes the node's copy of the cluster's state, for a host that is made next: see Attach.
// topics is called after changes of topics, members after changes of nodes and their addresses, by
// one goroutine. leads is called when another node reports that it leads a shard, and had not
// before; it must not block.
func (s *Self) NewMember(topics func(...timer.TopicID), members func(), leads func(id timer.ShardID, node uint64)) *Member {
	changed := s.tasks.NewSignal()
	m := newMember(s, ring.NewState(topics, changed.Set))
	m.onMembers, m.onLeads, m.changed = members, leads, changed
	return m
}

func newMember(s *Self, state *ring.State) *Member {
	id := s.Identity()
	l := &local{Self: s, State: state}
	l.begin(&id)
	m := &Member{local: l, Limits: ring.NewLimitAllocator(id.NodeID, id.Starts)}
	m.observer = &observer{l}
	m.metaClient = &metaClient{local: l, decisions: &decisions{local: l, seen: m.observer}}
	m.ending = &ending{local: l, unproven: newRareLog(l.tasks)}
	m.startCheck = &startCheck{local: l, meta: m.metaClient, end: m.ending}
	m.fences = &fences{local: l, meta: m.metaClient, asks: map[table.Incarnation][]func(error){}}
	m.settledMoves = &settledMoves{local: l, meta: m.metaClient, added: l.tasks.NewSignal()}
	m.registration = &registration{local: l, meta: m.metaClient, seen: m.observer, start: m.startCheck, end: m.ending}
	m.refresher = &memberRefresh{local: l, seen: m.observer}
	m.controller = &controller{local: l, seen: m.observer, meta: m.metaClient, missing: newRareLog(l.tasks)}
	m.heartbeats = newHeartbeatSender(l, m.observer, m.Limits)
	return m
}

// Attach gives it its host, before it runs.
func (m *Member) Attach(host Host) { m.host = host }

// MayLead implements shard.Placement.
func (m *Member) MayLead(node uint64) bool {
	nodes := m.heartbeats.mayLead.Load()
	return nodes != nil && (*nodes)[node]
}

// Run does a member's work until the context ends.
func (m *Member) Run(ctx context.Context) {
	m.running.Store(&ctx)
	work := task.NewGroup(m.tasks)
	work.Go(func() { m.followState(ctx) })
	work.Go(func() { m.reportSettled(ctx) })
	work.Go(func() { task.Every(ctx, m.tasks, heartbeatInterval, m.heartbeats.send) })
	work.Go(func() { m.controller.awaitBootstrap(ctx) })
	work.Go(func() { m.controller.run(ctx) })
	work.Go(func() { m.registration.run(ctx) })
	work.Go(func() { m.askOthers(ctx) })
	work.Go(func() { task.Every(ctx, m.tasks, refreshInterval, func() { m.refresher.refresh(ctx) }) })
	work.Wait()
}

// look has followState run once more.
func (m *Member) look() { m.changed.Set() }

// followState brings the host in line with this node's copy of the placement, and follows changes
// of the members.
func (m *Member) followState(ctx context.Context) {
	gone, starts := map[uint64]bool{}, map[uint64]uint32{}
	for {
		m.onMembers()
		m.followStarts(starts)
		m.peers.Review(m.misnamed) // nodes that were let in before their names were known
		grown := m.followShards(ctx)
		rows := m.State.Rows()
		if now, _ := m.Shards(); !grown {
			rows = rows[:min(len(rows), 1+now)]
		}
		list := make([]shard.Assignment, len(rows))
		for i := range rows {
			list[i] = rows[i].ForHost()
		}
		m.host.Place(list)
		for _, n := range m.State.Removed() {
			if gone[n.ID] {
				continue
			}
			gone[n.ID] = true
			if n.ID == m.id {
				m.ending.leaveCluster()
				continue
			}
			m.liveness.forget(n.ID)
			m.confirmations.forget(n.ID)
			m.logEnds.forget(n.ID)
			m.tasks.Go(func() {
				if m.tasks.Sleep(ctx, forgetDelay) {
					m.peers.Forget(n.ID)
				}
			})
		}
		if !m.changed.Wait(ctx, task.Forever) {
			return
		}
	}
}

// followStarts notifies the host when another node has registered a new process, which ends what
// the one before had in flight. known has the starts that were seen so far.
func (m *Member) followStarts(known map[uint64]uint32) {
	news := false
	for _, n := range m.State.Nodes() {
		news = news || n.Starts > known[n.ID] && n.ID != m.id
		known[n.ID] = n.Starts
	}
	if news {
		m.host.Restarted()
	}
}

// Ready is the reason why the node is not ready. It is nil when the node serves and has filled the
// place of the node that had its name before. A rolling restart waits for that: until then the
// shards lack a replica.
func (m *Member) Ready() error {
	if err := m.serves(); err != nil {
		return err
	}
	if n, ok := m.State.Node(m.id); ok {
		if group, yes := m.State.Awaits(n); yes {
			return unfilled(n.Name, group)
		}
	}
	m.wasReady.Store(true)
	return nil
}

// unfilled is the reason while a group still lacks the replica that another node of this name had.
func unfilled(name string, group timer.ShardID) error {
	what := fmt.Sprintf("shard %d", group)
	if group == ring.MetaGroup {
		what = "the meta group"
	}
	return fmt.Errorf("this node takes the place of another that was named %s: %s has not got its replica back yet", name, what)
}

// WasReady reports that a member's process has been ready, however it is now.
func WasReady(m *Member) bool { return m.wasReady.Load() }

// serves is the reason why requests are not served.
func (m *Member) serves() error {
	if !m.hasRead() {
		return timer.ErrRecovering
	}
	if why := m.clock.Fault(); why != "" {
		return errors.New(why + ": nothing is started, expired or deleted meanwhile")
	}
	was := m.wasReady.Load()
	if err := m.host.NotReady(was); err != nil {
		return err
	}
	if id, _, _ := m.State.Cluster(); id == "" || m.State.Secret() == nil {
		return errors.New("this node is in no cluster yet, or has not got its state")
	}
	for _, row := range m.State.Rows() {
		if m.State.UndividedFrom(row.Group) != 0 {
			continue // its parent is looked at
		}
		if row.Names(m.id) && m.host.LacksLeader(row.Group, was) {
			return &shard.NoLeaderError{Group: row.Group}
		}
	}
	if why := m.cfg.LacksKey(); why != "" {
		return errors.New(why)
	}
	return m.host.NotReady(was) // once more: the shards are all there now, and are to have fired
}

// HandOver transfers the leaderships to other nodes that can take them, until the context ends. The
// node takes no leadership afterwards.
func (m *Member) HandOver(ctx context.Context) {
	m.Stop()
	if !m.hasRead() {
		return // it leads nothing yet
	}
	m.host.Cordon(true)
	for m.couldHandOver() && m.tasks.Sleep(ctx, readyPoll) {
	}
}

// couldHandOver reports that this node leads a group with another member that could take over.
func (m *Member) couldHandOver() bool {
	for _, g := range m.host.Groups() {
		if !g.Leads {
			continue
		}
		for _, id := range g.Voters {
			if node := ring.NodeOfReplica(id); node != m.id && m.MayLead(node) {
				return true
			}
		}
	}
	return false
}

// MarkFounded stores, once the node serves, that the first replica is on disk. From then on it is
// damage if it is missing.
func (m *Member) MarkFounded(ctx context.Context) {
	for !m.Identity().Founded {
		if m.serves() == nil {
			if err := m.Change(func(id *Identity) { id.Founded = true }); err != nil {
				m.log.Error("the founding could not be stored; the next start tries again", "error", err)
			}
			return
		}
		if !m.tasks.Sleep(ctx, readyPoll) {
			return
		}
	}
}
