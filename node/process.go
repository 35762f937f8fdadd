package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/transport/peer"
	"carillon/wal"
)

// group waits for goroutines.
type group = sync.WaitGroup

// process is one run of a node: what it has before it is of a cluster, and its core once it is.
type process struct {
	cfg        Config
	log        *slog.Logger
	fsys       wal.FS
	clock      shard.Clock
	wall       func() time.Time // the same clock's wall time
	nodeID     uint64
	nonce      uint64
	http, peer net.Listener
	ports      bool // there are ports for other nodes; without them peer is nil

	peers   *peer.Transport
	members *ring.Members
	pulse   *pulse
	health  *health
	memory  *memoryUse
	intakes intakes
	guard   *guard
	vault   vault

	answering sync.Mutex // one question about lost entries at a time

	strangers atomic.Bool                 // a node was met that this one's copy of the members does not have
	vouched   atomic.Pointer[[]ring.Node] // the members as another one has them; replaced whole

	mu         sync.Mutex
	id         identity // as on disk
	foundingMu sync.Mutex
	founding   *ring.Founding

	core       atomic.Pointer[core]
	waiting    atomic.Pointer[string] // what the node waits for before it has a core
	stopping   atomic.Bool
	running    context.Context // of work in the background
	background sync.WaitGroup
	failure    chan error // capacity 1
}

// identity is as it stands on disk.
func (p *process) identity() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// change writes a changed identity.
func (p *process) change(fn func(*identity)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.id
	fn(&next)
	if err := next.write(p.fsys, p.cfg.DataDir); err != nil {
		return err
	}
	p.id = next
	return nil
}

// moved is told that gossip knows something new.
func (p *process) moved() {
	if c := p.core.Load(); c != nil {
		c.look()
	}
}

func (p *process) stage(text string) { p.waiting.Store(&text) }

// fail ends the process.
func (p *process) fail(err error) {
	select {
	case p.failure <- err:
	default:
	}
}

// hello is how this node introduces itself to others.
func (p *process) hello() peer.Hello {
	id := p.identity()
	return peer.Hello{Cluster: id.ClusterID, Node: p.nodeID, Name: p.cfg.Name, Starts: id.Starts, Nonce: p.nonce, Version: p.cfg.Version}
}

// addressOf is where a node listens for its peers: gossip knows it soonest, the cluster's own record always.
func (p *process) addressOf(node uint64) string {
	for _, m := range p.members.List() {
		if m.ID == node && m.State == ring.MemberAlive {
			return m.Peer
		}
	}
	if c := p.core.Load(); c != nil {
		if n, ok := c.state.Node(node); ok && n.State != ring.NodeRemoved {
			return n.Peer
		}
	}
	if n, ok := p.vouchedFor(node); ok {
		return n.Peer
	}
	if id := p.identity(); id.Promise != nil {
		for _, n := range id.Promise.Nodes {
			if n.ID == node {
				return n.Peer
			}
		}
	}
	return ""
}

// wire makes the transport and the gossip; it starts neither.
func (p *process) wire() error {
	p.warnUnproven()
	file, err := p.cfg.readGossipKeys()
	if err != nil {
		return err
	}
	p.warnShared(p.cfg.GossipKeyFile, file.shared)
	if shared, err := p.cfg.checkPeerKey(); err == nil {
		p.warnShared(p.cfg.PeerKey, shared)
	}
	tls, err := p.cfg.peerTLS(file.keys)
	if err != nil {
		return err
	}
	if p.peers, err = peer.New(peer.Config{
		Self: p.hello, Address: p.addressOf, Admit: p.admit, Handler: links{p}, Logger: p.log, TLS: tls,
	}); err != nil {
		return err
	}
	id := p.identity()
	self := ring.Member{ID: p.nodeID, Starts: id.Starts, Name: p.cfg.Name, HTTP: p.reachable(p.http), Peer: p.reachable(p.peer),
		Zone: p.cfg.Zone, Version: p.cfg.Version, Cluster: id.ClusterID}
	if id.ClusterID == "" && p.cfg.BootstrapExpect > 1 {
		self.Expect, self.Shards, self.Replicas = p.cfg.BootstrapExpect, p.cfg.Shards, p.cfg.Replicas
	}
	p.members, err = ring.NewMembers(ring.MembersConfig{Self: self, Bind: p.gossipAddress(), Advertise: p.cfg.Advertise, Join: p.cfg.Join,
		Keys: file.keys, Logger: p.log, Changed: p.moved})
	return err
}

// mayLead is who may lead, as a set that is replaced whole.
type mayLead struct {
	nodes atomic.Pointer[map[uint64]bool]
}

func (m *mayLead) set(nodes map[uint64]bool) {
	nodes = maps.Clone(nodes)
	m.nodes.Store(&nodes)
}

func (m *mayLead) has(node uint64) bool {
	nodes := m.nodes.Load()
	return nodes != nil && (*nodes)[node]
}

// none is a moment that never was.
const none = time.Duration(math.MinInt64)

// health watches what makes a node unfit to lead: a disk that syncs slowly, a clock that is off.
type health struct {
	mu     sync.Mutex
	slow   [10]int // fsyncs of over half a second in each of the last seconds
	all    [10]int
	second int64
	since  time.Duration // the fsync that is under way began; none
	lacks  string        // a key that the node needs; see core.lacksKey
	full   bool          // the log waits for room on its disk
	reason string
	until  time.Duration
}

// syncs is told that an fsync begins. There is one log, so one at a time.
func (h *health) syncs(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

// synced takes the duration of an fsync.
func (h *health) synced(now, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = none
	h.turn(now)
	h.all[h.second%10]++
	if took > slowSync {
		h.slow[h.second%10]++
	}
}

// waits is told whether the log waits for room.
func (h *health) waits(full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.full = full
}

// turn clears the seconds that have passed.
func (h *health) turn(now time.Duration) {
	for second := int64(now / time.Second); h.second < second; {
		h.second = max(h.second+1, second-10)
		h.all[h.second%10], h.slow[h.second%10] = 0, 0
	}
}

// lacksKey is told which key the node lacks, if any.
func (h *health) lacksKey(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lacks = why
}

// unfit says why this node should not lead now; empty: it may.
func (h *health) unfit(now time.Duration, p *pulse) string {
	reason := ""
	if off, ok := p.clockOff(now); ok && (off > clockLimitMs || off < -clockLimitMs) {
		reason = fmt.Sprintf("its clock is %d ms from the others' median", off)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn(now)
	all, slow := 0, 0
	for i := range h.all {
		all, slow = all+h.all[i], slow+h.slow[i]
	}
	if slow > 0 && slow*100 > all {
		reason = fmt.Sprintf("%d of its last %d fsyncs took over %s", slow, all, slowSync)
	}
	if lasts := now - h.since; h.since != none && lasts > hungSync { // it may never end: what was slow before says nothing of it
		reason = fmt.Sprintf("an fsync takes longer than %s", hungSync)
	}
	if h.full {
		reason = "its disk is full: the log waits for room"
	}
	if h.lacks != "" {
		reason = h.lacks
	}
	if reason != "" {
		h.reason, h.until = reason, now+unfitHold
	} else if now >= h.until {
		h.reason = ""
	}
	return h.reason
}

// why is unfit's last answer.
func (h *health) why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}
