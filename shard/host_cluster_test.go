package shard

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/placement"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
)

// hostCluster is a cluster of harnesses with one shard and a changing assignment. Each harness also
// has a meta group of its own. A test drives the cluster step by step; a step is a worker's turn or
// one write of a log. So a process can be ended between any two of them. It must run in a synctest
// bubble.
type hostCluster struct {
	hosts  []*hostHarness // nodes 7, 8, …
	away   []bool         // by node: cut off from all others
	slow   int            // the node with a log that writes once per tick; -1: none
	hung   int            // the node with a log that writes nothing; -1: none
	still  int            // the node that takes no turns; -1: none
	ended  error          // the error with which a process ended itself, as mayEnd allows
	mayEnd error          // the error with which a process may end itself; nil: none
	row    Assignment
	told   Assignment // the assignment as the reachable nodes know it
	child  Assignment // of shard 2, which shard 1 is divided for; Group 0: it is not
	later  Assignment // of shard 3, which shard 1 is divided for once there are four; Group 0: it is not
	shards int        // that the nodes know of; 0: one
	ships  []func()
	steps  int
	after  func() // called after each step; nil: nothing
	adds   []*pending
	acked  []string
}

const firstNode = 7

// newHostCluster bootstraps shard 1 on founders, of the given number of nodes. The first founder
// leads.
func newHostCluster(t testing.TB, nodes int, founders []int, more ...func(*Config)) *hostCluster {
	return newHostClusterOf(t, nodes, founders, func(_ int, cfg *Config) {
		for _, change := range more {
			change(cfg)
		}
	})
}

// newHostClusterOf is newHostCluster with a configuration for each node.
func newHostClusterOf(t testing.TB, nodes int, founders []int, change func(i int, cfg *Config)) *hostCluster {
	c := &hostCluster{away: make([]bool, nodes), slow: -1, hung: -1, still: -1, row: Assignment{Group: 1, Epoch: 1, Settled: true}}
	for _, at := range founders {
		c.row.Members = append(c.row.Members, Member{Node: firstNode + uint64(at), Replica: ReplicaID(firstNode+uint64(at), 1)})
	}
	c.told = c.row
	for i := range nodes {
		r := makeHarness(t, memfs.New(), nil)
		r.bubble = true
		r.change = func(cfg *Config) {
			cfg.Node = firstNode + uint64(i)
			cfg.Incarnation, cfg.Peers, cfg.Placement = table.NewIncarnation(cfg.Node, r.starts), &clusterMember{c: c, at: i}, &clusterMember{c: c, at: i}
			cfg.RetainBytes = 1 << 10
			change(i, cfg)
		}
		c.hosts = append(c.hosts, r)
	}
	for i := range nodes {
		c.open(i)
	}
	g := c.shard(founders[0])
	_ = g.raft.Campaign()
	g.w.touchNext(g)
	c.until("the first leads", 5*time.Second, g.serves)
	return c
}

// serves reports whether the group's replica leads and serves.
func (r *replica) serves() bool { return r.raft != nil && r.leader && r.serving }

// shard returns a node's replica of shard 1; nil: the node is down.
func (c *hostCluster) shard(i int) *replica {
	if c.hosts[i].host == nil {
		return nil
	}
	return c.hosts[i].host.group(1)
}

func (c *hostCluster) open(i int) {
	r := c.hosts[i]
	r.rows = append(soleRows(1, firstNode+uint64(i)), c.told)
	if c.child.Group != 0 {
		r.rows = append(r.rows, c.child)
	}
	r.clock = c.hosts[0].clock
	if err := r.open(); err != nil {
		c.fatalf("node %d does not start: %v", firstNode+i, err)
	}
	if c.shards > 1 {
		r.host.Grow(c.shards, c.shards/2)
		r.host.Place(r.rows)
	}
	synctest.Wait()
}

// crash ends a process. Data that was not synced is lost.
func (c *hostCluster) crash(i int) {
	r := c.hosts[i]
	if r.host == nil {
		return
	}
	disk := r.fs.CrashClone(calm{}, zeroLoss)
	host := r.host
	r.host = nil
	host.Abandon()
	synctest.Wait()
	r.calls.died()
	r.fs.Kill()
	r.fs = disk
}

// clusterMember connects one host to the others of its cluster: it is the host's Peers and
// Placement.
type clusterMember struct {
	staticPlacement
	c  *hostCluster
	at int
}

// reaches reports whether messages from this node reach the node to, and returns the index of to.
func (m *clusterMember) reaches(to uint64) (i int, ok bool) {
	i = int(to - firstNode)
	return i, i < len(m.c.hosts) && m.c.hosts[i].host != nil && m.c.hosts[m.at].host != nil && !m.c.away[i] && !m.c.away[m.at]
}

// Send implements Peers.
func (m *clusterMember) Send(to uint64, frame []byte) {
	i, ok := m.reaches(to)
	if !ok {
		if host := m.c.hosts[m.at].host; host != nil {
			host.Unreachable(to)
		}
		return
	}
	m.c.hosts[i].host.Deliver(firstNode+uint64(m.at), slices.Clone(frame))
}

// SendSnapshot implements Peers.
func (m *clusterMember) SendSnapshot(to uint64, stream *SnapshotStream) {
	host := m.c.hosts[m.at].host
	m.c.ships = append(m.c.ships, func() {
		if m.c.hosts[m.at].host == host {
			stream.Done(m.ship(to, stream))
		}
	})
}

func (m *clusterMember) ship(to uint64, stream *SnapshotStream) error {
	i, ok := m.reaches(to)
	if !ok {
		return io.ErrClosedPipe
	}
	source, err := stream.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	state := make([]byte, stream.Size)
	if _, err := io.ReadFull(source, state); err != nil {
		return err
	}
	into, err := m.c.hosts[i].host.Receive(firstNode+uint64(m.at), stream.Header, stream.Size)
	if err != nil {
		return err
	}
	if _, err := into.Write(state); err != nil {
		return err
	}
	return into.Commit()
}

// Settled implements Placement.
func (m *clusterMember) Settled(id timer.ShardID, epoch uint32) {
	switch {
	case id == 1 && epoch == m.c.row.Epoch:
		m.c.row.Settled = true
	case id == 2 && epoch == m.c.child.Epoch && !m.c.child.Settled:
		m.c.child.Settled = true
		m.c.placeAll()
	case id == 3 && epoch == m.c.later.Epoch && !m.c.later.Settled:
		m.c.later.Settled = true
		m.c.placeAll()
	}
}

// MayLead implements Placement: a node may lead if it is reachable and in the assignment.
func (m *clusterMember) MayLead(node uint64) bool {
	i := int(node - firstNode)
	return m.c.hosts[i].host != nil && !m.c.away[i] && placement.On(m.c.row.Members, node) != nil
}

// placeAll sends the current assignment to all reachable nodes.
func (c *hostCluster) placeAll() {
	c.told = c.row
	for i, r := range c.hosts {
		if r.host != nil && !c.away[i] {
			if c.shards > 1 {
				r.host.Grow(c.shards, c.shards/2)
			}
			r.host.Place([]Assignment{c.row, c.child, c.later})
		}
	}
}

// fault is a failure of a cluster test.
type fault struct{ error }

func (c *hostCluster) fatalf(format string, args ...any) { panic(fault{fmt.Errorf(format, args...)}) }

func (c *hostCluster) stepped() {
	if c.steps++; c.after != nil {
		c.after()
	}
}

// round runs a turn of each process and a write of each log, where there is work. It reports
// whether there was any.
func (c *hostCluster) round() (busy bool) {
	for i, r := range c.hosts {
		if r.host == nil || c.still == i || !r.busyBut(c.slow == i || c.hung == i) {
			continue
		}
		busy = true
		for _, w := range r.host.workers {
			w.turn()
		}
		if err := r.host.failed(); err != nil {
			if c.mayEnd == nil || !errors.Is(err, c.mayEnd) {
				c.fatalf("node %d ends: %v", firstNode+i, err)
			}
			c.ended = err
			c.crash(i)
			continue
		}
		if c.stepped(); r.host != nil && r.host.Background() {
			synctest.Wait()
		}
	}
	for i := range c.hosts {
		if i != c.slow && i != c.hung && i != c.still {
			c.write(i)
		}
	}
	ships := c.ships
	c.ships = nil
	for _, ship := range ships {
		ship()
		c.stepped()
	}
	return busy
}

// busyBut is busy. With log set, work that waits only for the log does not count.
func (h *hostHarness) busyBut(log bool) bool {
	h.freeze = log
	defer func() { h.freeze = false }()
	return h.busy()
}

// write runs one step of a node's log.
func (c *hostCluster) write(i int) {
	r := c.hosts[i]
	if r.host == nil || !r.host.Writing() {
		return
	}
	if _, err := r.host.stream.Step(); err != nil {
		c.fatalf("the log of node %d: %v", firstNode+i, err)
	}
	c.stepped()
}

// tick runs rounds until the cluster is idle, and then advances the clock by 50 ms.
func (c *hostCluster) tick() {
	for n := 0; c.round(); n++ {
		if n > 10_000 {
			c.fatalf("the council does not come to rest")
		}
	}
	if c.slow >= 0 {
		c.write(c.slow)
	}
	if c.row.Settled != c.told.Settled {
		c.placeAll()
	}
	c.hosts[0].step(tickInterval)
}

// until advances time until a condition holds.
func (c *hostCluster) until(what string, limit time.Duration, so func() bool) {
	clock := c.hosts[0].clock
	for end := clock.mono + limit; !so(); c.tick() {
		if clock.mono >= end {
			c.fatalf("after %s it is not so that %s%s", limit, what, c.describe())
		}
	}
}

// leader returns the serving leader of the newest term; nil: there is none.
func (c *hostCluster) leader() (best *hostHarness) {
	for i, r := range c.hosts {
		if g := c.shard(i); g != nil && !c.away[i] && g.serves() && (best == nil || g.term > best.host.group(1).term) {
			best = r
		}
	}
	return best
}

// add asks the leader to add a timer, and collects the acknowledgements of earlier adds.
func (c *hostCluster) add() {
	c.collectAnswers()
	if r := c.leader(); r != nil {
		id := fmt.Sprint("t", len(c.acked)+len(c.adds), "-", c.steps)
		if p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: r.clock.wallMs + 3_600_000, Payload: []byte(id), PayloadKind: timer.BinaryPayload}}); err == nil {
			c.adds = append(c.adds, p)
		}
	}
}

func (c *hostCluster) collectAnswers() {
	c.adds = slices.DeleteFunc(c.adds, func(p *pending) bool {
		if !p.answered() {
			return false
		}
		if p.op.err == nil && p.op.result.Code == timer.Created {
			c.acked = append(c.acked, p.cmd.ID)
		}
		return true
	})
}

// takes waits until a leader has acknowledged a new timer.
func (c *hostCluster) takes(limit time.Duration) {
	had := len(c.acked)
	c.until("a timer is taken", limit, func() bool {
		c.add()
		return len(c.acked) > had
	})
}

// concludes checks that exactly the nodes of the assignment have a replica, and that every
// acknowledged timer exists.
func (c *hostCluster) concludes(limit time.Duration) {
	c.takes(limit)
	c.until("the row is followed by all, and by them alone", limit, c.followed)
	g := c.leader().host.group(1)
	for _, id := range c.acked {
		if shardOf(g).table.Read(1, id) == nil {
			c.fatalf("timer %s was acknowledged and is gone%s", id, c.describe())
		}
	}
}

func (c *hostCluster) followed() bool {
	r := c.leader()
	if r == nil || !c.row.Settled {
		return false
	}
	lead := r.host.group(1)
	voters, _ := lead.membership.wanted()
	if !sameIDs(lead.store.Conf.Voters, voters) || len(lead.store.Conf.VotersOutgoing)+len(lead.store.Conf.Learners) > 0 {
		return false
	}
	for i := range c.hosts {
		g, member := c.shard(i), placement.On(c.row.Members, firstNode+uint64(i))
		switch {
		case g == nil:
			return false
		case member == nil:
			if g.id != 0 {
				return false
			}
		case g.id != member.Replica || g.applied != lead.applied || shardOf(g).table.Hash() != shardOf(lead).table.Hash():
			return false
		}
	}
	return true
}

func (c *hostCluster) describe() (text string) {
	for i := range c.hosts {
		g := c.shard(i)
		if g == nil || g.raft == nil {
			text += fmt.Sprintf("\nnode %d: no replica (up %v)", firstNode+i, g != nil)
			continue
		}
		text += fmt.Sprintf("\nnode %d: term %d, leads %v, serves %v, applied %d, log to %d, epoch %d, out %v, away %v, %v", firstNode+i,
			g.raft.BasicStatus().GetTerm(), g.leader, g.serving, g.applied, g.store.Last(), g.membership.epoch, g.membership.isOut(g), c.away[i], confText(g.store.Conf))
	}
	return text + fmt.Sprintf("\nrow %+v", c.row)
}

func confText(c *pb.ConfState) string {
	return fmt.Sprintf("voters %x, outgoing %x, learners %x", c.Voters, c.VotersOutgoing, c.Learners)
}

// end abandons all hosts.
func (c *hostCluster) end() {
	for _, r := range c.hosts {
		if r.host != nil {
			r.host.Abandon()
		}
	}
	synctest.Wait()
}

var _ interface {
	Peers
	Placement
} = (*clusterMember)(nil)
