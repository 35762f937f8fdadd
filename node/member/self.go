// Package member is this node as a member of its cluster: its identity on disk, how it founds a
// cluster with others or joins one, which nodes it hears and whether it is healthy, the
// controller's turn on the meta group's leader, and its part of topics' limits.
//
// Self is the node from its start on; Member is the node once it is of a cluster and has its
// shards. Their surroundings are given to them as interfaces: the host of the shards, calls to
// other nodes, discovery, the file system, clocks, and time itself (see package task). So the
// simulator drives the same code as a node does.
//
// The package decides which nodes may speak to this one and which should lead; it does not carry
// requests: that is package route.
package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/feature"
	"carillon/internal/secret"
	"carillon/internal/vfs"
	"carillon/node/task"
	"carillon/ring"
	"carillon/transport/peer"
)

// ErrRemoved ends the process: the cluster has removed the node, and there is nothing left for it
// to do.
var ErrRemoved = errors.New("node: this node was removed from the cluster; its data directory can be deleted")

// errUnjoined is for another node to read.
var errUnjoined = fmt.Errorf("%w: the node that refuses has not joined its cluster", peer.ErrLater)

var errNotYet = errors.New("this node has not joined its cluster yet")

// Peers are the other nodes: a peer.Transport.
type Peers interface {
	// Send gives a frame to a node's connection; false when that is surely in vain.
	Send(node uint64, frame []byte) bool
	// Call has a node answer; see peer.ErrNotSent, peer.ErrUnknown and peer.RemoteError.
	Call(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error)
	// CallAddr is Call for the node at an address.
	CallAddr(ctx context.Context, addr string, method uint8, body []byte) ([]byte, peer.Hello, error)
	// Review ends the connections of those that are refused now.
	Review(refuse func(peer.Hello) error)
	// Met is the newest process of a node that was admitted; false: none was.
	Met(node uint64) (starts uint32, nonce uint64, ok bool)
	// FindsGone dials a node and reports whether a process of it seems to be gone; see
	// peer.Transport.FindsGone.
	FindsGone(ctx context.Context, node uint64, starts uint32) bool
	// Forget ends all that there is with a node.
	Forget(node uint64)
}

// Gossip is discovery: ring.Members.
type Gossip interface {
	Ready() <-chan struct{} // closed once its address is known
	Addr() string           // of this node; empty where there are no others
	List() []ring.Member
}

// Config is the configuration of a Self.
type Config struct {
	Name, Zone, Version string
	HTTP, Peer          string        // addresses of this node as others reach it
	Level               feature.Level // the highest feature level that it understands; 0: the first

	// For a node that is of no cluster yet.
	Join                              []string
	BootstrapExpect, Shards, Replicas int

	NamesProven bool // nodes have certificates, so their names are proven
	// Nodes prove that they are nodes. Otherwise no answer of theirs may end this process.
	PeersProven  bool
	ReplaceAfter time.Duration // how long a node must be down before others take its replicas; 10m

	Keys     func() *secret.Keys // that secrets are sealed by; they may change
	LacksKey func() string       // which key this node would need and does not have; empty: none

	FS     vfs.FS
	Dir    string
	Clock  *clocks.Keeper
	Tasks  task.Env
	Random func([]byte) // fills it with bytes that nobody can guess
	Logger *slog.Logger

	// Fail ends the process for good, with the reason.
	Fail func(error)
}

// Self is this node, from its start on. Its methods may be called from any goroutine.
type Self struct {
	cfg   Config
	id    uint64
	log   *slog.Logger
	clock *clocks.Keeper
	tasks task.Env

	peers    Peers
	gossip   Gossip
	liveness *liveness
	Health   *Health

	// The node that was met last of those that this one's copy of the members does not have; 0: none
	// since the last refresh.
	unknownPeer atomic.Uint64
	refreshed   atomic.Pointer[[]ring.Node] // the members as another one has them; replaced whole
	askedToJoin int                         // members that were asked to let this node in, of whatever answer

	changeMu      sync.Mutex
	identity      atomic.Pointer[Identity] // as on disk; replaced whole
	confirmations confirmations            // of this process
	logEnds       logEnds                  // of others
	sizes         shardSizes               // of others

	member   atomic.Pointer[Member]
	waiting  atomic.Pointer[string] // the event for which the node waits before it is a member
	stopping atomic.Bool
	damaged  atomic.Bool // its directory is, and it waits to be replaced
}

// ask has the node at an address answer a question, both as JSON; a question may be nil. from is who
// has answered, also where the answer is an error.
func ask(ctx context.Context, s *Self, addr string, method uint8, question, answer any) (from peer.Hello, err error) {
	var body []byte
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return from, err
		}
	}
	ctx, cancel := s.tasks.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, from, err := s.peers.CallAddr(ctx, addr, method, body)
	if err != nil {
		return from, err
	}
	return from, json.Unmarshal(reply, answer)
}

// NewSelf claims the data directory's identity, or makes one for an empty directory.
func NewSelf(cfg Config) (*Self, error) {
	id, err := lockIdentity(cfg.FS, cfg.Dir, cfg.Random)
	if err != nil {
		return nil, err
	}
	s := &Self{cfg: cfg, id: id.NodeID, log: cfg.Logger, clock: cfg.Clock, tasks: cfg.Tasks, liveness: newLiveness(cfg.Clock.Mono()), Health: newHealth()}
	s.identity.Store(&id)
	return s, nil
}

// Connect gives it its ways to others, before it runs.
func (s *Self) Connect(peers Peers, gossip Gossip) { s.peers, s.gossip = peers, gossip }

// SetAddresses sets where others reach this node, before it runs.
func (s *Self) SetAddresses(http, peer string) { s.cfg.HTTP, s.cfg.Peer = http, peer }

func (s *Self) ID() uint64 { return s.id }

// Identity is as it stands on disk.
func (s *Self) Identity() Identity { return *s.identity.Load() }

func (s *Self) Change(fn func(*Identity)) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	next := s.Identity()
	fn(&next)
	if err := next.Write(s.cfg.FS, s.cfg.Dir); err != nil {
		return err
	}
	s.identity.Store(&next)
	return nil
}

// SetMember sets the node as a member with its shards; nil: it has none any more.
func (s *Self) SetMember(m *Member) { s.member.Store(m) }

// Waiting names the event for which the node waits before it is a member; empty: none is known.
func (s *Self) Waiting() string {
	if text := s.waiting.Load(); text != nil && s.member.Load() == nil {
		return *text
	}
	return ""
}

// Wait names the event for which the node waits from now on.
func (s *Self) Wait(text string) { s.waiting.Store(&text) }

// Stop keeps the node from leading anything from now on.
func (s *Self) Stop() { s.stopping.Store(true) }

// GossipChanged is called when discovery knows something new.
func (s *Self) GossipChanged() {
	if m := s.member.Load(); m != nil {
		m.look()
	}
}

// describe is this node as it registers.
func (s *Self) describe() (ring.Node, error) {
	if !task.Ended(s.gossip.Ready()) {
		return ring.Node{}, errors.New("gossip is not bound yet")
	}
	gossip := s.gossip.Addr()
	return ring.Node{
		ID: s.id, Name: s.cfg.Name, HTTP: ring.ReachedAt(s.cfg.HTTP, gossip), Peer: ring.ReachedAt(s.cfg.Peer, gossip), Gossip: gossip,
		Zone: s.cfg.Zone, Version: s.cfg.Version, Level: s.cfg.Level, Starts: s.Identity().Starts,
	}, nil
}

// rareLog keeps a repeated line from flooding the log. Any task may use it.
type rareLog struct {
	tasks task.Env

	mu   sync.Mutex
	last time.Duration
	said bool
}

func newRareLog(tasks task.Env) *rareLog { return &rareLog{tasks: tasks} }

// do runs what, which logs the line, unless it did so less than a noticeInterval ago.
func (r *rareLog) do(what func()) {
	r.mu.Lock()
	now := r.tasks.Now()
	say := !r.said || now-r.last >= noticeInterval
	if say {
		r.last, r.said = now, true
	}
	r.mu.Unlock()
	if say {
		what()
	}
}

// ending ends this process where another node knows a reason: it was removed, or it runs on an
// older copy of its data directory.
type ending struct {
	*local
	once     sync.Once
	unproven *rareLog // of a reason that is not believed
}

// leaveCluster ends the process: the cluster has removed the node.
func (e *ending) leaveCluster() { e.once.Do(func() { e.cfg.Fail(ErrRemoved) }) }

// haltAsOlder ends the process for good.
func (e *ending) haltAsOlder(why error) {
	e.once.Do(func() { e.cfg.Fail(e.outdated(why)) })
}

// believed reports whether this node ends for a reason that another node gives: it must be the
// member that was asked, and have proven that it is a node. The reason is for the log.
func (e *ending) believed(asked ring.Node, from peer.Hello, word string) bool {
	if from.Node != asked.ID || from.Cluster != e.Identity().ClusterID {
		return false
	}
	if e.cfg.PeersProven {
		return true
	}
	e.unproven.do(func() {
		e.log.Warn("a node answers that this one "+word+". Without a key (--gossip-key) its answer proves nothing, so this node "+
			"continues, although the others may ignore it; if it is true, stop this node", "node", asked.Name)
	})
	return false
}
