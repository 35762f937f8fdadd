package api

import (
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// bodies bounds the memory that request bodies take together, from the end of a request's header to its answer. Those of up to smallBody
// do not count: they are bounded by the number of connections, and cost nothing here.
type bodies struct {
	limit int64
	used  atomic.Int64
}

// smallBody is about what a connection's own buffer takes.
const smallBody = 16 << 10

// keptBody is the largest buffer, of a request's body and of an answer's, that a connection keeps for its next request. It holds the body of a
// batch of a hundred common timers; larger ones are made anew each time, and go with the answer.
const keptBody = 64 << 10

// share is what a body of n bytes takes of the budget.
func share(n uint64) int64 {
	if n <= smallBody {
		return 0
	}
	return int64(n)
}

// take is asked before the body is read.
func (b *bodies) take(n int64) bool {
	if n == 0 {
		return true
	}
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// bodyHold is what a connection has taken: its requests' that were not answered yet.
type bodyHold struct {
	of   *bodies
	held atomic.Int64
}

// grow takes more, for a body that was counted as before bytes and is now known to have after.
func (h *bodyHold) grow(before, after uint64) bool {
	n := share(after) - share(before)
	if n == 0 || h.of == nil {
		return true
	}
	if !h.of.take(n) {
		return false
	}
	h.held.Add(n)
	return true
}

// release gives back what a body of n bytes took, or as much of it as is still held: who closes a connection may come first.
func (h *bodyHold) release(n uint64) { h.drop(share(n)) }

// releaseAll is for the end of the connection.
func (h *bodyHold) releaseAll() { h.drop(h.held.Load()) }

func (h *bodyHold) drop(n int64) {
	for n > 0 {
		held := h.held.Load()
		n = min(n, held)
		if h.held.CompareAndSwap(held, held-n) {
			if n > 0 {
				h.of.used.Add(-n)
			}
			return
		}
	}
}

// answered gives back what the request's body took. What fasthttp never hands to a handler ends with its connection.
func answered(ctx *fasthttp.RequestCtx) {
	n := ctx.Request.Header.ContentLength()
	if n < 0 { // chunked
		n = len(ctx.Request.Body())
	}
	if n <= smallBody {
		return
	}
	if c, ok := ctx.Conn().(*framedConn); ok {
		c.hold.release(uint64(n))
	}
}
