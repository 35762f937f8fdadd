package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Forecast adds the scheduled timers of one shard to f, read at the shard's leader. Only timers of
// the given topics count; nil means all topics.
func (c clients) Forecast(id timer.ShardID, topics map[timer.TopicID]bool, f *table.Forecast) error {
	own := table.Forecast{FromMs: f.FromMs, BucketMs: f.BucketMs, Buckets: make([]int64, len(f.Buckets))}
	s, at := c.h.shard(id), timer.Handle(0)
	err := c.read(id, true, func(budget int) (done bool) {
		at, done = s.table.Forecast(topics, s.scheduler.Hides, at, budget, &own)
		return done
	})
	if err == nil {
		f.Add(&own)
	}
	return err
}
