package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// link is a lasting outgoing connection to a peer: it dials, serves, and dials again.
//
//	fresh ──connected──▶ up ──broke──▶ fresh, but only once in backoffMax
//	  │                   └──broke again──▶ down
//	  └──dial failed──▶ down ──connected──▶ up
//
// While fresh, frames queue and calls wait: that lasts for one dial. While down, frames are
// dropped and calls fail at once.
type link struct {
	p       *peer
	kind    Lane
	dialNow chan struct{} // dial now

	mu      sync.Mutex
	out     *outbox // nil while down
	conn    *conn   // nil unless up
	err     error   // why it is down
	settled chan struct{}
}

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
)

func newLink(p *peer, kind Lane) *link {
	l := &link{p: p, kind: kind, dialNow: make(chan struct{}, 1)}
	l.refresh()
	return l
}

// run dials until the peer is forgotten or the transport ends.
func (l *link) run() {
	failures := 0      // since last
	var last time.Time // when a break was followed by a dial at once
	for l.p.ctx.Err() == nil {
		l.mu.Lock()
		out := l.out
		l.mu.Unlock()
		if out == nil {
			out = newOutbox(l.p.t.config.QueueBytes)
		}
		c, err := l.p.t.connect(l.p.ctx, l.p, l.kind, out)
		if err != nil {
			failures++
			l.disconnect(err)
		} else {
			err = l.serve(c)
			// A connection that broke is dialled at once, also a young one: a refusal is the first
			// sign of the end of a process. But nobody should wait for a connection that breaks
			// again and again.
			if time.Since(last) >= backoffMax {
				failures, last = 0, time.Now()
				l.refresh()
			} else {
				failures++
				l.disconnect(err)
			}
		}
		if failures > 0 && !pause(l.p.ctx, backoff(failures), l.dialNow) {
			break
		}
	}
	l.disconnect(context.Cause(l.p.ctx))
}

// backoff doubles from 50 ms to 1 s, with a jitter of half of it.
func backoff(failures int) time.Duration {
	d := min(backoffMin<<min(max(failures-1, 0), 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}

// serve runs a connection to its end and returns why it ended.
func (l *link) serve(c *conn) error {
	l.mu.Lock()
	l.out, l.conn, l.err = c.out, c, nil
	l.releaseWaiters()
	l.mu.Unlock()
	l.p.t.config.Logger.Info("peer: connected", "node", l.p.t.nodeName(l.p.node), "link", l.kind)
	handle := c.handleReply
	if l.kind == LaneControl {
		handle = func(byte, []byte, bool) error { return errProtocol } // nothing comes back on it
	}
	err := l.p.t.serve(c, handle)
	l.p.t.config.Logger.Info("peer: connection broke", "node", l.p.t.nodeName(l.p.node), "link", l.kind, "error", err)
	if l.kind == LaneControl {
		l.p.unreachable()
	}
	return err
}

// nodeName is a node in the log: by its name, or its number where that is not known.
func (t *Transport) nodeName(node uint64) string {
	name := ""
	if t.config.NodeName != nil {
		name = t.config.NodeName(node)
	}
	return cmp.Or(name, fmt.Sprintf("%010x", node))
}

// refresh makes the link fresh.
func (l *link) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out, l.conn, l.settled = newOutbox(l.p.t.config.QueueBytes), nil, make(chan struct{})
}

// disconnect makes the link down and drops the frames that waited for the dial.
func (l *link) disconnect(err error) {
	l.mu.Lock()
	out, last := l.out, l.err
	l.out, l.conn, l.err = nil, nil, err
	l.releaseWaiters()
	l.mu.Unlock()
	// Once, not each second.
	if l.p.ctx.Err() == nil && (last == nil || last.Error() != err.Error()) {
		level := slog.LevelWarn
		if errors.Is(err, ErrLater) {
			level = slog.LevelDebug
		}
		l.p.t.config.Logger.Log(l.p.ctx, level, "peer: not connected", "node", l.p.t.nodeName(l.p.node), "link", l.kind, "error", err)
	}
	if out == nil {
		return
	}
	if out.close() && l.kind == LaneControl {
		l.p.unreachable()
	}
}

// releaseWaiters releases the callers that wait for a fresh link. The lock is held.
func (l *link) releaseWaiters() {
	if l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}

// send queues a control frame, or drops it.
func (l *link) send(frame []byte) bool {
	if len(frame) <= l.p.t.config.MaxFrame {
		l.mu.Lock()
		out := l.out
		l.mu.Unlock()
		if out != nil {
			if _, ok := out.push(kindFrame, nil, frame); ok {
				return true
			}
		}
	}
	l.p.unreachable()
	return false
}

// live returns the connection, and waits for the one dial of a fresh link.
func (l *link) live(ctx context.Context) (*conn, error) {
	for {
		l.mu.Lock()
		c, settled, err := l.conn, l.settled, l.err
		l.mu.Unlock()
		switch {
		case c != nil:
			return c, nil
		case settled == nil:
			return nil, err
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.p.ctx.Done():
			return nil, context.Cause(l.p.ctx)
		}
	}
}
