package peer

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection after its handshake. Two goroutines serve it: run reads, and owns the end;
// write writes the frames of the outbox.
type conn struct {
	t       *Transport
	nc      net.Conn
	hello   Hello // of the other side
	lane    Lane
	peer    *peer // nil on LaneOnce
	out     *outbox
	arrival uint64       // of an accepted connection
	onWord  func()       // before the first frame is heard; it may close the connection; may be nil
	onEnd   func()       // before anybody can take this connection's place; may be nil
	calls   calls        // ours that wait for a reply
	busy    atomic.Int32 // theirs that are being answered
	held    atomic.Int64 // bytes of their bodies

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	once   sync.Once
	ended  chan struct{} // closed when run has returned
}

// handleFunc takes one received frame; payload is as frameReader.next gives it.
type handleFunc func(kind byte, payload []byte, owned bool) error

// newConn makes a connection that ends with its peer or the transport. Its maker runs it or closes
// it.
func (t *Transport) newConn(nc net.Conn, h Hello, lane Lane, p *peer, out *outbox) *conn {
	c := &conn{t: t, nc: nc, hello: h, lane: lane, peer: p, out: out, ended: make(chan struct{})}
	owner := t.ctx
	if p != nil {
		owner = p.ctx
	}
	c.ctx, c.cancel = context.WithCancelCause(owner)
	return c
}

// run serves the connection until it breaks or is closed, and returns why.
func (c *conn) run(handle handleFunc) error {
	defer close(c.ended)
	stop := context.AfterFunc(c.ctx, func() { c.close(context.Cause(c.ctx)) })
	defer stop()
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.close(c.read(handle))
	writer.Wait()
	cause := context.Cause(c.ctx)
	c.calls.fail(c.out, cause)
	if c.onEnd != nil {
		c.onEnd()
	}
	return cause
}

// close ends the connection; the first cause stays. It may be called from anywhere.
func (c *conn) close(cause error) {
	c.once.Do(func() {
		c.cancel(cause)
		closeNow(c.nc)
		c.out.close()
	})
}

// closeNow leaves out the farewell of TLS, which can take seconds when the other side is stuck.
func closeNow(nc net.Conn) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	nc.Close()
}

// touchEvery is how far the read deadline may be behind: setting it for every read costs
// more than the read of a small frame.
const touchEvery = 8 // of IdleTimeout

func (c *conn) read(handle handleFunc) error {
	frames := newFrameReader(&deadlineReader{conn: c}, c.t.config.MaxFrame+callHeaderBytes)
	for first := true; ; first = false {
		kind, payload, owned, err := frames.next()
		if err != nil {
			return err
		}
		if first && c.onWord != nil {
			c.onWord()
			if cause := context.Cause(c.ctx); cause != nil {
				return cause
			}
		}
		if kind == kindHeartbeat {
			continue
		}
		if err := handle(kind, payload, owned); err != nil {
			return err
		}
	}
}

// deadlineReader gives up a connection that is silent for IdleTimeout.
type deadlineReader struct {
	conn    *conn
	touched time.Time
}

func (r *deadlineReader) Read(b []byte) (int, error) {
	idle := r.conn.t.config.IdleTimeout
	if now := time.Now(); now.Sub(r.touched) > idle/touchEvery {
		if err := r.conn.nc.SetReadDeadline(now.Add(idle)); err != nil {
			return 0, err
		}
		r.touched = now
	}
	n, err := r.conn.nc.Read(b)
	if p := r.conn.peer; p != nil && n > 0 {
		p.received(r.conn.hello.Starts)
	}
	return n, err
}

// write sends all that waits in one write, and a heartbeat when nothing did.
func (c *conn) write() {
	ticker := time.NewTicker(c.t.config.Heartbeat)
	defer ticker.Stop()
	var pieces [][]byte
	var sequence uint32
	quiet := false // nothing was written since the last tick
	for {
		beat := false
		select {
		case <-c.ctx.Done():
			return
		case <-c.out.wake:
			runtime.Gosched() // those that can run now may have more for the same write
		case <-ticker.C:
			beat, quiet = quiet, true
		}
		pieces = c.out.take(pieces)
		if len(pieces) == 0 {
			if !beat {
				continue
			}
			pieces = append(pieces, appendFrame(newPiece(frameHeaderBytes), kindHeartbeat, nil, nil))
		}
		quiet = false
		for _, piece := range pieces {
			sequence = seal(piece, sequence)
		}
		err := c.writeAll(pieces)
		freePieces(pieces)
		clear(pieces)
		if err != nil {
			c.close(err)
			return
		}
	}
}

// writeStepBytes is how much a receiver must take within IdleTimeout, or it is stuck.
const writeStepBytes = 1 << 20

func (c *conn) writeAll(pieces [][]byte) error {
	for len(pieces) > 0 {
		n, bytes := 1, len(pieces[0])
		for n < len(pieces) && bytes+len(pieces[n]) <= writeStepBytes {
			bytes += len(pieces[n])
			n++
		}
		if n > 1 {
			step := append(net.Buffers(nil), pieces[:n]...) // which WriteTo uses up
			if err := c.writeStep(func() error { _, err := step.WriteTo(c.nc); return err }); err != nil {
				return err
			}
		}
		for rest := pieces[0]; n == 1 && len(rest) > 0; {
			part := rest[:min(len(rest), writeStepBytes)]
			rest = rest[len(part):]
			if err := c.writeStep(func() error { _, err := c.nc.Write(part); return err }); err != nil {
				return err
			}
		}
		pieces = pieces[n:]
	}
	return nil
}

func (c *conn) writeStep(write func() error) error {
	patience := c.t.config.IdleTimeout
	if c.lane == LaneBulk {
		patience = c.t.config.BulkStall
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return write()
}
