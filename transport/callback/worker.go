package callback

import (
	"runtime/debug"
	"sync"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/slots"
)

// workerIdle is how long a goroutine without calls is kept.
const workerIdle = 10 * time.Second

// workers are the goroutines that make calls. They are reused, the last used first:
// a fresh goroutine would have to grow its stack for every call. There are about as
// many as calls at once, so at most Config.MaxCalls and a few that are just ending.
type workers struct {
	pool *Pool

	mu     sync.Mutex
	idle   []*worker // the last used at the end
	closed bool
	live   sync.WaitGroup
}

// worker makes one call at a time. Its buffers are its own.
type worker struct {
	pool         *Pool
	next         chan *callSlot // capacity 1: only an idle worker is given one
	idleSince    time.Time
	roundTripper roundTripper
}

// run gives the call to a worker. It never blocks.
func (ws *workers) run(t *callSlot) {
	ws.mu.Lock()
	if ws.closed {
		ws.mu.Unlock()
		go ws.pool.refuse(t)
		return
	}
	var w *worker
	if n := len(ws.idle); n > 0 {
		w = ws.idle[n-1]
		ws.idle[n-1] = nil
		ws.idle = ws.idle[:n-1]
	} else {
		w = &worker{pool: ws.pool, next: make(chan *callSlot, 1)}
		ws.live.Add(1)
		go w.loop()
	}
	ws.mu.Unlock()
	w.next <- t
}

func (w *worker) loop() {
	defer w.pool.workers.live.Done()
	for t := range w.next {
		for t != nil {
			t = w.pool.finish(t, w.guardedCall(t))
		}
		if !w.pool.workers.park(w) {
			return
		}
	}
}

// guardedCall has a panic cost one call, not the process. How much the receiver has seen is not
// known then, and the worker's buffers are not used again.
func (w *worker) guardedCall(t *callSlot) (out Outcome) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		p := w.pool
		p.config.Logger.Error("panic in a callback", "destination", t.dest.label, "panic", v, "stack", string(debug.Stack()))
		w.roundTripper = roundTripper{}
		out = p.notSent("internal error")
		out.NotSent, out.unjudged = false, true
	}()
	return w.call(t)
}

// park reports false when the worker should end.
func (ws *workers) park(w *worker) bool {
	now := ws.pool.config.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return false
	}
	w.idleSince = now
	ws.idle = append(ws.idle, w)
	return true
}

// trim ends the workers that have been idle since before the given time.
func (ws *workers) trim(before time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for n < len(ws.idle) && ws.idle[n].idleSince.Before(before) {
		close(ws.idle[n].next)
		n++
	}
	if n > 0 {
		kept := copy(ws.idle, ws.idle[n:])
		clear(ws.idle[kept:])
		ws.idle = ws.idle[:kept]
	}
}

func (ws *workers) stop() {
	ws.mu.Lock()
	ws.closed = true
	for _, w := range ws.idle {
		close(w.next)
	}
	ws.idle = nil
	ws.mu.Unlock()
	ws.live.Wait()
}

// refuse ends a call that comes after the workers' end, and those behind it in line.
func (p *Pool) refuse(t *callSlot) {
	for t != nil {
		t = p.finish(t, p.notSent("not sent: shut down"))
	}
}

// finish reports to the breaker, then to the caller, then frees the slot. It returns the
// destination's next call.
func (p *Pool) finish(t *callSlot, out Outcome) (next *callSlot) {
	next, more := t.dest.ended(&out)
	if more != nil {
		p.starts.begin(more)
	}
	if !p.starts.follow(t, next) {
		next = nil
	}
	if out.failed() {
		t.dest.failure.Store(&failure{out.Err, p.config.shown()})
		if out.Status != 410 { // with that a receiver refuses one timer
			t.dest.inRow.Add(1)
		}
	} else if !out.NotSent {
		t.dest.inRow.Store(0)
	}
	t.slot.Report(judge(out))
	t.done(out)
	p.release(t, out.answer())
	return next
}

// answer is the outcome for the destination's slots: whether it answers, with any status.
func (out *Outcome) answer() slots.Answer {
	switch {
	case out.Status > 0:
		return slots.Answered
	case out.NotSent || out.Refused || out.unjudged:
		return slots.Unknown
	}
	return slots.Silent
}

// judge is the outcome for the breaker: any answer below 500 is a live receiver's.
func judge(out Outcome) error {
	switch {
	case out.NotSent || out.Refused || out.unjudged:
		return errNotJudged
	case out.Status > 0 && out.Status < 500:
		return nil
	}
	return errReceiverFailed
}

func (p *Pool) notSent(why string) Outcome {
	now := p.config.Now()
	ms := p.config.shown().UnixMilli()
	return Outcome{Outcome: delivery.Outcome{NotSent: true, Err: why, StartedMs: ms, EndedMs: ms}, Started: now}
}
