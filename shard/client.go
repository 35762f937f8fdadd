package shard

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// Methods for clients of a host. Each call ends, because every operation carries a deadline that
// its worker enforces. The operations take no context: once queued, a change cannot be withdrawn.

// clients is the part of a host that clients use.
type clients struct{ h *Host }

var ops = sync.Pool{New: func() any { return new(op) }}

// newOp prepares one command, see begin.
func (c clients) newOp(id timer.ShardID, cmd *timer.Command, brief bool, room timer.Room, wait *waiter) (*op, error) {
	o := ops.Get().(*op)
	if err := c.begin(o, id, cmd, c.h.cfg.Clock.Mono()); err != nil {
		ops.Put(o)
		return nil, err
	}
	o.brief, o.room, o.wait = brief, room, wait
	return o, nil
}

// begin makes an empty op one command's, at a monotonic time. It fails, and leaves the op empty, if
// the command is not admitted (see admit) or if the worker already has MaxQueued operations.
func (c clients) begin(o *op, id timer.ShardID, cmd *timer.Command, now time.Duration) error {
	r := c.h.resolve(id)
	if err := c.h.admit(r, cmd); err != nil {
		return err
	}
	if r.w.queued.Add(1) > int64(c.h.cfg.MaxQueued) {
		r.w.queued.Add(-1)
		if grows(cmd) {
			c.h.refused[RefusedOverload].Add(1)
		}
		return timer.ErrOverloaded
	}
	o.shard, o.asked, o.cmd, o.deadline = r.machine.(*timerShard), id, cmd, now+waitLimit
	return nil
}

// finish returns an op's answer and recycles the op. It runs on the client's goroutine.
func (c clients) finish(o *op) (timer.Result, error) {
	r, err := o.end()
	*o = op{}
	ops.Put(o)
	return r, err
}

// end returns the answer. It runs on the client's goroutine.
func (o *op) end() (timer.Result, error) {
	r := o.result
	switch {
	case r.Timer != nil:
		numbered(o.shard, &r.Timer.Origin)
	case r.Code == timer.Created:
		numbered(o.shard, &r.Origin)
		if !o.brief {
			r.Timer = timer.NewTimer(o.cmd, &r)
		}
	}
	return r, o.err
}

// opRoom is memory for the ops of one call of DoAll. It is used again: all in it is empty then.
type opRoom struct {
	ops   []op
	lists []partOf[*op] // of each worker
}

var opRooms = sync.Pool{New: func() any { return new(opRoom) }}

func (r *opRoom) reserve(n, workers int) {
	r.ops = slices.Grow(r.ops, n)[:n]
	r.lists = slices.Grow(r.lists, workers)[:workers]
}

// release gives the room back. All of its ops are answered.
func (r *opRoom) release() {
	clear(r.ops)
	for i := range r.lists {
		clear(r.lists[i])
		r.lists[i] = r.lists[i][:0]
	}
	opRooms.Put(r)
}

// Do submits one command to its shard and waits for the result. The command must not change until
// Do returns.
func (c clients) Do(id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	wait := c.h.newWaiter(1)
	o, err := c.newOp(id, cmd, brief, nil, wait)
	if err != nil {
		wait.release()
		return timer.Result{}, err
	}
	if err := c.submit(o.shard.g.w, o, wait, c.h.cfg.MaxQueued); err != nil {
		o.shard.g.w.queued.Add(-1)
		return timer.Result{}, err
	}
	return c.finish(o)
}

// DoAll submits many commands at once, stores their results in list, and returns when all are
// there. Commands for one shard are decided in the order given.
func (c clients) DoAll(list []timer.Op) {
	wait, now := c.h.newWaiter(len(list)+1), c.h.cfg.Clock.Mono()
	room := opRooms.Get().(*opRoom)
	room.reserve(len(list), len(c.h.workers))
	for i := range list {
		o := &room.ops[i]
		if err := c.begin(o, list[i].Shard, list[i].Command, now); err != nil {
			list[i].Err = err
			wait.done()
			continue
		}
		o.place, o.brief, o.room, o.wait = list[i].Place, list[i].Brief, list[i].Room, wait
		n := o.shard.g.w.number
		room.lists[n] = append(room.lists[n], o)
	}
	offerParts(c.h, room.lists)
	wait.done()
	c.h.await(wait)
	for i := range list {
		if o := &room.ops[i]; o.wait != nil {
			list[i].Result, list[i].Err = o.end()
		}
	}
	room.release()
}

// read runs a linearizable read on a shard: its worker calls serve, and for a long read repeats the
// call with a budget of slots until serve returns true.
func (c clients) read(id timer.ShardID, long bool, serve func(s *timerShard, budget int) bool) error {
	r := c.newRead(id, serve)
	r.long = long
	return c.ask(r)
}

// ask submits a read and waits until it is served.
func (c clients) ask(r *read) error {
	r.wait = c.h.newWaiter(1)
	if err := c.submit(r.group.w, r, r.wait, c.h.cfg.MaxQueued); err != nil {
		return err
	}
	return r.err
}

// newRead prepares a read of the group that answers for a shard. s is nil for the meta group.
func (c clients) newRead(id timer.ShardID, serve func(s *timerShard, budget int) bool) *read {
	r := &read{group: c.h.resolve(id), deadline: c.h.cfg.Clock.Mono() + waitLimit}
	s, isShard := r.group.machine.(*timerShard)
	r.serve = func(budget int) bool {
		if isShard && s.division.hasLeft(id) {
			r.left = true
			return true
		}
		return serve(s, budget)
	}
	return r
}

// onWorker runs fn on a worker and waits for it.
func (c clients) onWorker(w *worker, fn func(w *worker)) error {
	wait := c.h.newWaiter(1)
	return c.submit(w, &call{fn: fn, wait: wait}, wait, math.MaxInt)
}

// submit queues an event, unless more than bound wait, and waits for its answer.
func (c clients) submit(w *worker, e event, wait *waiter, bound int) error {
	if err := w.box.put(e, bound); err != nil {
		wait.release()
		return err
	}
	c.h.await(wait)
	return nil
}

// Timer reads one timer linearizably. It returns nil if there is none.
func (c clients) Timer(id timer.ShardID, topic timer.TopicID, timerID string) (found *timer.Timer, err error) {
	var r *read
	r = c.newRead(id, func(s *timerShard, _ int) bool {
		if to, known := s.division.ownerOf(id, topic, timerID); to != s.g.shard || !known {
			r.left = true
			return true
		}
		if found = s.table.Read(topic, timerID); found != nil {
			s.scheduler.View.Overlay(found)
			numbered(s, &found.Origin)
		}
		return true
	})
	err = c.ask(r)
	return found, err
}

// countsAtOnce is how many topics a worker counts in one event, to keep its turns short: it takes
// O(shards × topics), of which most are one look into a map, for few topics are in every shard.
const countsAtOnce = 128

// Counts returns the counts of each topic, summed over the shards that this node leads.
func (c clients) Counts(topics []timer.TopicID) ([]timer.Counts, error) {
	var mu sync.Mutex
	sums := make([]timer.Counts, len(topics))
	for from := 0; from < len(topics); from += countsAtOnce {
		part := topics[from:min(from+countsAtOnce, len(topics))]
		c.h.onWorkers(func(w *worker) {
			own := make([]timer.Counts, len(part))
			for _, s := range w.shards {
				if s.g.serving {
					s.scheduler.View.Count(part, own)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range own {
				sums[from+i].Add(&own[i])
			}
		})
	}
	return sums, nil
}

// Propose submits a command to the meta group and returns the result of Machine.Apply.
func (c clients) Propose(cmd []byte) (any, error) {
	wait := c.h.newWaiter(1)
	o := &metaOp{meta: c.h.metaGroup(), cmd: cmd, deadline: c.h.cfg.Clock.Mono() + waitLimit, wait: wait}
	if err := c.submit(o.meta.g.w, o, wait, c.h.cfg.MaxQueued); err != nil {
		return nil, err
	}
	return o.result, o.err
}

// TopicsChanged makes the schedulers read topics again; ids: none if any may have changed. It may be
// called from any goroutine.
func (h *Host) TopicsChanged(ids ...timer.TopicID) {
	for _, w := range h.workers {
		w.box.post(topicsChanged{ids})
	}
}

// recordTime is how long Drain waits, after the last call has ended, for the ends to be recorded.
// Without a majority that never happens: where all nodes stop at once, one of them is the last.
const recordTime = 5 * time.Second

// Drain stops leasing, gives back leases whose calls have not started, and waits until no calls run
// and their ends are recorded, or the context ends.
func (h *Host) Drain(ctx context.Context) {
	h.draining.Store(true)
	select {
	case <-h.started:
	default:
		return // nothing has been leased yet
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for called := h.cfg.Clock.Mono(); ; {
		calls, flights := 0, 0
		h.inTurn(func(w *worker) {
			for _, s := range w.shards {
				calls += s.scheduler.View.Calling()
				flights += s.scheduler.Leases.Drain()
			}
		})
		now := h.cfg.Clock.Mono()
		if calls > 0 {
			called = now
		}
		switch {
		case flights == 0:
			return
		case now-called > recordTime:
			h.cfg.Logger.Warn("the outcomes of finished calls were not committed, as there was no majority: these timers are called again", "leases", flights)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-h.stopped:
			return
		case <-tick.C:
		}
	}
}

// topicsChanged informs the schedulers that topics were created, changed, paused, resumed or
// deleted.
type topicsChanged struct{ ids []timer.TopicID }

func (t topicsChanged) handle(w *worker) {
	for _, s := range w.shards {
		if s.scheduler.Refresh(t.ids...) {
			w.touch(s.g)
		}
	}
}

// Standings returns the state of each timer of a query and the reason why it waits. It fails if
// this node does not lead the shard.
func (c clients) Standings(id timer.ShardID, q *timer.ProgressQuery) (out []scheduler.Standing, err error) {
	s := c.h.resolve(id).machine.(*timerShard)
	look := func(*worker) {
		if !s.g.serving || !s.scheduler.Leads() || s.division.hasLeft(id) {
			err = s.g.notLeader()
			return
		}
		out = make([]scheduler.Standing, len(q.IDs))
		for i, name := range q.IDs {
			out[i] = s.scheduler.View.Standing(s.table.Named(q.Topic, []byte(name), 0))
		}
	}
	if err := c.onWorker(s.g.w, look); err != nil {
		return nil, err
	}
	return out, err
}

// Walk takes the next step of a walk through all timers of one shard that a query selects. It
// returns at most q.Limit of them, in no particular order. It ignores the query's order and After.
//
// A walk returns each timer at most once, however its due time changes, and it ends, however many
// timers are added: it goes by slot, up to the last slot and the last number at its beginning. It
// returns every selected timer that exists from its beginning until it reaches the slot. A whole
// walk visits each slot once, whereas a listing of a topic visits all slots for each page.
func (c clients) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	w := &walk{query: *q, at: at}
	w.query.After, w.query.Only = nil, c.h.half(id)
	w.query.Limit = min(max(q.Limit, 1), timer.MaxScan)
	err = c.read(id, true, w.step)
	return w.refs, w.at, err
}

// walk is one step of a walk, which may take several turns.
type walk struct {
	query timer.Query
	at    timer.ScanCursor
	refs  []timer.Ref
}

func (w *walk) step(s *timerShard, budget int) (done bool) {
	had := len(w.refs)
	w.refs = s.table.Walk(&w.query, s.scheduler.View.Hides, &w.at, budget, w.query.Limit, w.refs)
	for i := range w.refs[had:] {
		numbered(s, &w.refs[had+i].Origin)
	}
	return len(w.refs) >= w.query.Limit || w.at.Done()
}

// Forecast adds the scheduled timers of one shard to f, read at the shard's leader. Only timers of
// the given topics count; nil means all topics.
func (c clients) Forecast(id timer.ShardID, topics map[timer.TopicID]bool, f *table.Forecast) error {
	own := table.Forecast{FromMs: f.FromMs, BucketMs: f.BucketMs, Buckets: make([]int64, len(f.Buckets))}
	at, only := timer.Handle(0), c.h.half(id)
	err := c.read(id, true, func(s *timerShard, budget int) (done bool) {
		at, done = s.table.Forecast(topics, only, s.scheduler.View.Hides, at, budget, &own)
		return done
	})
	if err == nil {
		f.Add(&own)
	}
	return err
}
