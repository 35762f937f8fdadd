package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// op is one client command on its way through a worker.
type op struct {
	group    *group
	cmd      *timer.Command
	brief    bool
	room     timer.Room     // for the timer in its answer; nil: there is
	deadline time.Duration  // on the monotonic clock
	proposed bool           // in a raft entry: from here on a failure leaves the outcome unknown
	outcome  *table.Outcome // of a claim, once proposed

	result timer.Result
	err    error
	wait   *waiter
}

// wants reports whether the answer is to have the timer as it stands.
func (o *op) wants(t *table.Table, r *timer.Result) bool {
	return o != nil && !o.brief && r.Code != timer.Created && (o.room == nil || o.room.Take(t.CopySize(r.Handle, true))) // Created: see Command.born
}

// answer ends the op. The caller's goroutine may reuse everything in it at once.
func (o *op) answer(r timer.Result, err error) {
	o.result, o.err = r, err
	if o.wait == nil {
		return // the node's own
	}
	o.group.w.queued.Add(-1)
	o.wait.done()
}

// WaitsUntil and Answer have a scheduler keep an operation that waits for a lease.
func (o *op) WaitsUntil() time.Duration { return o.deadline }

// Answer ends it.
func (o *op) Answer(r timer.Result, err error) { o.answer(r, err) }

func (o *op) handle(w *worker) {
	if o.group.notLeading() && !o.group.awaitsLeader() {
		o.answer(timer.Result{}, o.group.notLeader())
		return
	}
	o.group.waiting = append(o.group.waiting, o)
	w.touch(o.group)
}

// opList is what one client call has for one worker.
type opList []*op

func (l opList) handle(w *worker) {
	for _, o := range l {
		o.handle(w)
	}
}

// waiter wakes a client's goroutine when n parts of its call are done.
type waiter struct {
	left atomic.Int32
	ch   chan struct{} // capacity 1; nil: then is called instead
	then func()
}

var waiters = sync.Pool{New: func() any { return &waiter{ch: make(chan struct{}, 1)} }}

// newWaiter is for a client's call with n parts.
func (h *Host) newWaiter(n int) *waiter {
	if h.cfg.Block != nil {
		w := &waiter{}
		w.left.Store(int32(n))
		return w
	}
	w := waiters.Get().(*waiter)
	w.left.Store(int32(n))
	return w
}

func (w *waiter) done() {
	switch {
	case w.left.Add(-1) != 0:
	case w.then != nil:
		w.then()
	case w.ch != nil:
		w.ch <- struct{}{}
	}
}

// await blocks until all parts are done and gives the waiter back.
func (h *Host) await(w *waiter) {
	if h.cfg.Block == nil {
		<-w.ch
		w.release()
		return
	}
	if w.left.Load() > 0 { // else nobody had to be waited for
		h.cfg.Block(func(wake func()) { w.then = wake })
	}
}

// release gives a waiter back for which nobody waits.
func (w *waiter) release() {
	if w.ch != nil {
		waiters.Put(w)
	}
}

// metaOp is one command for the meta group's machine.
type metaOp struct {
	group    *group
	cmd      []byte
	deadline time.Duration

	result any
	err    error
	wait   *waiter
}

func (o *metaOp) answer(r any, err error) {
	o.result, o.err = r, err
	o.wait.done()
}

func (o *metaOp) handle(w *worker) {
	if o.group.notLeading() {
		o.answer(nil, o.group.notLeader())
		return
	}
	if len(o.group.meta.waiting) >= maxMetaWaiting {
		o.answer(nil, timer.ErrOverloaded)
		return
	}
	o.group.meta.waiting = append(o.group.meta.waiting, o)
	w.touch(o.group)
}

// read is a linearizable read: it is served once everything that was committed when it arrived is
// applied.
type read struct {
	group    *group
	serve    func(g *group, budget int) (done bool)
	long     bool // serve is called many times, a slice of work each
	deadline time.Duration
	index    uint64 // what must be applied first
	err      error
	wait     *waiter
}

func (r *read) answer(err error) {
	r.err = err
	r.wait.done()
}

func (r *read) handle(w *worker) {
	if r.group.notLeading() {
		r.answer(r.group.notLeader())
		return
	}
	r.group.reads.fresh = append(r.group.reads.fresh, r)
	w.touch(r.group)
}
