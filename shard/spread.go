package shard

import "carillon/timer"

// spread is how much later than it is due the first attempt of a timer starts, so that timers of one instant do not all start at once.
// It depends on nothing but the timer's id; in a serial topic on its key, which keeps the order, and an ordered one has only one.
func (l *scheduler) spread(q *topicQueue, d *Due, h timer.Handle) int64 {
	if q.topic == nil || q.topic.Policy.SpreadMs <= 0 || d.Attempts > 0 || q.topic.Policy.Ordered {
		return 0
	}
	hash := l.table.IDHash(h)
	if q.topic.Policy.Serial {
		hash = l.table.KeyHash(h)
	}
	return int64(hash % uint64(q.topic.Policy.SpreadMs))
}
