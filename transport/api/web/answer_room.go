package web

import (
	"sync"

	"carillon/timer"
)

// Room is one answer's use of the budget of answers, from the first timer copied for it until
// it has been written. It is the timer.Room of all timers in the answer.
type Room struct {
	budget Memory
	owner  Sender
	most   int64

	mu    sync.Mutex
	taken int64
	full  bool // it took no more: the answer ends there
}

// Room is the room of the request's answer, of so many bytes at most.
func (rq *Request) Room(most int) *Room {
	rq.Answer = &Room{budget: rq.Answers, owner: rq.Sender(), most: int64(most)}
	return rq.Answer
}

func (r *Room) Take(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(int64(n))
}

func (r *Room) take(n int64) bool {
	if r.full || r.taken+n > r.most || !r.budget.Take(r.owner, n) {
		r.full = true
		return false
	}
	r.taken += n
	return true
}

// GiveBack takes back the room of a timer that is not answered after all.
func (r *Room) GiveBack(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n64 := min(int64(n), r.taken)
	r.taken -= n64
	r.full = false
	r.budget.Give(r.owner, n64)
}

// ShardRoom is the request's room as shards know it; nil when it has none.
func (rq *Request) ShardRoom() timer.Room {
	if rq.Answer == nil {
		return nil
	}
	return rq.Answer
}

// answerStep is how much of the budget is taken at a time while an answer is rendered.
const answerStep = 64 << 10

// Holds reports whether an answer of n bytes so far may grow on.
func (r *Room) Holds(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case int64(n) >= r.most:
		return false
	case int64(n) <= r.taken || n <= SmallBody:
		return true
	}
	return !r.full && r.take(min(int64(n)+answerStep, r.most)-r.taken)
}

// End returns the room that was taken, and lets no more be taken: an operation that nobody waits
// for may still be on its way.
func (r *Room) End() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
	return r.taken
}
