package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

const (
	callHeaderBytes  = 13 // of kindCall
	replyHeaderBytes = 10 // of kindReply
)

// Status of a reply, and of the end of a file.
const (
	statusOK      = iota
	statusError   // code and text of the handler's error
	statusBusy    // the handler never saw it: too many calls
	statusUnknown // the handler died of it
)

// call is one of ours that waits.
type call struct {
	done  chan struct{} // holds one when body and err are set
	batch uint64        // of the outbox
	body  []byte
	err   error
}

// borrow takes a call from the transport's pool; its channel makes it worth keeping.
func (t *Transport) borrow() *call {
	if w, ok := t.spare.Get().(*call); ok {
		return w
	}
	return &call{done: make(chan struct{}, 1)}
}

// calls are a connection's calls that wait for a reply. Invariant: the goroutine that takes a call
// out of waiting sends to its done, or is the caller itself.
type calls struct {
	mu      sync.Mutex
	waiting map[uint64]*call
	last    uint64
	failed  error // no more calls
}

// call sends one request and waits for its reply, for ctx, or for the connection's end.
func (c *conn) call(ctx context.Context, method uint8, body []byte) ([]byte, error) {
	if len(body) > c.t.config.MaxFrame {
		return nil, notSent(errTooLarge)
	}
	var timeoutMs uint32
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return nil, notSent(context.DeadlineExceeded)
		}
		timeoutMs = uint32(min(left, math.MaxUint32))
	}
	w := c.t.borrow()
	id, err := c.begin(w, method, timeoutMs, body)
	if err != nil {
		c.t.spare.Put(w)
		return nil, notSent(err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if c.calls.take(id) != nil {
			c.t.spare.Put(w)
			return nil, unknown(ctx.Err())
		}
		<-w.done // the reply came at the same time, and is being filled in
	}
	reply, err := w.body, w.err
	w.body, w.err = nil, nil
	c.t.spare.Put(w)
	return reply, err
}

func (c *conn) begin(w *call, method uint8, timeoutMs uint32, body []byte) (id uint64, err error) {
	s := &c.calls
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return 0, s.failed
	}
	if len(s.waiting) >= c.t.config.MaxCalls {
		return 0, errCallsFull
	}
	var head [callHeaderBytes]byte
	binary.LittleEndian.PutUint64(head[:], s.last+1)
	binary.LittleEndian.PutUint32(head[8:], timeoutMs)
	head[12] = method
	batch, ok := c.out.push(kindCall, head[:], body)
	if !ok {
		if err := context.Cause(c.ctx); err != nil {
			return 0, err
		}
		return 0, errQueueFull
	}
	s.last++
	w.batch = batch
	if s.waiting == nil {
		s.waiting = make(map[uint64]*call)
	}
	s.waiting[s.last] = w
	return s.last, nil
}

func (c *calls) take(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[id]
	delete(c.waiting, id)
	return w
}

// fail ends all calls with the connection. Those that never left the outbox are certain.
func (c *calls) fail(out *outbox, cause error) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.failed = nil, cause
	c.mu.Unlock()
	for _, w := range waiting {
		if out.left(w.batch) {
			w.err = unknown(cause)
		} else {
			w.err = notSent(cause)
		}
		w.done <- struct{}{}
	}
}

// handleReply is the caller's side of the link.
func (c *conn) handleReply(kind byte, payload []byte, owned bool) error {
	if kind != kindReply || len(payload) < replyHeaderBytes {
		return errProtocol
	}
	w := c.calls.take(binary.LittleEndian.Uint64(payload))
	if w == nil {
		return nil // given up by its caller
	}
	status, code, body := payload[8], payload[9], payload[replyHeaderBytes:]
	switch status {
	case statusOK:
		if !owned {
			body = bytes.Clone(body)
		}
		w.body = body
	case statusError:
		w.err = &RemoteError{Code: code, Text: printable(string(body))}
	case statusBusy:
		w.err = notSent(errCallsFull)
	default:
		w.err = unknown(fmt.Errorf("%s", printable(string(body))))
	}
	w.done <- struct{}{}
	return nil
}

// handleCall is the answering side of the link.
func (c *conn) handleCall(kind byte, payload []byte, owned bool) error {
	if kind != kindCall || len(payload) < callHeaderBytes {
		return errProtocol
	}
	id := binary.LittleEndian.Uint64(payload)
	size := int64(len(payload) - callHeaderBytes)
	busy, held := int(c.busy.Add(1)), c.held.Add(size)
	if busy > c.t.config.MaxCalls || busy > 1 && held > int64(c.t.config.QueueBytes) {
		c.busy.Add(-1)
		c.held.Add(-size)
		head := replyHead(id, statusBusy, 0)
		if _, ok := c.out.push(kindReply, head[:], nil); !ok {
			return errQueueFull
		}
		return nil
	}
	timeout := time.Duration(binary.LittleEndian.Uint32(payload[8:])) * time.Millisecond
	method, body := payload[12], payload[callHeaderBytes:]
	if !owned {
		body = bytes.Clone(body)
	}
	c.t.work.Add(1) // run, which calls this, is counted itself
	go c.answer(id, timeout, method, body)
	return nil
}

// answer runs the handler; its reply may wait for room, which the writer's deadline bounds.
func (c *conn) answer(id uint64, timeout time.Duration, method uint8, body []byte) {
	defer c.t.work.Done()
	defer c.busy.Add(-1)
	defer c.held.Add(-int64(len(body)))
	ctx := c.ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	status, code, reply := c.handle(ctx, method, body)
	head := replyHead(id, status, code)
	c.out.pushWait(kindReply, head[:], reply)
}

// handle turns a panic into an unknown outcome: one bad request must not end the process.
func (c *conn) handle(ctx context.Context, method uint8, body []byte) (status, code byte, reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			c.t.config.Logger.Error("peer: a call's handler panicked", "from", c.hello.Node, "method", method,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			status, code, reply = statusUnknown, 0, []byte("the handler panicked")
		}
	}()
	reply, err := c.t.config.Handler.Call(ctx, c.hello, method, body)
	if err == nil && len(reply) > c.t.config.MaxFrame {
		err = fmt.Errorf("the reply of %d bytes is %w", len(reply), errTooLarge)
	}
	if err != nil {
		e := remoteError(err)
		return statusError, e.Code, []byte(e.Text)
	}
	return statusOK, 0, reply
}

func replyHead(id uint64, status, code byte) (head [replyHeaderBytes]byte) {
	binary.LittleEndian.PutUint64(head[:], id)
	head[8], head[9] = status, code
	return head
}
