package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/ring"
	"carillon/transport/peer"
)

// peers simulates the peer transport of one process: frames, calls and admission. It implements
// member.Peers and route.Peers.
type peers struct {
	n    *node
	life uint64
}

// process identifies one process of a node, as others meet it.
type process struct {
	starts uint32
	life   uint64
}

// older reports whether other, a process of the same node, is not newer than p.
func (p process) older(other process) bool {
	return other.starts < p.starts || other.starts == p.starts && other.life != p.life
}

// connection is one direction between two processes that have both accepted the handshake. It holds
// their lives.
type connection struct{ from, to uint64 }

// hello is the handshake message of a process.
func (n *node) hello(lane peer.Lane) peer.Hello {
	h := n.self.Hello()
	h.Lane, h.Nonce = lane, n.life
	return h
}

// connect performs the handshake from one process to another, unless it has been done. Each side
// must admit the other, and neither accepts an older process of a node than it has met.
func (w *World) connect(from, to *node, lane peer.Lane) error {
	if from.self == nil || to.self == nil {
		return errors.New("there is no process")
	}
	link := [2]uint64{from.id, to.id}
	if lane != peer.LaneOnce {
		if w.net.connections[link] == (connection{from.life, to.life}) {
			return nil
		}
	}
	for _, side := range [2][2]*node{{from, to}, {to, from}} {
		self, other := side[0], side[1]
		if met := self.met[other.id]; lane != peer.LaneOnce && met.older(process{other.starts, other.life}) {
			return fmt.Errorf("node %d has started %d times before", other.id, met.starts)
		}
		if err := self.self.Admit(other.hello(lane)); err != nil {
			return err
		}
	}
	if lane != peer.LaneOnce {
		w.heardOlder(from, to)
		w.heardOlder(to, from)
		from.met[to.id], to.met[from.id] = process{to.starts, to.life}, process{from.starts, from.life}
		w.net.connections[link] = connection{from.life, to.life}
	}
	return nil
}

// heartbeatKind is the first byte of a member's heartbeats.
const heartbeatKind = 0xB1

// Send implements member.Peers for heartbeats. Unlike other frames they are neither repeated nor
// delayed for minutes.
func (p *peers) Send(to uint64, frame []byte) bool {
	n, w := p.n, p.n.w
	if n.life != p.life || n.silent() {
		return true
	}
	if frame[0] != heartbeatKind { // a report of log progress: no checker depends on it
		_, synced := n.host.LogEnd()
		w.carryOnce(n, to, func(to *node) {
			if w.connect(n, to, peer.LaneControl) == nil {
				to.self.Frame(n.id, frame)
				to.inContact(n)
				to.hearsEnd(n, p.life, synced)
			}
		})
		return true
	}
	sees := n.lookOnce()
	w.carryOnce(n, to, func(to *node) {
		to.hearDisks() // reports from before a silence do not count until this heartbeat
		if w.connect(n, to, peer.LaneControl) == nil && to.self.Frame(n.id, frame) {
			to.inContact(n)
			to.see(n.id, sees)
			to.hearDisks()
		}
	})
	return true
}

// Review implements member.Peers.
func (p *peers) Review(refuse func(peer.Hello) error) {
	w := p.n.w
	for link, c := range w.net.connections {
		var other *node
		switch p.n.id {
		case link[0]:
			other = w.node(link[1])
		case link[1]:
			other = w.node(link[0])
		}
		if other != nil && other.self != nil && (c.from == other.life || c.to == other.life) && refuse(other.hello(peer.LaneControl)) != nil {
			delete(w.net.connections, link)
		}
	}
}

// Met implements member.Peers.
func (p *peers) Met(node uint64) (starts uint32, nonce uint64, ok bool) {
	met, ok := p.n.met[node]
	return met.starts, met.life, ok
}

// Forget implements member.Peers.
func (p *peers) Forget(node uint64) {
	delete(p.n.w.net.connections, [2]uint64{p.n.id, node})
	delete(p.n.w.net.connections, [2]uint64{node, p.n.id})
}

// Call implements member.Peers and route.Peers.
func (p *peers) Call(ctx context.Context, to uint64, method uint8, body []byte) ([]byte, error) {
	reply, _, err := p.call(ctx, p.n.w.node(to), peer.LaneCall, method, body)
	return reply, err
}

// CallAddr implements member.Peers.
func (p *peers) CallAddr(ctx context.Context, addr string, method uint8, body []byte) ([]byte, peer.Hello, error) {
	return p.call(ctx, p.n.w.at(addr), peer.LaneOnce, method, body)
}

// at is the machine that listens at an address, or the last one that did.
func (w *World) at(addr string) (found *node) {
	for _, n := range w.nodes {
		if n.address() == addr && (found == nil || n.up || !found.up) {
			found = n
		}
	}
	return found
}

var (
	errLost    = fmt.Errorf("%w: the connection broke", peer.ErrUnknown)
	errRefused = fmt.Errorf("%w: nobody takes it", peer.ErrNotSent)
)

// rpc is a call from one process to another.
type rpc struct {
	w        *World
	from, to *node
	who      peer.Hello // the caller's handshake
	lane     peer.Lane
	method   uint8
	body     []byte
	until    time.Duration // the caller's deadline, in the world's time
	fromLife uint64
	sent     bool // the request may have left the caller
	over     bool
	answered func()

	reply []byte
	hello peer.Hello
	err   error
}

func (p *peers) call(ctx context.Context, to *node, lane peer.Lane, method uint8, body []byte) ([]byte, peer.Hello, error) {
	n := p.n
	if to == nil || to == n || n.silent() {
		return nil, peer.Hello{}, errRefused
	}
	pullOf(ctx).asks(method)
	c := &rpc{w: n.w, from: n, to: to, who: n.hello(lane), lane: lane, method: method, body: slices.Clone(body), fromLife: p.life}
	if t, ok := ctx.(*taskContext); ok {
		c.until = t.until
	}
	done := n.tasks.NewSignal()
	c.answered = done.Set
	c.send()
	if !done.Wait(ctx, time.Minute) && !c.over {
		c.over = true
		if c.err = errRefused; c.sent {
			c.err = errLost
		}
	}
	return c.reply, c.hello, c.err
}

// end delivers the result to the caller after d, if it still waits.
func (c *rpc) end(d time.Duration, reply []byte, hello peer.Hello, err error) {
	c.w.after(d, func() {
		if c.from.life == c.fromLife {
			c.from.doFrom(c.to.id, func() {
				if c.sent && c.to.up {
					c.from.hears(c.to)
				}
				if !c.over {
					c.over, c.reply, c.hello, c.err = true, reply, hello, err
					c.answered()
				}
			})
		}
	})
}

// travels reports whether a message arrives, and after how long. The loss of a message may break
// its connection or stay unnoticed.
func (c *rpc) travels(from, to *node, lost error) (time.Duration, bool) {
	w := c.w
	if w.net.blocked(from.id, to.id) || w.chance.hit(w.swarm.loss/3) {
		if w.chance.IntN(2) == 0 {
			c.end(w.chance.between(0, 50*time.Millisecond), nil, peer.Hello{}, lost)
		}
		return 0, false
	}
	return w.delay(), true
}

func (c *rpc) send() {
	w := c.w
	open := w.net.connections[[2]uint64{c.from.id, c.to.id}] == connection{c.from.life, c.to.life}
	c.sent = open
	lost := errRefused
	if open {
		lost = errLost
	}
	d, ok := c.travels(c.from, c.to, lost)
	if !ok {
		return
	}
	w.after(d, func() {
		switch {
		case w.net.blocked(c.from.id, c.to.id):
		case c.over && !c.sent: // the caller gave up before there was a connection
		case !c.to.up || c.from.life != c.fromLife:
			c.end(w.delay(), nil, peer.Hello{}, errRefused)
		case w.connect(c.from, c.to, c.lane) != nil:
			c.end(w.delay(), nil, peer.Hello{}, errRefused)
		default:
			c.sent = true
			c.to.doFrom(c.from.id, func() {
				c.to.hears(c.from)
				c.arrive()
			})
		}
	})
}

// arrive has the called process answer.
func (c *rpc) arrive() {
	w, to := c.w, c.to
	if to.self == nil {
		c.end(w.delay(), nil, peer.Hello{}, errLost)
		return
	}
	to.calls = append(to.calls, c)
	to.tasks.Go(func() {
		left := time.Minute
		if c.until > 0 {
			left = c.until - w.now
		}
		ctx, cancel := to.tasks.WithTimeout(to.tasks.ctx, left)
		defer cancel()
		reply, err := to.serve(ctx, c.who, c.method, c.body)
		to.calls = slices.DeleteFunc(to.calls, func(o *rpc) bool { return o == c })
		if to.silent() {
			return
		}
		if err != nil {
			err = remoteError(err)
		}
		if d, ok := c.travels(to, c.from, errLost); ok {
			c.end(d, reply, to.hello(c.lane), err)
		}
	})
}

// remoteError converts a handler's error as the transport does.
func remoteError(err error) error {
	e := &peer.RemoteError{Text: err.Error()}
	var coded interface{ PeerCode() byte }
	if errors.As(err, &coded) {
		e.Code = coded.PeerCode()
	}
	return e
}

// breakCalls tells most callers at once that the process they called has ended.
func (n *node) breakCalls() {
	for _, c := range n.calls {
		if n.w.chance.IntN(4) > 0 {
			c.end(n.w.chance.between(0, 20*time.Millisecond), nil, peer.Hello{}, errLost)
		}
	}
	n.calls = nil
}

// serve answers a call from another node.
func (n *node) serve(ctx context.Context, from peer.Hello, method uint8, body []byte) ([]byte, error) {
	if answer, handled, err := n.self.Call(ctx, from, method, body); handled {
		return answer, err
	}
	return n.router.Serve(ctx, from.Node, method, body)
}

// Gossip: how often a process looks for others, after which silence it counts one as dead, and
// after which it forgets one.
const (
	gossipEach   = 300 * time.Millisecond
	deadInGossip = 5 * time.Second
	oldInGossip  = time.Minute
)

// gossip simulates a process's discovery: it finds the processes that it can reach, with some
// delay. It implements member.Gossip.
type gossip struct {
	n    *node
	own  ring.Member
	seen map[uint64]*seenMember
}

type seenMember struct {
	member ring.Member
	at     time.Duration
}

func newGossip(n *node) *gossip {
	g := &gossip{n: n, seen: map[uint64]*seenMember{}}
	id := n.self.Identity()
	g.own = ring.Member{ID: n.id, Starts: n.starts, Name: n.name, HTTP: n.name + ":7700", Peer: n.address(), Gossip: n.name + ":7702", Level: n.level, Cluster: id.ClusterID}
	if s := &n.w.swarm; id.ClusterID == "" && n.founds && s.nodes > 1 {
		g.own.Expect, g.own.Shards, g.own.Replicas = s.nodes, s.shards, s.replicas
	}
	return g
}

// Ready implements member.Gossip.
func (g *gossip) Ready() <-chan struct{} { return always }

// always is a closed channel.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Addr implements member.Gossip.
func (g *gossip) Addr() string { return g.own.Gossip }

// List implements member.Gossip.
func (g *gossip) List() []ring.Member {
	list := []ring.Member{g.own}
	for _, other := range g.n.w.nodes {
		if s := g.seen[other.id]; s != nil {
			list = append(list, s.member)
		}
	}
	return list
}

// joined announces that the node belongs to a cluster.
func (g *gossip) joined(cluster string) {
	g.own.Cluster, g.own.Expect, g.own.Shards, g.own.Replicas = cluster, 0, 0, 0
}

// look updates the list of processes that can be reached.
func (g *gossip) look() {
	n, w := g.n, g.n.w
	changed := false
	for _, other := range w.nodes {
		s := g.seen[other.id]
		switch {
		case other == n:
		case other.up && !other.paused && other.gossip != nil && !w.net.blocked(n.id, other.id) && !w.net.blocked(other.id, n.id):
			if s == nil {
				s = &seenMember{}
				g.seen[other.id] = s
			}
			changed = changed || s.member != other.gossip.own
			s.member, s.at = other.gossip.own, w.now
		case s == nil:
		case w.now-s.at > oldInGossip:
			delete(g.seen, other.id)
		case w.now-s.at > deadInGossip && s.member.State == ring.MemberAlive:
			s.member.State, changed = ring.MemberDead, true
		}
	}
	if changed {
		n.self.GossipChanged()
	}
}
