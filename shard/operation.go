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
	shard    *timerShard
	cmd      *timer.Command
	brief    bool
	room     timer.Room     // for the timer in the result; nil: no limit
	deadline time.Duration  // monotonic
	outcome  *table.Outcome // of a lease update, once proposed

	result timer.Result
	err    error
	wait   *waiter
}

// wants reports whether the result is to include a copy of the timer. A created timer is copied by
// its caller; see timer.Born.
func (o *op) wants(t *table.Table, r *timer.Result) bool {
	return o != nil && !o.brief && r.Code != timer.Created && (o.room == nil || o.room.Take(t.CopySize(r.Handle, true)))
}

// answer completes the op. From then on the caller's goroutine may reuse everything in it.
func (o *op) answer(r timer.Result, err error) {
	o.result, o.err = r, err
	if o.wait == nil {
		return // an operation of the node itself
	}
	o.shard.g.w.queued.Add(-1)
	o.wait.done()
}

// WaitsUntil implements scheduler.ClientChange.
func (o *op) WaitsUntil() time.Duration { return o.deadline }

// Answer implements scheduler.ClientChange.
func (o *op) Answer(r timer.Result, err error) { o.answer(r, err) }

func (o *op) handle(w *worker) {
	if o.shard.g.notLeading() && !o.shard.g.awaitsLeader() {
		o.answer(timer.Result{}, o.shard.g.notLeader())
		return
	}
	o.shard.waiting = append(o.shard.waiting, o)
	w.touch(o.shard.g)
}

// opList is the part of a client's call that goes to one worker.
type opList []*op

func (l opList) handle(w *worker) {
	for _, o := range l {
		o.handle(w)
	}
}

// waiter wakes a client's goroutine when the n parts of its call are done.
type waiter struct {
	left atomic.Int32
	ch   chan struct{} // capacity 1; nil: then is called instead
	then func()
}

var waiters = sync.Pool{New: func() any { return &waiter{ch: make(chan struct{}, 1)} }}

// newWaiter returns a waiter for a call of n parts.
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

// await blocks until all parts are done, and releases the waiter.
func (h *Host) await(w *waiter) {
	if h.cfg.Block == nil {
		<-w.ch
		w.release()
		return
	}
	if w.left.Load() > 0 { // else all parts are done already
		h.cfg.Block(func(wake func()) { w.then = wake })
	}
}

// release returns to the pool a waiter that no goroutine waits on.
func (w *waiter) release() {
	if w.ch != nil {
		waiters.Put(w)
	}
}

// metaOp is one command for the meta group's machine.
type metaOp struct {
	meta     *metaGroup
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
	if o.meta.g.notLeading() {
		o.answer(nil, o.meta.g.notLeader())
		return
	}
	if len(o.meta.waiting) >= maxMetaWaiting {
		o.answer(nil, timer.ErrOverloaded)
		return
	}
	o.meta.waiting = append(o.meta.waiting, o)
	w.touch(o.meta.g)
}

// read is a linearizable read. It is served when everything that was committed at its arrival is
// applied.
type read struct {
	group    *group
	serve    func(budget int) (done bool)
	long     bool // serve is called several times, each for a slice of the work
	deadline time.Duration
	index    uint64 // must be applied before serve is called
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
