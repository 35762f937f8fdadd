package sim

import (
	"time"

	"carillon/ring"
	"carillon/shard"
)

// aliveFor is how long a node counts as alive after it was heard from.
const aliveFor = 1500 * time.Millisecond

// peerFacts is what a process knows of another node.
type peerFacts struct {
	heard  time.Duration // monotonic; 0: never
	starts uint32
	aside  bool
	leads  []shard.ID
	seq    uint64 // of its last beat that came
}

// forHost makes a host's rows of meta's.
func forHost(rows []ring.Row) []shard.Row {
	out := make([]shard.Row, len(rows))
	for i := range rows {
		out[i] = rows[i].ForHost()
	}
	return out
}

// beat tells the others that this process is there.
func (n *node) beat() {
	starts, aside, id := n.starts, n.aside, n.id
	leads := n.ledHere()
	says := n.says(leads)
	var sees view
	if n.host != nil {
		sees = n.look(leads)
	}
	for _, other := range n.w.nodes {
		if other != n && !other.gone {
			n.w.carry(n, other.id, func(to *node, _ bool) {
				to.hear(id, starts, aside)
				to.hearParts(id, leads, &says, sees)
			})
		}
	}
}

// hear takes a status frame. A higher start than known says that the processes before it have ended.
func (n *node) hear(from uint64, starts uint32, aside bool) {
	f := n.peers[from]
	if f == nil {
		f = &peerFacts{}
		n.peers[from] = f
	}
	if starts < f.starts {
		return
	}
	if starts > f.starts && starts > 1 && n.host != nil {
		n.host.Gone(shard.NewOwner(from, starts-1))
		n.wake(0)
	}
	f.heard, f.starts, f.aside = n.clock.Mono(), starts, aside
}

// alive says whether this process has heard of a node lately.
func (n *node) alive(id uint64) bool {
	if id == n.id {
		return true
	}
	f := n.peers[id]
	return f != nil && n.clock.Mono()-f.heard <= aliveFor
}

// placement is what a process's host asks and tells about rows.
type placement struct {
	n    *node
	life uint64
}

// Settled implements shard.Placement.
func (p placement) Settled(group shard.ID, epoch uint32) {
	if p.n.life == p.life {
		p.n.w.cutWithin(300 * time.Millisecond)
		p.n.propose(ring.Command{Verb: ring.Settled, Group: group, Epoch: epoch})
	}
}

// MayLead implements shard.Placement.
func (p placement) MayLead(id uint64) bool {
	m, ok := p.n.state.Node(id)
	if !ok || m.State != ring.NodeMember || !p.n.alive(id) {
		return false
	}
	f := p.n.peers[id]
	return f == nil || !f.aside
}

// propose sends a command about the cluster to whoever leads the meta group. It may be lost: whatever matters is proposed again.
func (n *node) propose(c ring.Command) {
	if n.host == nil {
		return
	}
	leader, ok := n.host.Leader(shard.Meta)
	if !ok {
		return
	}
	b := c.Encode()
	submit := func(to *node, _ bool) {
		if to.host != nil {
			to.host.SubmitMeta(b, func(any, error) {})
			to.wake(0)
		}
	}
	if leader == n.id {
		life := n.life
		n.w.after(0, func() {
			if n.life == life {
				n.do(func() { submit(n, false) })
			}
		})
		return
	}
	n.w.carry(n, leader, submit)
}

// control is the controller, on the meta group's leader.
func (n *node) control() {
	if n.host == nil || !n.host.Leads(shard.Meta) {
		n.served = false
		return
	}
	if id, _, _ := n.state.Cluster(); id == "" {
		return
	}
	if !n.served { // a new leader has heard of nobody yet: nobody is down for longer than it leads
		n.served = true
		for _, other := range n.w.nodes {
			if f := n.peers[other.id]; f != nil && other != n {
				f.heard = max(f.heard, n.clock.Mono()-aliveFor)
			}
		}
	}
	facts := ring.Facts{NowMs: n.clock.WallMs(), Nodes: map[uint64]ring.NodeFacts{}, ReplaceAfterMs: 60_000}
	now := n.clock.Mono()
	for _, m := range n.state.Nodes() {
		fact := ring.NodeFacts{Alive: n.alive(m.ID)}
		f := n.peers[m.ID]
		switch {
		case fact.Alive:
		case f != nil:
			fact.DownForMs = (now - f.heard).Milliseconds()
		default: // never heard of: not since this process began
			fact.DownForMs = (now - n.began).Milliseconds()
		}
		if f != nil && f.aside || m.ID == n.id && n.aside {
			fact.Unfit = "set aside"
		}
		facts.Nodes[m.ID] = fact
	}
	for _, c := range ring.Plan(n.state.View(), facts) {
		if c.Verb == ring.Place {
			n.w.note(n, "place", uint64(c.Group), uint64(c.Epoch), "")
			n.w.counts.Moves++
		}
		n.host.SubmitMeta(c.Encode(), func(any, error) {})
		n.wake(0)
	}
	n.w.keys.reseal(n)
}

// metaLeader is a process that leads the meta group, and has most to say for it; nil: none.
func (w *World) metaLeader() *node {
	var best *node
	term := uint64(0)
	for _, n := range w.nodes {
		if n.host == nil || n.paused {
			continue
		}
		if p := n.host.Progress(shard.Meta); p.Leads && p.Serves && p.Term >= term {
			best, term = n, p.Term
		}
	}
	return best
}

// join brings a machine with an empty disk into the cluster: it registers, waits until the meta group's row names it, and begins.
func (w *World) join(n *node) {
	n.joining = true
	n.life++
	n.awake = nil
	n.starts++
	n.up, n.paused, n.began = true, false, n.clock.Mono()
	n.knowsNobody()
	w.note(n, "join", b2u(n.replaces), 0, "")
	n.every(250*time.Millisecond, n.beat)
	n.every(500*time.Millisecond, func() {
		if !n.joining {
			return
		}
		leader := w.metaLeader()
		if leader == nil || w.net.blocked(n.id, leader.id) || w.net.blocked(leader.id, n.id) {
			return
		}
		row, ok := leader.state.Row(shard.Meta)
		if ok && row.Names(n.id) {
			n.joining = false
			n.start(&row)
			return
		}
		me := n.describe()
		c := ring.Command{Verb: ring.Register, Node: &me, Replace: n.replaces}
		leader.host.SubmitMeta(c.Encode(), func(any, error) {})
		leader.wake(0)
	})
}
