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
	sent       bool // some of the request left this machine
	dialled    bool // on a new connection
	answer     *timer.Answer
	body       []byte
}

// do makes the call that prepare filled in, within the span. It tries another connection only if not
// one byte of the request had been sent, so the receiver sees it at most once.
func (x *roundTripper) do(t *callSlot, s span) (result, error) {
	x.pool, x.call, x.span, x.result = t.dest.pool, t, s, result{}
	x.answer.Reset()
	var err error
	for again := true; again; {
		x.ended = time.Time{}
		again, err = x.onConn(t.dest.client)
	}
	x.body = nil
	if x.ended.IsZero() { // there was no connection
		x.ended = x.pool.config.Now()
	}
	return x.result, err
}

// onConn makes the call on an idle connection, or else on a new one. It reports whether to try
// another connection: an idle one was not used at all.
func (x *roundTripper) onConn(client *fasthttp.HostClient) (again bool, err error) {
	p, s := x.pool, &x.span
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
		x.ended = p.config.Now()
		if keep && c.setIdle(x.ended) {
			client.ReleaseConn(pooled)
		} else {
			client.CloseConn(pooled)
		}
	}()
	dialled := c.lastUse.IsZero()
	x.result.dialled = dialled
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
	keep, err = x.exchange(stream, c)
	again = err != nil && !dialled && !x.result.sent && !isTimeout(err) && p.base.Err() == nil
	return again, err
}

// exchange writes the request and reads the answer, until the span ends at most, which is the
// connection's deadline already. Once the headers have been read, the status counts, even if the
// body fails. It reports whether the connection may be used again.
func (x *roundTripper) exchange(stream net.Conn, c *countingConn) (keep bool, err error) {
	if x.reader == nil {
		x.reader = bufio.NewReaderSize(nil, readBufferBytes)
	}
	x.reader.Reset(stream)
	x.lastOnConn = false
	defer x.reader.Reset(nil) // keep no connection alive
	r := &x.result
	before := c.written
	writeErr := x.write(stream)
	r.sent = c.written > before
	if writeErr != nil && (!r.sent || isTimeout(writeErr)) {
		return false, writeErr
	}
	if x.call != nil && !x.call.first {
		x.pool.starts.wrote(x.call)
	}
	// After a write that broke off, an answer may be waiting all the same: a
	// receiver that refuses a long body. The socket is dead, so this does not wait.
	if err := x.readHeaders(); err != nil {
		switch {
		case writeErr != nil:
			err = writeErr
		case err == errPeerClosed && c.readErr != nil && c.readErr != io.EOF:
			err = c.readErr
		}
		return false, err
	}
	r.status = x.answer.StatusCode()
	if r.status == fasthttp.StatusTooManyRequests || r.status == fasthttp.StatusServiceUnavailable {
		r.retryAfter = string(x.answer.Header.Peek(fasthttp.HeaderRetryAfter))
	}
	if x.readsBody() {
		keep = writeErr == nil && x.reusable()
		if r.body, err = x.readBody(); err != nil {
			return false, err
		}
		return keep && x.reader.Buffered() == 0 && c.quiet(stream), nil
	}
	reusable, wanted := writeErr == nil && x.reusable(), x.keepsAnswer()
	x.kept = x.kept[:0]
	whole := (reusable || wanted) && x.drain(c, wanted)
	if wanted {
		r.answer = x.keptAnswer()
	}
	return reusable && whole && x.reader.Buffered() == 0 && c.quiet(stream), nil
}

// write sends the request, in one write if it is short.
func (x *roundTripper) write(stream net.Conn) error {
	head := append(x.head, "\r\n"...)
	n := min(len(x.body), max(0, firstWriteBytes-len(head)))
	head = append(head, x.body[:n]...)
	x.head = head[:len(x.head)] // with the room, for the next call
	_, err := stream.Write(head)
	if err == nil && n < len(x.body) {
		_, err = stream.Write(x.body[n:])
	}
	return err
}
