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

// peers is what a process has of the transport: frames, calls, and who is let in. It implements member.Peers and route.Peers.
type peers struct {
	n    *node
	life uint64
}

// process is one of a node, as others meet it.
type process struct {
	starts uint32
	life   uint64
}

// older says of the newest process that was met whether another one of its node is no newer.
func (p process) older(other process) bool {
	return other.starts < p.starts || other.starts == p.starts && other.life != p.life
}

// connection is one direction between two processes, whose handshake both sides have agreed to.
type connection struct{ from, to uint64 } // their lives

// hello is how a process introduces itself.
func (n *node) hello(lane peer.Lane) peer.Hello {
	h := n.self.Hello()
	h.Lane, h.Nonce = lane, n.life
	return h
}

// connect makes the handshake from one process to another, unless it has been made: each side says whether it admits the other, and none
// talks to an older process of a node than it has met.
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

// Send implements member.Peers: heartbeats, which a connection neither repeats nor keeps for minutes.
func (p *peers) Send(to uint64, frame []byte) bool {
	n, w := p.n, p.n.w
	if n.life != p.life || n.silent() {
		return true
	}
	if frame[0] != heartbeatKind { // of how far its log is: it shows nothing that is judged here
		_, synced := n.host.LogEnd()
		w.carryOnce(n, to, func(to *node) {
			if w.connect(n, to, peer.LaneControl) == nil {
				to.self.Frame(n.id, frame)
				to.hearsEnd(n, p.life, synced)
			}
		})
		return true
	}
	sees := n.lookOnce()
	w.carryOnce(n, to, func(to *node) {
		to.hearDisks() // what was not heard for a while counts for nothing, until this beat
		if w.connect(n, to, peer.LaneControl) == nil && to.self.Frame(n.id, frame) {
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

// at is the machine that listens at an address, or did last.
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

// rpc is a call on its way.
type rpc struct {
	w        *World
	from, to *node
	who      peer.Hello // of from
	lane     peer.Lane
	method   uint8
	body     []byte
	until    time.Duration // when the caller gives up; the world's time
	fromLife uint64
	sent     bool // it may have left
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

// end tells the caller, a moment later and if it still waits.
func (c *rpc) end(d time.Duration, reply []byte, hello peer.Hello, err error) {
	c.w.after(d, func() {
		if c.from.life == c.fromLife {
			c.from.doFrom(c.to.id, func() {
				if !c.over {
					c.over, c.reply, c.hello, c.err = true, reply, hello, err
					c.answered()
				}
			})
		}
	})
}

// travels says whether something arrives, and how long it takes; what does not is lost with its connection, or in silence.
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
		case c.over && !c.sent: // it was given up before there was a connection
		case !c.to.up || c.from.life != c.fromLife:
			c.end(w.delay(), nil, peer.Hello{}, errRefused)
		case w.connect(c.from, c.to, c.lane) != nil:
			c.end(w.delay(), nil, peer.Hello{}, errRefused)
		default:
			c.sent = true
			c.to.doFrom(c.from.id, c.arrive)
		}
	})
}

// arrive has the other process answer.
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

// remoteError is how a handler's error travels.
func remoteError(err error) error {
	e := &peer.RemoteError{Text: err.Error()}
	var coded interface{ PeerCode() byte }
	if errors.As(err, &coded) {
		e.Code = coded.PeerCode()
	}
	return e
}

// breakCalls tells callers, most of them at once, that the process that was to answer them has ended.
func (n *node) breakCalls() {
	for _, c := range n.calls {
		if n.w.chance.IntN(4) > 0 {
			c.end(n.w.chance.between(0, 20*time.Millisecond), nil, peer.Hello{}, errLost)
		}
	}
	n.calls = nil
}

// serve answers another node.
func (n *node) serve(ctx context.Context, from peer.Hello, method uint8, body []byte) ([]byte, error) {
	if answer, handled, err := n.self.Call(ctx, from, method, body); handled {
		return answer, err
	}
	return n.router.Serve(ctx, from.Node, method, body)
}

// How often processes hear of each other by discovery, and when one counts as dead there, and is forgotten.
const (
	gossipEach   = 300 * time.Millisecond
	deadInGossip = 5 * time.Second
	oldInGossip  = time.Minute
)

// gossip is a process's discovery: whom it can reach, with some delay. It implements member.Gossip.
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
	g.own = ring.Member{ID: n.id, Starts: n.starts, Name: n.name, HTTP: n.name + ":7700", Peer: n.address(), Gossip: n.name + ":7702", Cluster: id.ClusterID}
	if s := &n.w.swarm; id.ClusterID == "" && n.founds && s.nodes > 1 {
		g.own.Expect, g.own.Shards, g.own.Replicas = s.nodes, s.shards, s.replicas
	}
	return g
}

// Ready implements member.Gossip.
func (g *gossip) Ready() <-chan struct{} { return always }

// always is closed.
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

// joined tells others that the node is of a cluster.
func (g *gossip) joined(cluster string) {
	g.own.Cluster, g.own.Expect, g.own.Shards, g.own.Replicas = cluster, 0, 0, 0
}

// look takes stock of who can be reached.
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
