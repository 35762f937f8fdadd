package node

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"carillon/internal/audit"
	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/internal/tracing"
	"carillon/internal/vfs"
	"carillon/node/feed"
	"carillon/node/limits"
	"carillon/node/member"
	"carillon/node/route"
	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/halt"
	"carillon/transport/api/backend"
	"carillon/transport/callback"
	"carillon/transport/peer"
)

// group waits for goroutines.
type group = sync.WaitGroup

// process is one run of a node: the parts that it has before it is of a cluster, and its core once
// it is.
type process struct {
	cfg        Config
	log        *slog.Logger
	fsys       vfs.FS
	clock      *clocks.Keeper // the machine's
	timers     timeSource     // the clock of timers: clock, or testClock
	testClock  *testClock     // nil: there is none
	clockSaved *clocks.Saved  // as it was kept last
	bootID     string         // of the machine
	nonce      uint64
	http, peer net.Listener
	ports      bool // there are ports for other nodes; without them peer is nil

	self         *member.Self
	tasks        *task.Goroutines // work in the background
	peers        *peer.Transport
	members      *ring.Members
	memory       *limits.MemoryUse
	snapshots    snapshotReceivers // from other nodes
	ownAddresses *ownAddresses
	vault        vault
	trail        *audit.Log // nil: there is none
	backups      *backupSchedule
	tracer       *tracing.Tracer // nil: nothing is traced

	core    atomic.Pointer[core]
	running context.Context // of work in the background
	failure chan error      // capacity 1
}

// core is the node once it is of a cluster: its shards, its copy of the meta group's state, and the
// ways to both.
type core struct {
	p       *process
	host    *shard.Host
	member  *member.Member
	router  *route.Router
	topics  *route.Topics
	idle    *route.IdleTopics
	history *historyAdapter
	feed    *feed.Feed
	pool    *callback.Pool // of calls to receivers
	shown   *backend.Core  // what the API sees of it
}

// started reports whether the node has read its log.
func (c *core) started() bool { return task.Ended(c.host.Started()) }

// setCore sets the node's shards; nil: it has none any more.
func (p *process) setCore(c *core) {
	p.core.Store(c)
	if c == nil {
		p.self.SetMember(nil)
		return
	}
	p.self.SetMember(c.member)
}

func (p *process) fail(err error) {
	if _, halted := errors.AsType[*halt.Error](err); halted {
		err = stayDown(err)
	}
	select {
	case p.failure <- err:
	default:
	}
}

// newFeed makes the feed that shows the events of this node's shards, and of others', to listeners.
func (c *core) newFeed(rates *feed.Rates, pool *callback.Pool) *feed.Feed {
	state := c.member.State
	return feed.New(feed.Config{
		Self: c.p.self.ID(), Shards: c.member.Shards, Steady: c.member.Steady, Rates: rates, Backup: c.p.backups.stats, Growth: c.grown,
		Breakers: func() map[string]string {
			states := map[string]string{}
			pool.Breakers(func(destination string, state delivery.BreakerState) {
				states[destination] = string(destinationStates[state])
			})
			return states
		},
		States: func() map[string]string {
			states := map[string]string{}
			for _, n := range (&engine{p: c.p}).View().Nodes {
				states[n.Name] = string(n.State)
			}
			return states
		},
		Members: func() (ids []uint64) {
			for _, n := range state.Nodes() {
				ids = append(ids, n.ID)
			}
			return ids
		},
		Node: c.p.cfg.Name, Topic: state.Topic, Nodes: c.member.LiveNodes, Call: c.p.peers.Call, Tasks: c.p.tasks, NowMs: c.p.timers.WallMs,
		Name: func(node uint64) string {
			n, _ := state.Node(node)
			return n.Name
		},
	}, c.p.nonce)
}

// random fills b with bytes that nobody can guess.
func random(b []byte) { _, _ = rand.Read(b) } // it does not fail: see crypto/rand

// ownDirectory makes the process's self of the identity in its directory.
func (p *process) ownDirectory() (err error) {
	p.tasks = task.NewGoroutines(p.clock.Mono)
	c := &p.cfg
	p.self, err = member.NewSelf(member.Config{
		Name: c.Name, Zone: c.Zone, Version: c.Version, Level: c.level(),
		Join: c.Join, BootstrapExpect: c.BootstrapExpect, Shards: c.Shards, Replicas: c.Replicas, NamesProven: c.PeerCert != "", PeersProven: p.proven(),
		Keys: p.vault.keys.Load, LacksKey: p.lacksKey,
		FS: p.fsys, Dir: c.DataDir, Clock: p.clock, Tasks: p.tasks, Random: random, Logger: p.log, Fail: p.fail,
	})
	return err
}

// wire makes the transport and the gossip, once the listeners are bound; it starts neither.
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
	http, peerAddr := p.reachable(p.http), p.reachable(p.peer)
	p.self.SetAddresses(http, peerAddr)
	if p.peers, err = peer.New(peer.Config{
		Self: func() peer.Hello {
			h := p.self.Hello()
			h.Nonce = p.nonce
			return h
		},
		Address: p.self.AddressOf, HeardAt: p.self.HeardAt, Admit: p.self.Admit, Handler: peerHandler{p}, Logger: p.log, TLS: tls, NodeName: p.self.NameOf,
		BulkBytesPerSecond: ring.MoveRate,
	}); err != nil {
		return err
	}
	id := p.self.Identity()
	self := ring.Member{ID: id.NodeID, Starts: id.Starts, Name: p.cfg.Name, HTTP: http, Peer: peerAddr,
		Zone: p.cfg.Zone, Version: p.cfg.Version, Level: p.cfg.level(), Cluster: id.ClusterID}
	join := p.cfg.Join
	if id.Rejoin != nil {
		join = slices.Concat(join, id.Rejoin.Seeds)
	}
	if id.ClusterID == "" && id.Rejoin == nil && p.cfg.BootstrapExpect > 1 {
		self.Expect, self.Shards, self.Replicas = p.cfg.BootstrapExpect, p.cfg.Shards, p.cfg.Replicas
	}
	p.members, err = ring.NewMembers(ring.MembersConfig{Self: self, Bind: p.gossipAddress(), Advertise: p.cfg.Advertise, Join: join,
		Keys: file.keys, Logger: p.log, Changed: p.self.GossipChanged})
	if err != nil {
		return err
	}
	p.self.Connect(p.peers, p.members)
	return nil
}

// reachable is a listener's address as others use it; none is "".
func (p *process) reachable(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil || p.cfg.Advertise == "" {
		return ln.Addr().String()
	}
	return net.JoinHostPort(p.cfg.Advertise, port)
}

// membersChanged keeps callbacks off the addresses at which members listen. A node that has others
// and no port for them cannot continue.
func (p *process) membersChanged(state *ring.State) {
	p.ownAddresses.update(state.Nodes(), p.members.List())
	if p.peer == nil && len(state.Nodes()) > 1 {
		p.fail(errPortsClosed)
	}
}

var errNotYet = errors.New("this node has not joined its cluster yet")

// logStarted logs the node's description, once it has read its log.
func (n *Node) logStarted(c *core) {
	s := c.host.Stats()
	n.cfg.Logger.Info("the node has started", "version", n.cfg.Version, "name", n.cfg.Name, "data", n.cfg.DataDir, "api", n.URL(),
		"shards", c.p.self.Identity().Shards, "timers_led", s.Scheduled+s.Leased, "api_tls", onOff(n.tls != nil), "tokens", onOff(n.auth != nil),
		"peers_proven", onOff(c.p.proven()), "callbacks_go_to", allowedText(c.pool.Policy()))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
