package api

import (
	"net/netip"
	"sync"

	"carillon/timer"
)

// answerRoom is one answer's use of the budget of answers, from the first timer copied for it until
// it has been written. It is the timer.Room of all timers in the answer.
type answerRoom struct {
	budget  *budget
	address netip.Addr
	most    int64

	mu    sync.Mutex
	taken int64
	full  bool // it has said no: the answer ends there
}

// room is the room of the request's answer, of so many bytes at most.
func (rq *request) room(most int) *answerRoom {
	rq.answer = &answerRoom{budget: &rq.s.answers, address: rq.address(), most: int64(most)}
	return rq.answer
}

// Take implements timer.Room.
func (r *answerRoom) Take(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(int64(n))
}

func (r *answerRoom) take(n int64) bool {
	if r.full || r.taken+n > r.most || !r.budget.take(r.address, n) {
		r.full = true
		return false
	}
	r.taken += n
	return true
}

// giveBack takes back the room of a timer that is not answered after all.
func (r *answerRoom) giveBack(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n64 := min(int64(n), r.taken)
	r.taken -= n64
	r.full = false
	r.budget.give(r.address, n64)
}

// shardRoom is the request's room as shards know it; nil when it has none.
func (rq *request) shardRoom() timer.Room {
	if rq.answer == nil {
		return nil
	}
	return rq.answer
}

// answerStep is how much of the budget is taken at a time while an answer is rendered.
const answerStep = 64 << 10

// holds reports whether an answer of n bytes so far may grow on.
func (r *answerRoom) holds(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case int64(n) >= r.most:
		return false
	case int64(n) <= r.taken || n <= smallBody:
		return true
	}
	return !r.full && r.take(min(int64(n)+answerStep, r.most)-r.taken)
}

// mayAnswer refuses a request that may have a large answer while unread answers take as much memory
// as they may.
func (rq *request) mayAnswer() *problem {
	if !rq.route.large || !rq.s.answers.full(rq.address()) {
		return nil
	}
	return fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
}

// end returns the room that was taken, and lets no more be taken: an operation that nobody waits
// for may still be on its way.
func (r *answerRoom) end() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
	return r.taken
}

// keepAnswer has the connection hold the room of the answer, and no more, until the answer has been
// written.
func (rq *request) keepAnswer() {
	if rq.ctx.Response.IsBodyStream() {
		return // it has bounds of its own
	}
	taken := rq.answer.end()
	n := int64(len(rq.ctx.Response.Body()))
	c, ok := rq.ctx.Conn().(*framedConn)
	if n <= smallBody || !ok {
		n = 0
	}
	if n != taken {
		rq.s.answers.must(rq.address(), n-taken)
	}
	if n > 0 {
		c.answer.Add(n)
	}
}

// written gives back the room of the answers before. They are on their way once the connection is
// read for more.
func (c *framedConn) written() {
	if c.answer.Load() > 0 {
		c.listener.answers.give(c.address, c.answer.Swap(0))
	}
}
