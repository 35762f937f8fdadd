package peer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"
)

// accept serves ln until it is closed for good. A shortage of files passes.
func (t *Transport) accept(ctx context.Context, ln net.Listener) error {
	wait := time.Duration(0)
	for arrival := uint64(1); ; arrival++ {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			t.config.Logger.Error("peer: a connection of another node could not be accepted; trying again", "error", err)
			if !pause(ctx, wait, nil) {
				return err
			}
			continue
		}
		wait = 0
		if int(t.accepted.Add(1)) > t.config.MaxConns {
			t.accepted.Add(-1)
			nc.Close()
			continue
		}
		started := t.spawn(func() {
			defer t.accepted.Add(-1)
			t.receive(nc, arrival)
		})
		if !started {
			t.accepted.Add(-1)
			nc.Close()
		}
	}
}

// receive serves one accepted connection to its end; arrival numbers them.
func (t *Transport) receive(raw net.Conn, arrival uint64) {
	nc, h, err := t.serverHandshake(raw)
	if err != nil {
		t.config.Logger.Debug("peer: not admitted", "node", h.Node, "name", h.Name, "link", h.Lane,
			"remote", raw.RemoteAddr().String(), "error", err)
		return
	}
	var p *peer
	if h.Lane != LaneOnce {
		p = t.record(h.Node)
		p.dialNow()
	}
	c := t.newConn(nc, h, h.Lane, p, newOutbox(t.config.QueueBytes))
	c.arrival = arrival
	handle := c.handleFrame
	switch h.Lane {
	case LaneCall, LaneOnce:
		handle = c.handleCall
	case LaneBulk:
		in := &fileReceiver{c: c}
		handle, c.onEnd = in.handle, in.close
	}
	if h.Lane != LaneOnce {
		c.onWord = func() { t.replaceOlder(c) }
		defer t.leave(c)
	}
	err = t.serve(c, handle)
	t.config.Logger.Debug("peer: accepted connection ended", "node", h.Name, "link", h.Lane, "error", err)
}

// replaceOlder gives c the place of an earlier connection, which has ended before c is heard:
// the handler never sees two connections of one link at once. c is closed if it is itself
// the earlier one, whose handshake took longer.
//
// That is done when the first frame comes on c, not before: a dialler that meant another node,
// which had this address, hangs up after the handshake, and its good connection must not end by it.
func (t *Transport) replaceOlder(c *conn) {
	at := place{c.hello.Node, c.lane}
	t.mu.Lock()
	old := t.heard[at]
	if old == nil || old.arrival < c.arrival {
		t.heard[at] = c
	}
	t.mu.Unlock()
	switch {
	case old == nil:
	case old.arrival > c.arrival:
		c.close(errReplaced)
	default:
		old.close(errReplaced)
		<-old.ended
	}
}

func (t *Transport) leave(c *conn) {
	at := place{c.hello.Node, c.lane}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heard[at] == c {
		delete(t.heard, at)
	}
}

// serve runs a connection, findable while it lasts, and returns why it ended.
func (t *Transport) serve(c *conn, handle handleFunc) error {
	t.mu.Lock()
	t.conns[c] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.conns, c)
	}()
	return c.run(handle)
}

// closeOlder ends the connections, of both directions, of a node's earlier processes.
func (t *Transport) closeOlder(node uint64, starts uint32) {
	t.mu.RLock()
	var older []*conn
	for c := range t.conns {
		if c.hello.Node == node && c.hello.Starts < starts {
			older = append(older, c)
		}
	}
	t.mu.RUnlock()
	for _, c := range older {
		c.close(errReplaced)
	}
}

// handleFrame is the receiving side of the control link.
func (c *conn) handleFrame(kind byte, payload []byte, owned bool) error {
	if kind != kindFrame {
		return errProtocol
	}
	if !owned {
		payload = bytes.Clone(payload)
	}
	c.t.config.Handler.Frame(c.hello.Node, payload)
	return nil
}
