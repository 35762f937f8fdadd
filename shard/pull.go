package shard

import (
	"context"
	"sync"
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// pullRequest is a consumer's request for timers of one shard. It is answered, possibly without
// timers, when its leases are applied.
type pullRequest struct {
	group    *group
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

// pullList is the part of a client's call that goes to one worker.
type pullList []*pullRequest

func (l pullList) handle(w *worker) {
	for _, t := range l {
		if t.group.notLeading() {
			t.answer(t.group.notLeader())
			continue
		}
		t.group.pulls = append(t.group.pulls, t)
		w.touch(t.group)
	}
}

func (t *pullRequest) answer(err error) {
	if t.wait == nil {
		return
	}
	t.err = err
	w := t.wait
	t.wait = nil
	w.done()
}

// proposePulls proposes leases for waiting requests, in order of arrival.
func (g *group) proposePulls() {
	if g.scheduler.InDoubt() {
		return // until a majority has confirmed that this node leads
	}
	var keep []*pullRequest
	for i, t := range g.pulls {
		if g.batch.Size() >= table.MaxBatchBytes || !g.pullFor(t) {
			keep = append(keep, t)
		}
		g.pulls[i] = nil
	}
	if g.pulls = keep; len(keep) > 0 {
		g.w.touchNext(g)
	}
}

// pullFor proposes leases for one request. known is false if the order of the topic's timers is not
// known yet.
func (g *group) pullFor(t *pullRequest) (known bool) {
	lasts := t.leaseMs
	if lasts == 0 {
		lasts = g.scheduler.LeaseMs(t.topic)
	}
	t.untilMs, t.until = g.w.now.WallMs+lasts, g.w.now.Lease+time.Duration(lasts)*time.Millisecond
	if t.asked, known = g.scheduler.Pull(&g.batch, t.topic, t.most, lasts); !known {
		return false
	}
	for range t.asked {
		g.items = append(g.items, item{kind: pullItem, pull: t})
	}
	if t.pending = len(t.asked); t.pending == 0 {
		t.answer(nil)
	}
	return true
}

// granted handles the result of one lease.
func (t *pullRequest) granted(g *group, r *timer.Result) {
	h := t.asked[len(t.asked)-t.pending]
	t.pending--
	g.scheduler.Pulled(h, r)
	// A lease that is over is not handed out: this process was suspended, and others may have had
	// the timer since.
	if r.Code == timer.OK && t.wait != nil && g.w.now.Lease < t.until {
		t.pulled = append(t.pulled, timer.PulledTimer{Shard: g.id, Handle: r.Handle, UntilMs: t.untilMs, Timer: g.table.Copy(r.Handle)})
	}
	if t.pending == 0 {
		t.answer(nil)
	}
}

// dropped handles a lease that raft refused.
func (t *pullRequest) dropped(g *group) {
	g.scheduler.PullDropped(t.asked[len(t.asked)-t.pending])
	t.pending--
	if t.pending == 0 {
		t.answer(g.timeoutError())
	}
}

// refusePulls answers the requests that were not proposed.
func (g *group) refusePulls() {
	for _, t := range g.pulls {
		t.answer(g.notLeader())
	}
	g.pulls = nil
}

// expirePulls answers requests that have waited too long to be proposed.
func (g *group) expirePulls(now time.Duration) {
	for len(g.pulls) > 0 && g.pulls[0].deadline <= now {
		g.pulls[0].answer(g.timeoutError())
		g.pulls[0] = nil
		g.pulls = g.pulls[1:]
	}
}

// PullFrom leases ready timers of a topic to a consumer, from shards that this node leads. It may
// return fewer timers than asked for, as other consumers may be faster. It returns an error only if
// it returns no timers. After ErrUnknown some may be leased nevertheless, until their leases
// expire.
func (h *Host) PullFrom(_ context.Context, topic timer.TopicID, leaseMs int64, shares []timer.Share) ([]timer.PulledTimer, error) {
	wait := h.newWaiter(len(shares) + 1)
	perWorker := make([]pullList, len(h.workers))
	all := make([]*pullRequest, len(shares))
	for i, s := range shares {
		t := &pullRequest{group: h.groups[s.Shard], topic: topic, most: s.Timers, leaseMs: leaseMs, deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait}
		all[i] = t
		n := int(s.Shard) % len(h.workers)
		perWorker[n] = append(perWorker[n], t)
	}
	for n, l := range perWorker {
		if len(l) == 0 {
			continue
		}
		if err := h.workers[n].box.offer(l); err != nil {
			for _, t := range l {
				t.answer(err)
			}
		}
	}
	wait.done()
	h.await(wait)
	var out []timer.PulledTimer
	var err error
	now := h.cfg.Clock.Look().Lease
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
// order.
func (h *Host) Candidates(_ context.Context, topic timer.TopicID, most int) ([]timer.Candidate, error) {
	var mu sync.Mutex
	var out []timer.Candidate
	h.onWorkers(func(w *worker) {
		var leads []*scheduler.Scheduler
		for _, g := range w.groups {
			if g.scheduler != nil {
				leads = append(leads, g.scheduler)
			}
		}
		list := scheduler.TopCandidates(leads, topic, most)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, list...)
	})
	scheduler.SortCandidates(out)
	return out[:min(len(out), most)], nil
}
