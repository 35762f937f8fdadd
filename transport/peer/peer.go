package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// peer is the state of this node's links to another node.
type peer struct {
	t    *Transport
	node uint64

	ctx    context.Context // ends when the node is forgotten, or the transport
	cancel context.CancelCauseFunc
	alarm  chan struct{} // holds one when Unreachable is to be reported
	bulk   chan struct{} // held by the SendFile that runs

	mu      sync.Mutex
	lanes   [2]*link // LaneControl and LaneCall, from their first use
	process process  // the newest seen
	reached process  // the newest that we connected to
	addr    string   // where
	hinted  bool     // SeemsGone was called for process since addr last took a connection
	refusal refusals

	refusing   atomic.Bool // refusal.count > 0
	unanswered atomic.Bool // nobody answered at its name: see connect
}

// process is one run of a node.
type process struct {
	starts uint32
	nonce  uint64
	known  bool
}

// refusals are those of addr in a row, since the process was last heard.
type refusals struct {
	count int
	first time.Time
}

// FindsGone needs so many refusals over this time.
const (
	refusedTimes = 3
	refusedTime  = 250 * time.Millisecond
)

func (t *Transport) newPeer(node uint64) *peer {
	p := &peer{t: t, node: node, alarm: make(chan struct{}, 1), bulk: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancelCause(t.ctx)
	return p
}

// meet takes note of a process that was admitted. It refuses one that is older than the
// newest known, or that shares its starts with another: as a node it must not be heard.
func (p *peer) meet(h Hello) error {
	p.mu.Lock()
	old := p.process
	if old.known && h.Starts < old.starts {
		p.mu.Unlock()
		return fmt.Errorf("%w: node %d has started %d times before, this is start %d", ErrRefused, h.Node, old.starts, h.Starts)
	}
	if old.known && h.Starts == old.starts && h.Nonce != old.nonce {
		p.mu.Unlock()
		return fmt.Errorf("%w: start %d of node %d exists twice (a copied data directory?)", ErrRefused, h.Starts, h.Node)
	}
	newer := old.known && h.Starts > old.starts
	hinted := p.hinted
	if newer || !old.known {
		p.process, p.hinted = process{h.Starts, h.Nonce, true}, false
		p.forgetRefusals()
	}
	p.mu.Unlock()
	if newer {
		p.t.closeOlder(p.node, h.Starts)
		if !hinted {
			p.t.config.Handler.SeemsGone(p.node, old.starts)
		}
	}
	return nil
}

// connected takes note of a process that listens at addr.
func (p *peer) connected(h Hello, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached, p.addr, p.hinted = process{h.Starts, h.Nonce, true}, addr, false
	p.forgetRefusals()
}

// received records that a process has sent something: what refuses connections is not its end.
func (p *peer) received(starts uint32) {
	if !p.refusing.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if starts == p.process.starts {
		p.forgetRefusals()
	}
}

// forgetRefusals counts them from zero. The lock is held.
func (p *peer) forgetRefusals() {
	p.refusal = refusals{}
	p.refusing.Store(false)
}

// dialFailed counts refusals; the first is a hint that the process has ended.
func (p *peer) dialFailed(addr string, err error) {
	p.mu.Lock()
	if !errors.Is(err, syscall.ECONNREFUSED) || addr != p.addr || !p.reached.known || p.reached != p.process {
		p.forgetRefusals()
		p.mu.Unlock()
		return
	}
	if p.refusal.count == 0 {
		p.refusal.first = time.Now()
	}
	p.refusal.count++
	p.refusing.Store(true)
	hint := !p.hinted
	p.hinted = true
	starts := p.process.starts
	p.mu.Unlock()
	if hint {
		p.t.config.Handler.SeemsGone(p.node, starts)
	}
}

// refuses reports whether the process was refused often and long enough, and not heard since.
func (p *peer) refuses(starts uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.starts == starts && p.refusal.count >= refusedTimes && time.Since(p.refusal.first) >= refusedTime
}

// followed reports whether a later process of the node was met.
func (p *peer) followed(starts uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.starts > starts
}

// unreachable asks for a report; it never blocks.
func (p *peer) unreachable() {
	select {
	case p.alarm <- struct{}{}:
	default:
	}
}

// reportEvery is the least time between two reports on a node.
const reportEvery = 100 * time.Millisecond

// report calls the handler; news that comes too early is reported a little later.
func (p *peer) report() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.alarm:
		}
		p.t.config.Handler.Unreachable(p.node)
		if !pause(p.ctx, reportEvery, nil) {
			return
		}
	}
}

// pause waits for d or for wake, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// link returns one of the two lasting links, and starts it the first time.
func (p *peer) lane(kind Lane) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[kind]
	if l == nil {
		l = newLink(p, kind)
		p.lanes[kind] = l
		if kind == LaneControl {
			p.t.spawn(p.report)
		}
		p.t.spawn(l.run)
	}
	return l
}

// dialNow makes the links dial now: the node has just been heard of.
func (p *peer) dialNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l != nil {
			select {
			case l.dialNow <- struct{}{}:
			default:
			}
		}
	}
}
