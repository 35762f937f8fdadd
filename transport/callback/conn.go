package callback

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// conn is one connection to a destination; one call at a time uses it.
type conn struct {
	net.Conn            // plain or TLS, over wire
	wire     *wire      // what passes between that and the network
	stale    staleCheck // tells whether the peer has closed it or spoken unasked
	created  time.Time
	lastUse  time.Time
	one      [1]byte // of quiet
}

// wire counts the bytes written to the network, TLS records included: zero since a
// call began means that the receiver cannot have seen any of it.
type wire struct {
	net.Conn
	written int64
	readErr error // the last one; the parser above calls all of them an end of file

	records *recordCount // nil: plain
	shut    bool         // no read reaches the network, see quiet
}

func (w *wire) Read(b []byte) (int, error) {
	if w.shut {
		return 0, errShut
	}
	n, err := w.Conn.Read(b)
	w.readErr = err
	if w.records != nil {
		w.records.pass(b[:n])
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.written += int64(n)
	return n, err
}

// quiet reports that the TLS layer holds nothing after an answer: no more data, no
// record that has not been opened, no part of one. What it holds does not show at
// the socket, and would be the beginning of the next call's answer, perhaps of
// another tenant's.
//
// The layer is asked to read while no read reaches the network. It opens what it
// holds, and then fails with errShut, which is a net.Error and temporary: so it
// takes the failure for a deadline and the connection stays usable. A record of
// which a part has come is known by the count of what passed.
func (c *conn) quiet() bool {
	if c.wire.records == nil {
		return true
	}
	c.wire.shut = true
	n, err := c.Read(c.one[:])
	c.wire.shut = false
	return n == 0 && err == errShut && c.wire.records.whole()
}

// shutError is the error of a read that was kept from the network.
type shutError struct{}

var errShut error = shutError{}

func (shutError) Error() string   { return "callback: the wire is shut" }
func (shutError) Timeout() bool   { return true }
func (shutError) Temporary() bool { return true }

// recordHeaderBytes are the type, the version (2), and the length (2) of what follows.
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
	raw   syscall.RawConn // nil: not a socket, nothing can be told
	stale bool
	peek  func(fd uintptr) bool // kept, so that a check allocates nothing
}

func (s *staleCheck) init(c net.Conn) {
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
			s.peek = func(fd uintptr) bool {
				s.stale = peekStale(fd)
				return true // never wait for the socket
			}
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

// connStack holds a destination's connections, idle ones last in, first out: the
// freshest is the least likely to be closed by its receiver.
type connStack struct {
	mu   sync.Mutex
	idle []*conn // Invariant: ascending lastUse
	open map[*conn]struct{}
}

// take returns an idle connection that looks alive, with its deadline set, or nil.
func (s *connStack) take(p *Pool, now, deadline time.Time) *conn {
	for {
		s.mu.Lock()
		n := len(s.idle)
		if n == 0 {
			s.mu.Unlock()
			return nil
		}
		c := s.idle[n-1]
		s.idle[n-1] = nil
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		p.idleConns.Add(-1)
		fresh := now.Sub(c.lastUse) <= p.config.ConnIdle && now.Sub(c.created) <= p.config.ConnMaxAge
		if fresh && c.SetDeadline(deadline) == nil && !c.stale.isStale() {
			return c
		}
		s.close(c)
	}
}

// put keeps the connection for another call, unless the node keeps enough.
func (s *connStack) put(p *Pool, c *conn, now time.Time) {
	if p.idleConns.Add(1) > int64(p.config.MaxIdleConns) || now.Sub(c.created) > p.config.ConnMaxAge {
		p.idleConns.Add(-1)
		s.close(c)
		return
	}
	c.lastUse = now
	s.mu.Lock()
	s.idle = append(s.idle, c)
	s.mu.Unlock()
}

func (s *connStack) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*conn]struct{})
	}
	s.open[c] = struct{}{}
}

// close ends a connection that is not idle. It does not say goodbye in TLS: that
// could block, and the receiver's answer is already judged. An error changes nothing.
func (s *connStack) close(c *conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	_ = c.wire.Close()
}

// closeIdle closes the idle connections last used before the given time; with the
// zero time, all of them.
func (s *connStack) closeIdle(p *Pool, before time.Time) {
	s.mu.Lock()
	n := 0
	for n < len(s.idle) && (before.IsZero() || s.idle[n].lastUse.Before(before)) {
		n++
	}
	if n == 0 {
		s.mu.Unlock()
		return
	}
	old := append([]*conn(nil), s.idle[:n]...)
	kept := copy(s.idle, s.idle[n:])
	clear(s.idle[kept:])
	s.idle = s.idle[:kept]
	s.mu.Unlock()
	p.idleConns.Add(int64(-n))
	for _, c := range old {
		s.close(c)
	}
}

// closeAll also ends the connections of calls that are running.
func (s *connStack) closeAll(p *Pool) {
	s.closeIdle(p, time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.wire.Close()
	}
}
