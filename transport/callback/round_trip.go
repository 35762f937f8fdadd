package callback

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"time"

	"carillon/timer"
	"carillon/transport/callback/address"

	"github.com/valyala/fasthttp"
)

const (
	readBufferBytes = 16 << 10 // also how much is read of an answer's headers
	firstWriteBytes = 4 << 10  // of head and body together, if the head is no longer
)

// roundTripper is a worker's tool for its calls: buffers that are filled again for every call, and
// the call that is being made.
type roundTripper struct {
	head   []byte // of the request, without the empty line at its end; then what is written first
	body   []byte // of the request, not ours
	answer fasthttp.Response
	reader *bufio.Reader
	signer signer

	lastOnConn bool   // no other answer is read from the connection
	noHeaders  bool   // only the status of the answer has been read
	kept       []byte // of the body of a call that failed

	url    string // the last one taken apart
	target address.URL

	pool   *Pool
	call   *callSlot
	span   span
	ended  time.Time // when the call was over
	result result
}

// result is the outcome of a round trip.
type result struct {
	status     int // 0: no answer was understood
	retryAfter string
	sent       bool // some of the request may have reached the receiver
	dialled    bool // on a new connection
	answer     *timer.Answer
	body       []byte
}

// do makes the call that prepare filled in, within the span. It tries another connection only if not
// one byte of the request had reached the receiver, which so sees it at most once.
func (rt *roundTripper) do(t *callSlot, s span) (result, error) {
	rt.pool, rt.call, rt.span, rt.result = t.dest.pool, t, s, result{}
	rt.answer.Reset()
	var err error
	for again := true; again; {
		rt.ended = time.Time{}
		again, err = rt.onConn(t.dest.client)
	}
	rt.body = nil
	if rt.ended.IsZero() { // there was no connection
		rt.ended = rt.pool.config.Now()
	}
	return rt.result, err
}

// onConn makes the call on an idle connection, or else on a new one. It reports whether to try
// another connection: an idle one was not used at all, or had been closed by the receiver before.
func (rt *roundTripper) onConn(client *fasthttp.HostClient) (again bool, err error) {
	p, s := rt.pool, &rt.span
	pooled, err := client.AcquireConn(idleOnly, noCleaner)
	if err == errNoIdleConn {
		if s.heldBack(p.config.Lease(), s.timeout) { // a call on an idle connection asks right before it writes
			return false, errHeldBack
		}
		pooled, err = client.AcquireConn(s.end.Sub(p.config.Now()), noCleaner)
	}
	if err != nil {
		return false, err
	}
	stream := pooled.Conn()
	c := countingConnOf(stream)
	c.notIdle()
	keep := false
	defer func() { // after a panic, too
		c.inCall = false
		rt.ended = p.config.Now()
		if keep && c.setIdle(rt.ended) {
			client.ReleaseConn(pooled)
		} else {
			client.CloseConn(pooled)
		}
	}()
	dialled := c.lastUse.IsZero()
	rt.result.dialled = dialled
	if !dialled && !c.fresh(s.started) {
		return true, nil
	}
	c.inCall = true
	if err := c.SetDeadline(s.end); err != nil {
		return !dialled, err
	}
	if secure, ok := stream.(*tls.Conn); ok && dialled {
		if err := secure.Handshake(); err != nil {
			return false, &tlsError{err}
		}
	}
	if err := s.late(p.config.Now(), p.config.Lease(), dialled); err != nil {
		keep = !dialled // it was not used
		return false, err
	}
	keep, err = rt.exchange(stream, c)
	again = err != nil && !dialled && !rt.result.sent && !isTimeout(err) && p.base.Err() == nil
	return again, err
}

// exchange writes the request and reads the answer, until the span ends at most, which is the
// connection's deadline already. Once the headers have been read, the status counts, even if the
// body fails. It reports whether the connection may be used again.
func (rt *roundTripper) exchange(stream net.Conn, c *countingConn) (keep bool, err error) {
	if rt.reader == nil {
		rt.reader = bufio.NewReaderSize(nil, readBufferBytes)
	}
	rt.reader.Reset(stream)
	rt.lastOnConn, rt.noHeaders = false, false
	defer rt.reader.Reset(nil) // keep no connection alive
	r := &rt.result
	before := c.written
	writeErr := rt.write(stream)
	r.sent = c.written > before
	if writeErr != nil && (!r.sent || isTimeout(writeErr)) {
		return false, writeErr
	}
	if rt.call != nil && !rt.call.first {
		rt.pool.starts.wrote(rt.call)
	}
	// After a write that broke off, an answer may be waiting all the same: a
	// receiver that refuses a long body. The socket is dead, so this does not wait.
	if err := rt.readHeaders(); err != nil {
		switch {
		case writeErr != nil:
			err = writeErr
		case err != errPeerClosed:
		case c.readErr != nil && c.readErr != io.EOF:
			err = c.readErr
		case !c.lastUse.IsZero():
			r.sent = !c.unread(before, rt.span.end)
		}
		return false, err
	}
	r.status = rt.answer.StatusCode()
	if r.status == fasthttp.StatusTooManyRequests || r.status == fasthttp.StatusServiceUnavailable {
		r.retryAfter = string(rt.answer.Header.Peek(fasthttp.HeaderRetryAfter))
	}
	if rt.readsBody() {
		keep = writeErr == nil && rt.reusable()
		if r.body, err = rt.readBody(); err != nil {
			return false, err
		}
		return keep && rt.reader.Buffered() == 0 && c.quiet(stream), nil
	}
	reusable, wanted := writeErr == nil && rt.reusable(), rt.keepsAnswer()
	rt.kept = rt.kept[:0]
	whole := (reusable || wanted) && rt.drain(c, wanted)
	if wanted {
		r.answer = rt.keptAnswer()
	}
	return reusable && whole && rt.reader.Buffered() == 0 && c.quiet(stream), nil
}

// write sends the request, in one write if it is short.
func (rt *roundTripper) write(stream net.Conn) error {
	head := append(rt.head, "\r\n"...)
	n := min(len(rt.body), max(0, firstWriteBytes-len(head)))
	head = append(head, rt.body[:n]...)
	rt.head = head[:len(rt.head)] // with the room, for the next call
	_, err := stream.Write(head)
	if err == nil && n < len(rt.body) {
		_, err = stream.Write(rt.body[n:])
	}
	return err
}

// defaultTimeout is that of a request which names none.
const defaultTimeout = 10 * time.Second

// span is the time that a call has.
type span struct {
	started time.Time
	timeout time.Duration
	end     time.Time     // started + timeout: nothing of the call outlasts it
	lease   time.Duration // Request.Deadline
}

// spanOf is the time that a call has which starts now.
func spanOf(req *Request, now time.Time) span {
	s := span{started: now, timeout: req.Timeout, lease: req.Deadline}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	s.end = now.Add(s.timeout)
	return s
}

// heldBack is the dispatch guard: the call would not fit before the lease ends. held is now, on the
// clock of leases.
func (s span) heldBack(held, left time.Duration) bool {
	return s.lease != 0 && held+left > s.lease
}

// late is asked right before the write. The process may have been stopped since
// the call began, or the whole machine, and the connection's own deadline need not
// have been noticed yet. After a dial, whose time is part of the call's, the rest of
// the call must fit. Were it a whole one, a receiver that is slow to connect could
// never be called, and its breaker would never learn of it.
func (s span) late(now time.Time, held time.Duration, dialled bool) error {
	left := s.timeout
	if dialled {
		left = s.end.Sub(now)
	}
	if s.heldBack(held, left) {
		return errHeldBack
	}
	if !now.Before(s.end) {
		return errTimeout
	}
	return nil
}
