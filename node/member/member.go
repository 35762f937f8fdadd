package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/placement"
	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/wal"
)

const (
	readyEach = 20 * time.Millisecond
	// A removed node is still spoken to for so long: it is to learn that it was removed.
	forgetAfter = 2 * time.Second
	// Settled moves that wait to be told to the meta group; those beyond are said again.
	maxSettled = 4096
)

// Host is the part of the node's shards that a Member needs: shard.Host.
type Host interface {
	// Started is closed once the log is read.
	Started() <-chan struct{}
	NotReady() error
	Leads(id timer.ShardID) bool
	Leader(id timer.ShardID) (node uint64, ok bool)
	Groups() []shard.GroupStatus
	// Held is how many leases of a topic this node has.
	Held(topic timer.TopicID) int
	Place(rows []shard.Assignment)
	Cordon(on bool)
	// Fault names a fault of one of its replicas; "": none is known.
	Fault() string
	// Wrong lists its replicas whose states are wrong, so that they are to be replaced.
	Wrong() []placement.WrongReplica
	// Restarted is told that a new process of a node has registered.
	Restarted()
	// Propose has the meta group's machine apply a command.
	Propose(cmd []byte) (any, error)
	// Confirm has a majority confirm that this node leads, and says up to where its state is then,
	// at least.
	Confirm(id timer.ShardID) (index uint64, err error)
	// Applied is the last entry that is in this node's copy of a group's state.
	Applied(id timer.ShardID) uint64
	// LogEnd is how many frames the log had when this process began, and how many are on disk now,
	// of all processes.
	LogEnd() (opened, synced uint64)
	// Disk is how much room this node's log has.
	Disk() wal.Disk
}

// Member is this node once it is of a cluster: its shards, and its copy of the meta group's state.
// It implements shard.Placement, and package route's view of the cluster.
type Member struct {
	*Self
	State  *ring.State
	Limits *ring.Shares // of the limits that topics have in the whole cluster

	host      Host
	onMembers func() // told when members or their addresses have changed

	changed  task.Signal     // rows, nodes or their addresses have changed
	mayLead  nodeSet         // which nodes may lead
	cordoned string          // why this node should not, by the last heartbeat
	low      map[uint64]bool // whose disks were low by then

	clockHeld bool // the clock was not believed at the last heartbeat

	settledMu sync.Mutex
	settled   []ring.Command // to be told to the meta group
	toldMeta  task.Signal
	place     placeWatch // of the task that keeps the node registered
	fences    fences
	leave     sync.Once
	unproven  *Notice // of a removal that is not believed
}

// NewMember makes the node's copy of the cluster's state, for a host that is made next: see Attach.
// topics is told of changes of topics, members of changes of nodes and their addresses; it is
// called by one goroutine.
func (s *Self) NewMember(topics, members func()) *Member {
	id := s.Identity()
	m := &Member{Self: s, Limits: ring.NewShares(id.NodeID, id.Starts), onMembers: members, changed: s.tasks.NewSignal(), toldMeta: s.tasks.NewSignal(),
		unproven: NewNotice(s.tasks, sayEach)}
	m.State = ring.NewState(topics, m.look)
	return m
}

// Attach gives it its host, before it runs.
func (m *Member) Attach(host Host) { m.host = host }

// Settled implements shard.Placement.
func (m *Member) Settled(group timer.ShardID, epoch uint32) {
	m.settledMu.Lock()
	if len(m.settled) < maxSettled {
		m.settled = append(m.settled, ring.Command{Verb: ring.Reconciled, Group: group, Epoch: epoch})
	}
	m.settledMu.Unlock()
	m.toldMeta.Set()
}

// MayLead implements shard.Placement.
func (m *Member) MayLead(node uint64) bool { return m.mayLead.has(node) }

// Run does a member's work beside its shards, until the context ends.
func (m *Member) Run(ctx context.Context) {
	m.fences.begin(ctx)
	work := task.NewGroup(m.tasks)
	work.Go(func() { m.followState(ctx) })
	work.Go(func() { m.tellSettled(ctx) })
	work.Go(func() { task.Every(ctx, m.tasks, heartbeatEach, m.sendHeartbeats) })
	work.Go(func() { m.awaitBootstrap(ctx) })
	work.Go(func() { task.Every(ctx, m.tasks, controlEach, func() { m.control(ctx) }) })
	work.Go(func() { m.keepRegistered(ctx) })
	work.Go(func() { m.askAround(ctx) })
	work.Go(func() { task.Every(ctx, m.tasks, refreshEach, func() { m.refresh(ctx) }) })
	work.Wait()
}

// look makes followState look again.
func (m *Member) look() { m.changed.Set() }

// followState brings the host in line with this node's copy of the placement, and others with the
// members.
func (m *Member) followState(ctx context.Context) {
	gone, starts := map[uint64]bool{}, map[uint64]uint32{}
	for {
		m.onMembers()
		m.followStarts(starts)
		m.peers.Review(m.misnamed) // nodes that were let in before their names were known
		rows := m.State.Rows()
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
				m.leaveCluster()
				continue
			}
			m.liveness.forget(n.ID)
			m.vouchers.forget(n.ID)
			m.logEnds.forget(n.ID)
			m.tasks.Go(func() {
				if m.tasks.Sleep(ctx, forgetAfter) {
					m.peers.Forget(n.ID)
				}
			})
		}
		if !m.changed.Wait(ctx, task.Forever) {
			return
		}
	}
}

// followStarts tells the host when another node has registered a new process: what the one before
// had in flight is over. known has the starts that it was told of.
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

// leaveCluster ends the process: the cluster has removed the node.
func (m *Member) leaveCluster() { m.leave.Do(func() { m.cfg.Fail(ErrRemoved) }) }

// tellSettled tells the meta group which moves of this node's groups are done.
func (m *Member) tellSettled(ctx context.Context) {
	for m.toldMeta.Wait(ctx, task.Forever) {
		for ctx.Err() == nil {
			m.settledMu.Lock()
			if len(m.settled) == 0 {
				m.settledMu.Unlock()
				break
			}
			cmd := m.settled[0]
			m.settled = m.settled[1:]
			m.settledMu.Unlock()
			if row, ok := m.State.Row(cmd.Group); ok && (row.Settled || row.Epoch != cmd.Epoch) {
				continue
			}
			if _, err := m.Propose(ctx, cmd); err != nil {
				m.log.Debug("a settled move was not noted; it is said again", "shard", uint32(cmd.Group), "error", err)
			}
		}
	}
}

// sendHeartbeats tells the others how this node is, and takes stock of them.
func (m *Member) sendHeartbeats() {
	now := m.clock.Mono()
	m.Health.lacksKey(m.cfg.LacksKey())
	clock, wrong := m.judgeClock(now), ""
	if clock.Trust == clocks.Held {
		wrong = clock.Why
	}
	unhealthy := cmp.Or(m.Health.check(now, wrong), m.host.Fault())
	m.sayHealth(unhealthy)
	me, member := m.State.Node(m.id)
	cordoned := m.stopping.Load() || unhealthy != "" || member && me.State != ring.NodeMember
	m.host.Cordon(cordoned)
	h := heartbeat{WallMs: clock.RawMs, Starts: m.Identity().Starts, Cordoned: cordoned, Unhealthy: unhealthy, Leads: m.leads(),
		Clock: heartbeatClock{AheadMs: clock.AheadMs, Steps: clock.Steps, Steady: clock.Steady, Sure: clock.Trust == clocks.Sure}}
	h.Limits = m.reportLimits(h.believedMs(), h.Leads)
	h.LowDisk = m.ownLowDisk()
	m.sayLowDisks(&h.LowDisk)
	_, synced := m.host.LogEnd()
	frame, logEnd, wrongReplicas := h.encode(), encodeLogEnd(h.Starts, synced), encodeWrong(m.host.Wrong())
	may := map[uint64]bool{m.id: !cordoned}
	nodes := m.State.Nodes()
	m.liveness.expect(now, nodes)
	for _, n := range nodes {
		if n.ID == m.id {
			continue
		}
		m.peers.Send(n.ID, slices.Clone(frame))
		m.peers.Send(n.ID, slices.Clone(logEnd))
		if wrongReplicas != nil {
			m.peers.Send(n.ID, slices.Clone(wrongReplicas))
		}
		s, ago, ok := m.liveness.last(now, n.ID)
		may[n.ID] = ok && ago < aliveFor && !s.last.Cordoned && n.State == ring.NodeMember
	}
	m.mayLead.set(may)
}

// sayHealth tells the operator why this node begins to hand its shards over, and when it may lead
// again.
func (m *Member) sayHealth(unhealthy string) {
	switch {
	case unhealthy != "" && m.cordoned == "":
		m.log.Warn("this node hands its shards over to others", "why", unhealthy)
	case unhealthy == "" && m.cordoned != "":
		m.log.Info("this node may lead shards again", "before", m.cordoned)
	}
	m.cordoned = unhealthy
}

// Ready is the reason why the node is not ready; nil when it serves, and has filled the place of
// the one that had its name before. A rolling restart waits for that: until then the shards have a
// replica less.
func (m *Member) Ready() error {
	if err := m.serves(); err != nil {
		return err
	}
	if n, ok := m.State.Node(m.id); ok {
		if group, yes := m.State.Awaits(n); yes {
			return fmt.Errorf("this node takes the place of another that was called %s: group %d does not have its replica back yet", n.Name, group)
		}
	}
	return nil
}

// serves is the reason why requests are not served.
func (m *Member) serves() error {
	select {
	case <-m.host.Started():
	default:
		return timer.ErrRecovering
	}
	if why := m.clock.Fault(); why != "" {
		return errors.New(why + ": nothing is started, expired or forgotten meanwhile")
	}
	if err := m.host.NotReady(); err != nil {
		return err
	}
	if id, _, _ := m.State.Cluster(); id == "" || m.State.Secret() == nil {
		return errors.New("the cluster is being founded")
	}
	for _, row := range m.State.Rows() {
		if _, led := m.host.Leader(row.Group); !led && row.Names(m.id) {
			return &shard.NoLeaderError{Group: row.Group}
		}
	}
	if why := m.cfg.LacksKey(); why != "" {
		return errors.New(why)
	}
	return m.host.NotReady() // once more: the shards are all there now, and are to have fired
}

// HandOver gives the leaderships to others, as far as there are any that may take them, until the
// context ends. The node takes none any more.
func (m *Member) HandOver(ctx context.Context) {
	m.Stop()
	select {
	case <-m.host.Started():
	default:
		return // it leads nothing yet
	}
	m.host.Cordon(true)
	for m.couldHandOver() && m.tasks.Sleep(ctx, readyEach) {
	}
}

// couldHandOver reports that this node leads a group with another member that could take over.
func (m *Member) couldHandOver() bool {
	for _, g := range m.host.Groups() {
		if !g.Leads {
			continue
		}
		for _, id := range g.Voters {
			if node := ring.NodeOfReplica(id); node != m.id && m.mayLead.has(node) {
				return true
			}
		}
	}
	return false
}

// nodeSet is a set of nodes that is replaced whole.
type nodeSet struct {
	nodes atomic.Pointer[map[uint64]bool]
}

// set takes a set, which is not to change any more.
func (s *nodeSet) set(nodes map[uint64]bool) { s.nodes.Store(&nodes) }

func (s *nodeSet) has(node uint64) bool {
	nodes := s.nodes.Load()
	return nodes != nil && (*nodes)[node]
}
