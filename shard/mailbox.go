package shard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// op is one client command on its way through a worker.
type op struct {
	shard    *timerShard
	asked    timer.ShardID // that the caller named
	passed   bool          // another shard has passed it on
	place    uint64        // timer.Op.Place
	cmd      *timer.Command
	brief    bool
	room     timer.Room     // for the timer in the result; nil: no limit
	deadline time.Duration  // monotonic
	outcome  *table.Outcome // of a lease update, once proposed
	begun    bool           // a part of it is applied

	result timer.Result
	err    error
	wait   *waiter
}

// wants reports whether the result is to include a copy of the timer. A created timer is copied by
// its caller; see timer.NewTimer.
func (o *op) wants(t *table.Table, r *timer.Result) bool {
	return o != nil && !o.brief && r.Code != timer.Created && (o.room == nil || o.room.Take(t.CopySize(r.Handle, t.AnswersWhole(r.Handle, o.cmd.Kind, o.cmd.Merge))))
}

// answer completes the op. From then on the caller's goroutine may reuse everything in it.
func (o *op) answer(r timer.Result, err error) {
	if err != nil && o.begun {
		err = timer.ErrUnknown // other errors promise that nothing has changed
	}
	o.result, o.err = r, err
	if o.wait == nil {
		return // an operation of the node itself
	}
	o.shard.g.w.queued.Add(-1)
	o.wait.done()
}

// WaitsUntil implements scheduler.ClientChange.
func (o *op) WaitsUntil() time.Duration { return o.deadline }

func (o *op) Answer(r timer.Result, err error) { o.answer(r, err) }

func (o *op) handle(w *worker) {
	if o.shard.division.passOn(o) {
		return
	}
	if o.shard.g.notLeading() && !o.shard.g.awaitsLeader() {
		o.answer(timer.Result{}, o.shard.g.notLeader())
		return
	}
	o.shard.waiting = append(o.shard.waiting, o)
	w.touch(o.shard.g)
}

func (o *op) refuse(err error) { o.answer(timer.Result{}, err) }

// partOf is the part of a client's call that goes to one worker.
type partOf[R request] []R

func (p *partOf[R]) handle(w *worker) {
	for _, r := range *p { // they may all be answered, and p be used again, when it ends
		r.handle(w)
	}
}

func (p *partOf[R]) refuse(err error) {
	for _, r := range *p {
		r.refuse(err)
	}
}

// offerParts queues what each worker gets of a call, and refuses what one does not take.
func offerParts[R request](h *Host, perWorker []partOf[R]) {
	for n := range perWorker {
		if p := &perWorker[n]; len(*p) > 0 {
			if err := h.workers[n].box.offer(p); err != nil {
				p.refuse(err)
			}
		}
	}
}

// waiter wakes a client's goroutine when the n parts of its call are done.
type waiter struct {
	left atomic.Int32
	ch   chan struct{} // capacity 1; nil: then is called instead
	then func()
	pool *sync.Pool // that it is of
}

func (h *Host) newWaiter(n int) *waiter {
	if h.cfg.Block != nil {
		w := &waiter{}
		w.left.Store(int32(n))
		return w
	}
	w, _ := h.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{ch: make(chan struct{}, 1), pool: &h.waiters}
	}
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
	if w.pool != nil {
		w.pool.Put(w)
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

func (o *metaOp) refuse(err error) { o.answer(nil, err) }

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
	left     bool // its timers have left the group
	group    *replica
	serve    func(budget int) (done bool)
	long     bool // serve is called several times, each for a slice of the work
	deadline time.Duration
	index    uint64 // must be applied before serve is called
	err      error
	wait     *waiter
}

func (r *read) answer(err error) {
	if r.left && err == nil {
		err = timer.NotLeaderError{}
	}
	r.err = err
	r.wait.done()
}

func (r *read) refuse(err error) { r.answer(err) }

func (r *read) handle(w *worker) {
	if r.group.notLeading() {
		r.answer(r.group.notLeader())
		return
	}
	r.group.reads.fresh = append(r.group.reads.fresh, r)
	w.touch(r.group)
}

// refuseAll answers all operations that were not proposed: this node does not lead the group, but
// another may.
func (r *replica) refuseAll() {
	err := r.notLeader()
	r.machine.refuse(err)
	r.reads.fail(err)
}

// notLeader returns the error that names the leading node, if this node knows it.
func (r *replica) notLeader() error {
	if r.raft == nil {
		return timer.NotLeaderError{}
	}
	leader := nodeOf(r.raft.BasicStatus().Lead)
	if leader == r.w.host.cfg.Node {
		leader = 0
	}
	return timer.NotLeaderError{Leader: leader}
}

// notLeading reports whether operations must not wait here: this node has no replica of the group,
// or one that follows.
func (r *replica) notLeading() bool {
	return r.raft == nil || !r.leader && !r.soleVoter()
}

// expire answers operations whose deadline has passed: 503 is better than silence.
func (r *replica) expire(now time.Duration) {
	r.machine.expire(now)
	r.reads.expire(now)
}

func (r *replica) timeoutError() error {
	if r.w.stream.Full() {
		return r.w.host.cfg.lowDisk(r.w.stream.Disk())
	}
	if r.serving {
		return timer.ErrOverloaded
	}
	return timer.ErrNoLeader
}

// event is an element of a worker's mailbox: a client operation, a completion of the log, the
// outcome of a call, a granted permit or a control message. It is handled on the worker's
// goroutine.
type event interface{ handle(w *worker) }

// request is an event whose sender waits until it is answered.
type request interface {
	event
	refuse(err error)
}

// mailbox is a worker's queue, with many producers and one consumer that takes all events at once.
// Client operations beyond bound are refused. Internal events are never refused, because a
// completion must not be lost; the running calls and the frames in flight bound their number.
type mailbox struct {
	mu     sync.Mutex
	events []event
	closed bool
	wake   chan struct{} // capacity 1
	bound  int
}

func newMailbox(bound int) *mailbox {
	return &mailbox{bound: bound, wake: make(chan struct{}, 1)}
}

// offer queues a client operation. It returns timer.ErrOverloaded if the queue is full.
func (m *mailbox) offer(e event) error { return m.put(e, m.bound) }

// post queues an internal event, or drops it if the mailbox is closed.
func (m *mailbox) post(e event) { _ = m.put(e, math.MaxInt) }

func (m *mailbox) put(e event, bound int) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return timer.ErrStopped
	}
	n := len(m.events)
	if n >= bound {
		m.mu.Unlock()
		return timer.ErrOverloaded
	}
	m.events = append(m.events, e)
	m.mu.Unlock()
	if n == 0 {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// waiting returns the number of queued events.
func (m *mailbox) waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// take returns the queued events and makes empty the new queue.
func (m *mailbox) take(empty []event) []event {
	m.mu.Lock()
	full := m.events
	m.events = empty[:0]
	m.mu.Unlock()
	return full
}

// close makes later puts fail and returns the remaining events.
func (m *mailbox) close() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	left := m.events
	m.events = nil
	return left
}
