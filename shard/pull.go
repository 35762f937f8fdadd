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

// pullRequest is a consumer's request for timers of one shard. It is answered, possibly without
// timers, when its leases are applied.
type pullRequest struct {
	shard    *timerShard
	topic    timer.TopicID
	most     int
	leaseMs  int64 // 0: the topic's default
	deadline time.Duration

	asked   []timer.Handle // timers for which leases are proposed, in order
	pending int            // number of asked leases that are not applied yet
	untilMs int64
	until   time.Duration // untilMs on the lease clock
	pulled  []timer.PulledTimer
	err     error
	wait    *waiter // nil once answered
}

func (p *pullRequest) handle(w *worker) {
	if p.shard.g.notLeading() {
		p.answer(p.shard.g.notLeader())
		return
	}
	p.shard.pulls = append(p.shard.pulls, p)
	w.touch(p.shard.g)
}

func (p *pullRequest) refuse(err error) { p.answer(err) }

func (p *pullRequest) answer(err error) {
	if p.wait == nil {
		return
	}
	p.err = err
	w := p.wait
	p.wait = nil
	w.done()
}

// proposePulls proposes leases for waiting requests, in order of arrival.
func (s *timerShard) proposePulls() {
	if s.scheduler.InDoubt() {
		return // until a majority has confirmed that this node leads
	}
	s.pulls = slices.DeleteFunc(s.pulls, func(t *pullRequest) bool { return s.batch.Size() < table.MaxBatchBytes && s.pullFor(t) })
	if len(s.pulls) > 0 {
		s.g.w.touchNext(s.g)
	}
}

// pullFor proposes leases for one request. known is false if the order of the topic's timers is not
// known yet.
func (s *timerShard) pullFor(t *pullRequest) (known bool) {
	lasts := t.leaseMs
	if lasts == 0 {
		lasts = s.scheduler.LeaseMs(t.topic)
	}
	t.untilMs, t.until = s.g.w.now.WallMs+lasts, s.g.w.now.Lease+time.Duration(lasts)*time.Millisecond
	if t.asked, known = s.scheduler.Pulls.Pull(&s.batch, t.topic, t.most, lasts); !known {
		return false
	}
	for range t.asked {
		s.items = append(s.items, item{kind: pullItem, pull: t})
	}
	if t.pending = len(t.asked); t.pending == 0 {
		t.answer(nil)
	}
	return true
}

func (p *pullRequest) granted(s *timerShard, r *timer.Result) {
	h := p.asked[len(p.asked)-p.pending]
	p.pending--
	s.scheduler.Pulls.Pulled(h, r)
	// A lease that is over is not handed out: this process was suspended, and others may have had
	// the timer since.
	if r.Code == timer.OK && p.wait != nil && s.g.w.now.Lease < p.until {
		leased := s.table.Copy(r.Handle)
		numbered(s, &leased.Origin)
		p.pulled = append(p.pulled, timer.PulledTimer{Shard: s.g.shard, Handle: r.Handle, UntilMs: p.untilMs, Timer: leased})
	}
	if p.pending == 0 {
		p.answer(nil)
	}
}

// dropped handles a lease that raft refused.
func (p *pullRequest) dropped(s *timerShard) {
	s.scheduler.Pulls.Dropped(p.asked[len(p.asked)-p.pending])
	p.pending--
	if p.pending == 0 {
		p.answer(s.g.timeoutError())
	}
}

// refusePulls answers the requests that were not proposed.
func (s *timerShard) refusePulls() {
	for _, t := range s.pulls {
		t.answer(s.g.notLeader())
	}
	s.pulls = nil
}

// PullFrom leases ready timers of a topic to a consumer, from shards that this node leads. It may
// return fewer timers than asked for, as other consumers may be faster. It returns an error only if
// it returns no timers. After ErrUnknown some may be leased nevertheless, until their leases
// expire.
func (c clients) PullFrom(_ context.Context, topic timer.TopicID, leaseMs int64, shares []timer.Share) ([]timer.PulledTimer, error) {
	wait := c.h.newWaiter(len(shares) + 1)
	perWorker := make([]partOf[*pullRequest], len(c.h.workers))
	all := make([]*pullRequest, len(shares))
	for i, s := range shares {
		t := &pullRequest{shard: c.h.resolve(s.Shard).machine.(*timerShard), topic: topic, most: s.Timers, leaseMs: leaseMs, deadline: c.h.cfg.Clock.Mono() + waitLimit, wait: wait}
		all[i] = t
		n := t.shard.g.w.number
		perWorker[n] = append(perWorker[n], t)
	}
	offerParts(c.h, perWorker)
	wait.done()
	c.h.await(wait)
	var out []timer.PulledTimer
	var err error
	now := c.h.cfg.Clock.Look().Lease
	for _, t := range all {
		// Skip leases that are over: this process was suspended while it waited for another shard,
		// and others may have had the timers since.
		if now < t.until {
			out = append(out, t.pulled...)
		}
		if t.err != nil {
			err = t.err
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, err
}

// Candidates returns the first most ready timers of a topic in the shards that this node leads, in
// order. A timer that was due when its add was answered, before the call, has left the wheel by
// then.
func (c clients) Candidates(_ context.Context, topic timer.TopicID, most int) ([]timer.Candidate, error) {
	var mu sync.Mutex
	var out []timer.Candidate
	callWorkers(c.h, call{late: func(w *worker, last bool) bool {
		var leads []*scheduler.Scheduler
		for _, s := range w.shards {
			leads = append(leads, s.scheduler)
		}
		list := scheduler.TopCandidates(leads, topic, most)
		if len(list) < most && !last {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, list...)
		return true
	}})
	scheduler.SortCandidates(out)
	return out[:min(len(out), most)], nil
}

// lateCall is a call that sees what is due.
type lateCall struct {
	*call
	dueMs int64         // times are rounded up: what is due by then was asked to be due before the call
	came  time.Duration // on clocks.Moment.Mono
	again bool          // it was run once
}

// Waits of a late call, at most.
const (
	instantWait = time.Millisecond       // for what is due by its dueMs
	passedWait  = 100 * time.Millisecond // for shards that had no time to look at what is due: two ticks
)

// runAfterWork runs the calls that wait for this turn's work. If due timers of a shard were passed
// over, because the turn's time was over, they wait for the next one, in which that shard is first.
// Cost: O(shards) once, and what each call does, twice at most for a call.
func (w *worker) runAfterWork() {
	if len(w.afterWork) == 0 {
		return
	}
	passed, instant := false, int64(math.MaxInt64)
	for _, s := range w.shards {
		passed = passed || s.scheduler.PassedOver()
		instant = min(instant, s.scheduler.NextInstant())
	}
	kept := w.afterWork[:0]
	for _, c := range w.afterWork {
		waited := w.now.Mono - c.came
		awaits := waited < instantWait && instant <= c.dueMs
		switch {
		case passed && waited < passedWait, c.again && awaits:
		case c.late(w, !awaits):
			c.wait.done()
			continue
		default:
			c.again = true
		}
		kept = append(kept, c)
	}
	clear(w.afterWork[len(kept):])
	w.afterWork = kept
}
