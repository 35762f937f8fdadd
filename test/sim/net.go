package sim

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"time"

	"carillon/shard"
	"carillon/shard/table"
	"carillon/transport/peer"
)

// network is the state of the links between nodes.
type network struct {
	cut map[[2]uint64]bool // by sender and receiver: links that carry nothing
	// by link: when the last frame arrives, where frames keep their order
	last map[[2]uint64]time.Duration
	// mended is when the second phase began. Frames sent before that never arrive, because their
	// connections are gone. Otherwise raft followers would accept old heartbeats of a dead leader.
	mended time.Duration
	// by link: when a connection broke; frames sent before and still on their way are lost
	torn map[[2]uint64]time.Duration

	connections map[[2]uint64]connection // by sender and receiver
	false       map[[2]uint64]falseWord  // by hearer and whom it is about
}

func (n *network) blocked(from, to uint64) bool { return n.cut[[2]uint64{from, to}] }

// heal repairs all links.
func (n *network) heal(now time.Duration) {
	n.cut, n.false, n.mended = map[[2]uint64]bool{}, map[[2]uint64]falseWord{}, now
}

// wire implements shard.Peers for one process.
type wire struct {
	n    *node
	life uint64
}

// Send implements shard.Peers.
func (p *wire) Send(to uint64, frame []byte) {
	if p.n.life == p.life && !p.n.silent() {
		p.n.toil.sent += len(frame)
		if n := p.n.w.node(to); n != nil && p.n.w.garbles(p.n, n, frame) {
			p.n.w.tear(p.n, n)
			return
		}
		p.n.w.carryLater(p.n, to, p.n.lag(), func(n *node, copied bool) {
			if n.host == nil || p.n.w.connect(p.n, n, peer.LaneControl) != nil {
				return
			}
			if copied {
				n.host.Deliver(p.n.id, slices.Clone(frame))
			} else {
				n.host.Deliver(p.n.id, frame)
			}
			n.wake(0)
		})
	}
}

// delay draws how long a message takes.
func (w *World) delay() time.Duration {
	s := &w.swarm
	delay := w.chance.between(s.delay/2, 2*s.delay)
	if w.chance.hit(s.slow) {
		delay = w.chance.between(delay, s.slowest)
	}
	return delay
}

// carryOnce is carryLater for a message that leaves now and is never duplicated.
func (w *World) carryOnce(from *node, to uint64, deliver func(n *node)) {
	w.carryAs(from, to, 0, false, func(n *node, _ bool) { deliver(n) })
}

// carryLater sends a message, in lag from now, over a link with the faults of the network. deliver
// runs at the receiver, perhaps twice; copied is true for all deliveries but the last.
func (w *World) carryLater(from *node, to uint64, lag time.Duration, deliver func(n *node, copied bool)) {
	w.carryAs(from, to, lag, true, deliver)
}

func (w *World) carryAs(from *node, to uint64, lag time.Duration, repeats bool, deliver func(n *node, copied bool)) {
	n := w.node(to)
	if n == nil {
		return
	}
	s := &w.swarm
	link := [2]uint64{from.id, to}
	if w.net.blocked(from.id, to) || w.chance.hit(s.loss) {
		if w.chance.hit(s.reset) {
			w.unreachable(from, to)
		}
		return
	}
	delay := lag + w.delay()
	if s.ordered {
		at := max(w.now+delay, w.net.last[link])
		w.net.last[link] = at
		delay = at - w.now
	}
	sent := w.now
	arrive := func(copied bool) func() {
		return func() {
			if w.net.blocked(from.id, to) || sent < w.net.mended || sent < w.net.torn[link] {
				return
			}
			if !n.up {
				if !copied {
					w.unreachable(from, to)
				}
				return
			}
			if n.paused {
				n.doFrom(from.id, func() { deliver(n, copied) })
				return
			}
			n.hears(from)
			deliver(n, copied)
		}
	}
	if repeats && w.faultRNG.hit(s.ordeals.late) {
		w.after(w.faultRNG.between(20*time.Second, 3*time.Minute), func() {
			w.counts.Again++
			arrive(true)()
		})
		w.after(delay, arrive(true))
		return
	}
	if repeats && w.chance.hit(s.duplicate) {
		w.after(delay, arrive(true))
		w.after(delay+w.chance.between(0, 10*s.slowest), arrive(true))
		return
	}
	w.after(delay, arrive(false))
}

// unreachable tells a sender that a message was not delivered, as a broken connection does.
func (w *World) unreachable(from *node, to uint64) {
	life := from.life
	w.after(w.chance.between(0, 5*time.Millisecond), func() {
		if from.life == life && from.host != nil {
			from.do(func() {
				if from.host != nil {
					from.host.Unreachable(to)
					from.wake(0)
				}
			})
		}
	})
}

// hears takes note that something has come from another node's process.
func (n *node) hears(from *node) { n.heard[from.id] = n.w.now }

// inContact reports to a node's host that another node's process has sent something else than a
// host's frame.
func (n *node) inContact(from *node) {
	if n.host != nil {
		n.host.InContact(from.id)
	}
}

// hearEnd tells a node that a process of another node seems to have ended.
func (w *World) hearEnd(n *node, owner table.Incarnation) {
	if w.net.blocked(owner.Node(), n.id) {
		return
	}
	life := n.life
	w.after(w.chance.between(time.Millisecond, 50*time.Millisecond), func() {
		if n.life == life {
			n.do(func() {
				if n.host != nil {
					n.refused[owner.Node()] = refused{owner, w.now}
					n.host.SeemsGone(owner)
					n.wake(0)
				}
			})
		}
	})
}

// SendSnapshot implements shard.Peers.
func (p *wire) SendSnapshot(to uint64, s *shard.SnapshotStream) {
	t := &transfer{w: p.n.w, from: p.n, life: p.life, to: p.n.w.node(to), stream: s}
	if t.to == nil || p.n.life != p.life {
		p.n.w.after(0, func() { s.Done(errCut) })
		return
	}
	t.toLife = t.to.life
	t.w.note(p.n, "snapshot to", to, uint64(s.Size), "")
	t.next(t.begin)
}

var errCut = errors.New("the connection is broken")

// transfer is the transfer of one snapshot.
type transfer struct {
	w            *World
	from, to     *node
	life, toLife uint64
	stream       *shard.SnapshotStream
	source       shard.SnapshotSource
	into         *shard.Incoming
}

const transferChunk = 16 << 10

// next runs the next step after the delay of one chunk.
func (t *transfer) next(step func() error) {
	s := &t.w.swarm
	t.w.after(t.w.delay(), func() {
		if t.from.life != t.life {
			t.close()
			return
		}
		broken := t.to.life != t.toLife || t.to.host == nil || t.w.net.blocked(t.from.id, t.to.id) || t.w.chance.hit(s.loss/10)
		if !broken && t.to.paused {
			t.next(step)
			return
		}
		err := errCut
		if !broken {
			err = step()
		}
		if err != nil {
			t.w.counts.Unsent += int(b2u(errors.Is(err, syscall.EIO) && t.w.swarm.ailments.blinds > 0))
			t.close()
			t.finish(err)
		}
	})
}

func (t *transfer) finish(err error) {
	if t.from.life == t.life {
		t.stream.Done(err)
		t.from.do(func() { t.from.wake(0) })
	}
}

func (t *transfer) close() {
	if t.into != nil {
		t.into.Abort()
		t.into = nil
	}
	if t.source != nil {
		_ = t.source.Close()
		t.source = nil
	}
}

func (t *transfer) begin() (err error) {
	if t.source, err = t.stream.Open(); err != nil {
		return err
	}
	if t.w.connect(t.from, t.to, peer.LaneBulk) != nil {
		return errCut
	}
	t.into, err = t.to.host.Receive(t.from.id, slices.Clone(t.stream.Header), t.stream.Size)
	if t.to.died(nil) {
		t.into = nil
		return errCut
	}
	if err == nil {
		t.next(t.piece)
	}
	return err
}

func (t *transfer) piece() error {
	chunk := make([]byte, min(transferChunk, t.stream.Size-t.into.Have()))
	if _, err := io.ReadFull(t.source, chunk); err != nil {
		return err
	}
	if t.w.garbles(t.from, t.to, chunk) {
		return errCut
	}
	_, err := t.into.Write(chunk)
	if err == nil && t.into.Have() == t.stream.Size {
		into := t.into
		t.into = nil
		err = into.Commit()
		if t.to.died(nil) {
			return errCut
		}
		if err == nil {
			t.close()
			t.finish(nil)
			t.w.counts.Installed++
			t.to.wake(0)
		}
		return err
	}
	if t.to.died(nil) {
		t.into = nil
		return errCut
	}
	if err == nil {
		t.next(t.piece)
	}
	return err
}

// node finds a machine by its node id. Ids are odd, see member.Identity.
func (w *World) node(id uint64) *node {
	if i := int(id / 2); id%2 == 1 && i < len(w.nodes) {
		return w.nodes[i]
	}
	return nil
}
