package callback

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"carillon/transport/callback/socket"
)

// countingConn is one connection to a destination, below TLS. One call at a time uses it.
type countingConn struct {
	net.Conn
	pool    *Pool
	unwatch func() bool // Until then the end of Pool.base closes the connection.
	stale   staleCheck
	created time.Time
	lastUse time.Time // zero: in no call yet

	// written counts the bytes that went to the network, TLS records included. None since a call
	// began means that the receiver cannot have seen any of it.
	written int64
	readErr error        // The last one; the parser above calls all of them an end of file.
	records *recordCount // nil: plain
	one     [1]byte      // of quiet

	shut   bool // No read reaches the network, see quiet.
	inCall bool // Outside a call no write reaches the network, see Close.
	idle   bool // counted in Pool.idleConns
}

func (p *Pool) newConn(raw net.Conn, secure bool) *countingConn {
	c := &countingConn{Conn: raw, pool: p, created: p.config.Now()}
	c.stale.init(raw)
	if secure {
		c.records = &recordCount{}
	}
	p.openConns.Add(1)
	c.unwatch = context.AfterFunc(p.part(), func() {
		_ = raw.Close()
		p.openConns.Done()
	})
	return c
}

// countingConnOf is the countingConn through which a connection of fasthttp's pool writes to the
// network.
func countingConnOf(stream net.Conn) *countingConn {
	if secure, ok := stream.(*tls.Conn); ok {
		stream = secure.NetConn()
	}
	return stream.(*countingConn)
}

func (c *countingConn) Read(b []byte) (int, error) {
	if c.shut {
		return 0, errShut
	}
	n, err := c.Conn.Read(b)
	c.readErr = err
	if c.records != nil {
		c.records.pass(b[:n])
	}
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.inCall {
		return 0, errShut
	}
	n, err := c.Conn.Write(b)
	c.written += int64(n)
	return n, err
}

// Close ends a connection that is in no call. TLS would send its close_notify first; it does not
// get out, since that could block, and the receiver's answer is already judged.
func (c *countingConn) Close() error {
	c.notIdle()
	if c.unwatch() {
		c.pool.openConns.Done()
	}
	return c.Conn.Close()
}

func (c *countingConn) notIdle() {
	if c.idle {
		c.idle = false
		c.pool.idleConns.Add(-1)
	}
}

// setIdle reports whether the node may keep one more idle connection.
func (c *countingConn) setIdle(now time.Time) bool {
	c.idle, c.lastUse = true, now
	if c.pool.idleConns.Add(1) <= int64(c.pool.config.MaxIdleConns) {
		return true
	}
	c.notIdle()
	return false
}

// fresh reports whether a connection that was idle until now looks alive.
func (c *countingConn) fresh(now time.Time) bool {
	young := now.Sub(c.lastUse) <= c.pool.config.ConnIdle && now.Sub(c.created) <= connMaxAge
	return young && !c.stale.isStale()
}

// quiet reports that the TLS layer holds nothing after an answer: no more data, no record that has
// not been opened, no part of one. Bytes that it holds do not show at the socket, and would be the
// beginning of the next call's answer, perhaps of another tenant's.
//
// The layer, stream, is asked to read while no read reaches the network. It opens the records that
// it holds, and then fails with errShut, which is a net.Error and temporary: so it takes the
// failure for a deadline and the connection stays usable. A record of which a part has come is
// known by the count of bytes that passed.
func (c *countingConn) quiet(stream net.Conn) bool {
	if c.records == nil {
		return true
	}
	c.shut = true
	n, err := stream.Read(c.one[:])
	c.shut = false
	return n == 0 && err == errShut && c.records.whole()
}

// shutError is the error of a read that was kept from the network.
type shutError struct{}

var errShut error = shutError{}

func (shutError) Error() string   { return "callback: the wire is shut" }
func (shutError) Timeout() bool   { return true }
func (shutError) Temporary() bool { return true }

// recordHeaderBytes are the type, the version (2), and the length (2) of the rest.
const recordHeaderBytes = 5

// recordCount follows where TLS records begin and end.
type recordCount struct {
	header int // bytes of a record's header that have passed
	left   int // bytes of its content to come, once the header has passed
}

// whole reports that the last record has passed to its end.
func (r *recordCount) whole() bool { return r.header == 0 && r.left == 0 }

func (r *recordCount) pass(b []byte) {
	for len(b) > 0 {
		if r.header == 0 && r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		switch r.header++; r.header {
		case recordHeaderBytes - 1:
			r.left = int(b[0]) << 8
		case recordHeaderBytes:
			r.left |= int(b[0])
			r.header = 0
		}
		b = b[1:]
	}
}

// staleCheck peeks at the socket without blocking.
type staleCheck struct {
	raw   syscall.RawConn // nil: not a socket, nothing can be known
	stale bool
	peek  func(fd uintptr) bool // kept, so that a check allocates nothing
}

func (s *staleCheck) init(c net.Conn) {
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
			s.peek = func(fd uintptr) bool {
				s.stale = socket.IsStale(fd)
				return true // never wait for the socket
			}
		}
	}
}

// The other end's refusal comes a round trip after its end.
const (
	refusalWithin = 500 * time.Millisecond
	refusalEvery  = 2 * time.Millisecond
)

// unread reports that the receiver has seen nothing of what was written after the first bytes: it
// closed the idle connection at the moment at which a call was sent on it. It waits for the
// receiver's word, until end at most.
func (c *countingConn) unread(first int64, end time.Time) bool {
	if c.stale.raw == nil {
		return false
	}
	if last := c.pool.config.Now().Add(refusalWithin); last.Before(end) {
		end = last
	}
	is := socket.Undecided
	look := func(fd uintptr) { is = socket.FateOf(fd, first) }
	for {
		if err := c.stale.raw.Control(look); err != nil || is != socket.Undecided {
			return err == nil && is == socket.NeverRead
		}
		if !c.pool.config.Now().Before(end) {
			return false
		}
		select {
		case <-time.After(refusalEvery):
		case <-c.pool.base.Done():
			return false
		}
	}
}

// isStale: anything but silence ends the connection. Bytes that nobody asked for
// would be taken for the answer of the next call.
func (s *staleCheck) isStale() bool {
	if s.raw == nil {
		return false
	}
	s.stale = true
	if err := s.raw.Read(s.peek); err != nil {
		return true
	}
	return s.stale
}
