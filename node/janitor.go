package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carillon/shard"
)

const (
	janitorEach = time.Minute // or as often as a topic may be empty
	// closingStale is how long a topic may stay closed before its deletion counts as abandoned.
	closingStale = time.Minute
	// janitorAtOnce is how many topics are looked at side by side: each look, and each removal, waits for disks and other nodes.
	janitorAtOnce = 16
)

// janitor removes auto-created topics that have been empty for long, and finishes deletions that were cut off.
type janitor struct {
	engine *engine
	log    *slog.Logger
	idle   time.Duration // how long a topic that was made by an add must have been empty before it goes away
	now    func() time.Time
	empty  map[shard.TopicID]time.Time // since when
}

func newJanitor(e *engine, idle time.Duration, log *slog.Logger) *janitor {
	return &janitor{engine: e, idle: idle, log: log, now: time.Now, empty: map[shard.TopicID]time.Time{}}
}

func (j *janitor) run(ctx context.Context) {
	tick := time.NewTicker(min(janitorEach, j.idle))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			j.round(ctx)
		}
	}
}

// round looks at every topic once.
func (j *janitor) round(ctx context.Context) {
	if c, err := j.engine.core(); err != nil || !c.host.Leads(shard.Meta) {
		return // one of the cluster is enough
	}
	seen := sightings{since: map[shard.TopicID]time.Time{}}
	for after := ""; ctx.Err() == nil; {
		page := j.engine.Topics(after, 1000)
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Name
		j.look(ctx, page, &seen)
	}
	j.empty = seen.since
}

// sightings are the topics that are empty, and since when.
type sightings struct {
	mu    sync.Mutex
	since map[shard.TopicID]time.Time
}

// look sees to some topics.
func (j *janitor) look(ctx context.Context, page []*shard.Topic, seen *sightings) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range min(janitorAtOnce, len(page)) {
		work.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(page) && ctx.Err() == nil; i = next.Add(1) - 1 {
				switch t := page[i]; {
				case t.Closing:
					j.settle(ctx, t)
				case t.AutoCreated:
					if since, ok := j.check(ctx, t); ok {
						seen.mu.Lock()
						seen.since[t.ID] = since
						seen.mu.Unlock()
					}
				}
			}
		})
	}
	work.Wait()
}

// check removes the topic if it has been empty for long enough, else says since when it has been.
func (j *janitor) check(ctx context.Context, t *shard.Topic) (since time.Time, empty bool) {
	counts, err := j.engine.Counts(ctx, t.ID)
	if err != nil {
		return time.Time{}, false
	}
	if c := &counts[0]; c.Scheduled+c.Leased+c.Done+c.Dead > 0 {
		return time.Time{}, false
	}
	since, known := j.empty[t.ID]
	if !known {
		return j.now(), true
	}
	if j.now().Sub(since) < j.idle {
		return since, true
	}
	if past, err := j.hasHistory(ctx, t); past || err != nil {
		return j.now(), true // looked at again in an hour: asking is not cheap
	}
	if _, err := j.engine.DeleteTopic(ctx, t.Name, false); err != nil {
		j.log.Debug("an idle topic was not removed", "topic", t.Name, "error", err)
	}
	return time.Time{}, false
}

// hasHistory reports that something of the topic's history is still to be seen.
func (j *janitor) hasHistory(ctx context.Context, t *shard.Topic) (bool, error) {
	if t.Policy.HistoryMs == 0 {
		return false, nil
	}
	list, _, err := j.engine.History(ctx, &shard.HistoryQuery{
		Topic: t.ID, States: 1<<shard.Done | 1<<shard.Dead | 1<<shard.Cancelled, FromMs: j.now().UnixMilli() - t.Policy.HistoryMs, Limit: 1,
	})
	return len(list) > 0, err
}

// settle ends a deletion that nobody is busy with: a forced one goes on, another is undone.
func (j *janitor) settle(ctx context.Context, t *shard.Topic) {
	if j.now().Sub(time.UnixMilli(t.UpdatedMs)) < closingStale {
		return
	}
	if !t.ForceClose {
		j.engine.reopen(ctx, t)
		return
	}
	if _, err := j.engine.DeleteTopic(ctx, t.Name, true); err != nil {
		j.log.Warn("the deletion of a topic was cut off and could not be finished; it is tried again", "topic", t.Name, "error", err)
	}
}
