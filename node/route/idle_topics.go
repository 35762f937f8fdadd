package route

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/shard"
	"carillon/timer"
)

const (
	idleTopicsInterval = time.Minute // or as often as a topic may be empty
	// ClosingStale is how long a topic may stay closed before its deletion counts as abandoned.
	ClosingStale = time.Minute
	// idleTopicsAtOnce is how many topics are looked at side by side: each look, and each removal,
	// waits for disks and other nodes.
	idleTopicsAtOnce = 16
)

// IdleTopics removes auto-created topics that have been empty for long, and finishes deletions that
// were cut off.
type IdleTopics struct {
	topics *Topics
	tasks  task.Env
	log    *slog.Logger
	// How long a topic that was made by an add must have been empty before it goes away.
	idle  time.Duration
	clock Clock
	seen  sightings
	round sync.Mutex // held by a round
}

// Clock is the time, which it may not know: *clocks.Keeper.
type Clock interface {
	WallMs() int64
	Lease() time.Duration // monotonic
	// Fault is why WallMs cannot be trusted; "": it can.
	Fault() string
}

// NewIdleTopics makes one; one goroutine is to run it. How long a topic has been empty is by the
// clock, how long a deletion has been cut off by tasks.
func NewIdleTopics(t *Topics, idle time.Duration, tasks task.Env, clock Clock, log *slog.Logger) *IdleTopics {
	return &IdleTopics{topics: t, tasks: tasks, idle: idle, clock: clock, log: log}
}

// Run looks again and again, until the context ends.
func (it *IdleTopics) Run(ctx context.Context) {
	for it.tasks.Sleep(ctx, min(idleTopicsInterval, it.idle)) {
		it.Round(ctx)
	}
}

// Round looks at every topic once.
func (it *IdleTopics) Round(ctx context.Context) {
	it.round.Lock()
	defer it.round.Unlock()
	if !it.topics.host.Leads(shard.Meta) {
		return // one node of the cluster is enough
	}
	if it.clock.Fault() != "" {
		return // nothing goes because of a time that may be wrong
	}
	seen := sightings{empty: map[timer.TopicID]time.Duration{}, closing: map[closing]time.Duration{}}
	for after := ""; ctx.Err() == nil; {
		page := it.topics.List(after, 1000)
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Name
		it.look(ctx, page, &seen)
	}
	it.seen.empty, it.seen.closing = seen.empty, seen.closing
}

// sightings are since when topics have been seen empty, and closed; by Clock.Lease and
// task.Env.Now.
type sightings struct {
	mu      sync.Mutex
	empty   map[timer.TopicID]time.Duration
	closing map[closing]time.Duration
}

// closing is one deletion of a topic.
type closing struct {
	topic     timer.TopicID
	updatedMs int64
}

// look sees to some topics.
func (it *IdleTopics) look(ctx context.Context, page []*timer.Topic, seen *sightings) {
	empty := it.emptyOf(ctx, page)
	task.Lanes(it.tasks, idleTopicsAtOnce, len(page), func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		switch t := page[i]; {
		case t.Closing:
			since := it.finishDeletion(ctx, t)
			seen.mu.Lock()
			seen.closing[closing{t.ID, t.UpdatedMs}] = since
			seen.mu.Unlock()
		case empty[t.ID]:
			if since, ok := it.check(ctx, t); ok {
				seen.mu.Lock()
				seen.empty[t.ID] = since
				seen.mu.Unlock()
			}
		}
		return true
	})
}

// emptyOf are those of some topics that were made by an add, are not paused, and have no timers.
// All are counted in one call of each node.
func (it *IdleTopics) emptyOf(ctx context.Context, page []*timer.Topic) map[timer.TopicID]bool {
	var ids []timer.TopicID
	for _, t := range page {
		if t.AutoCreated && !t.Closing && !t.Paused { // the next add to a paused one must wait
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	counts, err := it.topics.Counts(ctx, ids)
	if err != nil {
		return nil
	}
	empty := map[timer.TopicID]bool{}
	for i := range counts {
		c := &counts[i]
		empty[ids[i]] = c.Scheduled+c.Leased+c.Done+c.Dead == 0
	}
	return empty
}

// check removes an empty topic if it has been so for long enough. Otherwise since is when it was
// found empty first.
func (it *IdleTopics) check(ctx context.Context, t *timer.Topic) (since time.Duration, empty bool) {
	since, known := it.seen.empty[t.ID]
	now := it.clock.Lease()
	if !known {
		return now, true
	}
	if now-since < it.idle {
		return since, true
	}
	if past, err := it.hasHistory(ctx, t); past || err != nil {
		return now, true // looked at again in an hour: asking is not cheap
	}
	// As it was looked at: somebody may have given it a policy since.
	if _, err := it.topics.Delete(ctx, t.Name, timer.TopicChange{ID: t.ID, Version: t.Version}); err != nil {
		it.log.Debug("an idle topic was not removed", "topic", t.Name, "error", err)
	}
	return 0, false
}

// hasHistory reports that something of the topic's history is still to be seen.
func (it *IdleTopics) hasHistory(ctx context.Context, t *timer.Topic) (bool, error) {
	if t.Policy.HistoryMs == 0 {
		return false, nil
	}
	list, _, err := it.topics.History(ctx, &timer.HistoryQuery{
		Topic: t.ID, States: 1<<timer.Done | 1<<timer.Dead | 1<<timer.Cancelled, FromMs: it.clock.WallMs() - t.Policy.HistoryMs, Limit: 1,
	})
	return len(list) > 0, err
}

// finishDeletion ends a deletion that no request waits for: a forced one continues, another is
// undone. since is when the deletion was seen first.
func (it *IdleTopics) finishDeletion(ctx context.Context, t *timer.Topic) (since time.Duration) {
	since, known := it.seen.closing[closing{t.ID, t.UpdatedMs}]
	now := it.tasks.Now()
	if !known {
		return now
	}
	if now-since < ClosingStale {
		return since
	}
	if !t.ForceClose {
		it.topics.reopen(ctx, t)
		return since
	}
	if _, err := it.topics.Delete(ctx, t.Name, timer.TopicChange{Force: true}); err != nil {
		it.log.Warn("the deletion of a topic was cut off and could not be finished; it is tried again", "topic", t.Name, "error", err)
	}
	return since
}
