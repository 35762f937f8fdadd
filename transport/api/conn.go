package api

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"carillon/socket"
)

// framedConn is a client's connection whose bytes have been through a framer. It also saves system calls: deadlines
// are put off until a Read or Write is about to wait, and left alone when the one that stands is near enough.
//
// One goroutine, fasthttp's for this connection, uses everything but Close and endReading.
type framedConn struct {
	net.Conn
	listener *listener
	framer   framer
	fault    *frameError
	hold     bodyHold
	timedOut bool

	read, write deadline
	begun       atomic.Bool // a byte has arrived
	deaf        atomic.Bool // nothing more is read: see endReading
	lingering   atomic.Bool // an error was answered while the client may still be sending
	closed      sync.Once
}

// deadline is what was asked for and what the socket has.
type deadline struct{ wanted, armed time.Time }

// due reports whether the socket must be told; slack is how much too early it may fire.
func (d *deadline) due(slack time.Duration) bool {
	late := d.wanted.Sub(d.armed)
	return d.wanted.IsZero() != d.armed.IsZero() || late < 0 || late > slack
}

func (c *framedConn) SetReadDeadline(t time.Time) error {
	c.read.wanted = t
	return nil
}

func (c *framedConn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

func (c *framedConn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

func (c *framedConn) Read(p []byte) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	if c.read.due(c.listener.slack) {
		if err := c.Conn.SetReadDeadline(c.read.wanted); err != nil {
			return 0, err
		}
		c.read.armed = c.read.wanted
	}
	if c.deaf.Load() {
		_ = c.Conn.SetReadDeadline(longAgo)
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		c.timedOut = errors.Is(err, os.ErrDeadlineExceeded)
		return 0, err
	}
	if !c.begun.Load() {
		c.begun.Store(true)
	}
	n, c.fault = c.framer.feed(p[:n])
	return n, err
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// endReading makes what waits for more of a request, now or later, time out: the client is told 408. A request that has
// arrived whole is not touched, since nothing is read until it has been answered. Any goroutine.
func (c *framedConn) endReading() {
	c.deaf.Store(true) // before the deadline: a Read that arms its own in between sees this after it
	_ = c.Conn.SetReadDeadline(longAgo)
}

func (c *framedConn) Write(p []byte) (int, error) {
	if c.write.due(c.listener.slack) {
		if err := c.Conn.SetWriteDeadline(c.write.wanted); err != nil {
			return 0, err
		}
		c.write.armed = c.write.wanted
	}
	return c.Conn.Write(p)
}

// Bounds of lingering: a client that has been told no may go on sending for so long before it is cut off.
const (
	lingerTime  = time.Second
	lingerBytes = 16 << 20
)

// Close ends the connection. Closing a socket with unread input resets it, and a reset can overtake the answer: so
// after an error, what the client is still sending is read away first, within bounds.
func (c *framedConn) Close() error {
	var err error
	c.closed.Do(func() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.lingering.Load() && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
		err = c.Conn.Close()
		c.hold.releaseAll()
		c.listener.forget(c)
	})
	return err
}

// listener hands out framed connections, a bounded number at a time.
type listener struct {
	net.Listener
	limits *Limits
	bodies *bodies
	slack  time.Duration
	full   []byte // the answer to one connection too many

	mu   sync.Mutex
	open map[*framedConn]struct{}
}

func newListener(ln net.Listener, limits *Limits, bodies *bodies) *listener {
	shortest := min(limits.HeaderTimeout, limits.BodyTimeout, limits.IdleTimeout, limits.WriteTimeout)
	return &listener{
		Listener: ln, limits: limits, bodies: bodies, slack: shortest / 16, open: make(map[*framedConn]struct{}),
		full: rawProblem(fail(503, "overloaded", "too many connections")),
	}
}

// Accept waits for a connection within the limit; those beyond it are told so and closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &framedConn{Conn: socket.Wrap(conn), listener: l, hold: bodyHold{of: l.bodies}}
		c.framer = framer{length: -1, maxHead: l.limits.HeaderBytes, maxTarget: l.limits.TargetBytes, hold: &c.hold,
			maxBody: uint64(max(l.limits.BodyBytes, l.limits.BatchBytes))}
		l.mu.Lock()
		fits := len(l.open) < l.limits.Connections
		if fits {
			l.open[c] = struct{}{}
		}
		l.mu.Unlock()
		if fits {
			return c, nil
		}
		// A fresh socket's buffer takes this without waiting.
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = conn.Write(l.full)
		_ = conn.Close()
	}
}

func (l *listener) forget(c *framedConn) {
	l.mu.Lock()
	delete(l.open, c)
	l.mu.Unlock()
}

// endReading lets no connection read on.
func (l *listener) endReading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.endReading()
	}
}

// closeWhere closes the connections that f picks.
func (l *listener) closeWhere(f func(*framedConn) bool) {
	l.mu.Lock()
	var picked []*framedConn
	for c := range l.open {
		if f(c) {
			picked = append(picked, c)
		}
	}
	l.mu.Unlock()
	for _, c := range picked {
		_ = c.Close()
	}
}
