package api

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"carillon/transport/api/internal/http1"
)

// framedConn is a client's connection whose bytes have been through an http1.Framer. It also saves
// system calls: deadlines are put off until a Read or Write is about to wait, and left alone when
// the one that stands is near enough.
//
// One goroutine, fasthttp's for this connection, uses everything but Close, endReading and Trusted;
// see WhileConnected, too.
type framedConn struct {
	net.Conn                            // encrypted, where the server is to
	raw      net.Conn                   // beneath that
	config   atomic.Pointer[tls.Config] // by which the client was trusted last
	listener *listener
	framer   http1.Framer
	fault    *http1.Fault
	timedOut bool
	ended    bool // nothing more comes

	read, write deadline
	address     netip.Addr                 // of the client; see addressOf
	answer      atomic.Pointer[heldAnswer] // nil: the last one has been written, or is small
	// Unix ns since which it has waited for a request; 0: it does not; evicted.
	idleSince  atomic.Int64
	probeUntil time.Time   // not zero: it is in the probe room, until then
	remote     string      // RemoteAddr, once it was asked for
	knownHost  string      // a Host of an earlier request that is the node's
	local      netip.Addr  // the node's side; see localAddress
	begun      atomic.Bool // a byte has arrived
	readClosed atomic.Bool // nothing more is read: see endReading
	// Called once when the answer cannot be written; of the request that is being answered.
	undelivered func()
	lingering   atomic.Bool // an error was answered while the client may still be sending
	closed      sync.Once
	cutOff      atomic.Bool // closed, or about to be
}

// deadline is the deadline that was asked for, and the one that the socket has.
type deadline struct{ wanted, armed time.Time }

// due reports whether the socket must get it; slack is how much too early it may fire.
func (d *deadline) due(slack time.Duration) bool {
	late := d.wanted.Sub(d.armed)
	return d.wanted.IsZero() != d.armed.IsZero() || late < 0 || late > slack
}

func (c *framedConn) ClientAddress() netip.Addr { return c.address }

// OnUndelivered has f called if the answer cannot be written, as well as those of pipelined
// requests that were answered into the same buffer.
func (c *framedConn) OnUndelivered(f func()) {
	before := c.undelivered
	c.undelivered = func() {
		if before != nil {
			before()
		}
		f()
	}
}

// localAddress is the address that the client has reached.
func (c *framedConn) localAddress() netip.Addr {
	if tcp, ok := c.LocalAddr().(*net.TCPAddr); ok && !c.local.IsValid() {
		c.local = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return c.local
}

// evicted is idleSince of a connection whose place another one has been given.
const evicted = -1

// evict takes the place of a connection that has waited since then; false when it has been used
// meanwhile.
func (c *framedConn) evict(since int64) bool { return c.idleSince.CompareAndSwap(since, evicted) }

// probing reports whether the connection is beyond the limit and may only ask for health.
func (c *framedConn) probing() bool { return !c.probeUntil.IsZero() }

func (c *framedConn) SetReadDeadline(t time.Time) error {
	if c.probing() && c.probeUntil.Before(t) {
		t = c.probeUntil
	}
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
	c.written()
	c.undelivered = nil // the answer before has gone out
	if c.read.due(c.listener.slack) {
		if err := c.Conn.SetReadDeadline(c.read.wanted); err != nil {
			return 0, err
		}
		c.read.armed = c.read.wanted
	}
	if c.readClosed.Load() {
		_ = c.Conn.SetReadDeadline(longAgo)
	}
	since := c.waits()
	n, err := c.Conn.Read(p)
	if n == 0 {
		c.ended = true
		if c.timedOut = errors.Is(err, os.ErrDeadlineExceeded); c.listener.tls != nil && c.speaksPlain(err) {
			err = io.EOF
		}
		return 0, err
	}
	if since != 0 && !c.idleSince.CompareAndSwap(since, 0) {
		return 0, io.EOF // its place was given away before this request came
	}
	if c.framer.BetweenRequests() && !c.Trusted() {
		return 0, io.EOF
	}
	if !c.begun.Load() {
		c.begun.Store(true)
	}
	n, c.fault = c.framer.Feed(p[:n])
	return n, err
}

// waits records that a Read waits for a request, and returns since when; 0 when it waits for more
// of one.
func (c *framedConn) waits() (since int64) {
	if !c.framer.BetweenRequests() || c.probing() {
		return 0
	}
	if since = c.idleSince.Load(); since == 0 {
		// The deadline was set a moment ago: no clock is read here.
		since = c.read.wanted.UnixNano() - int64(c.listener.limits.IdleTimeout)
		c.idleSince.Store(since)
	}
	return since
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// endReading makes a read that waits for more of a request, now or later, time out: the client is
// answered 408. A request that has arrived whole is not touched, since nothing is read until it has
// been answered. Any goroutine.
func (c *framedConn) endReading() {
	// Before the deadline: a Read that arms its own in between sees this after it.
	c.readClosed.Store(true)
	_ = c.Conn.SetReadDeadline(longAgo)
}

func (c *framedConn) Write(p []byte) (int, error) {
	if c.write.due(c.listener.slack) {
		if err := c.Conn.SetWriteDeadline(c.write.wanted); err != nil {
			return 0, err
		}
		c.write.armed = c.write.wanted
	}
	n, err := c.Conn.Write(p)
	if err != nil && c.undelivered != nil {
		c.undelivered()
		c.undelivered = nil
	}
	return n, err
}

// Bounds of lingering: a client that was refused may continue to send for this time before it is
// cut off.
const (
	lingerTime  = time.Second
	lingerBytes = 16 << 20
)

// abort ends the connection without a word, from any goroutine: a peer that reads nothing must not
// hold up the goroutine that closes it.
func (c *framedConn) abort() {
	c.closed.Do(func() {
		_ = c.raw.Close()
		c.gone()
	})
}

// gone gives back the connection's shares.
func (c *framedConn) gone() {
	c.cutOff.Store(true) // before written: see hold
	c.written()
	c.listener.connections.forget(c)
}

// Close ends the connection. Closing a socket with unread input resets it, and a reset can overtake
// the answer: so after an error, the rest of the client's request is read away first, within
// bounds.
func (c *framedConn) Close() error {
	var err error
	c.closed.Do(func() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.lingering.Load() && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
		err = c.Conn.Close()
		c.gone()
	})
	return err
}
