package scheduler

import (
	"slices"

	"carillon/shard/table"
	"carillon/timer"
)

// The view that clients and metrics have of a scheduler. Nothing here changes it.

// Overlay shows a timer as clients know it: they do not see a lease whose call has not started.
func (l *Scheduler) Overlay(t *timer.Timer) {
	if t.State != timer.Leased || !l.active {
		return
	}
	if h, ok := l.table.Lookup(t.Topic, t.ID); ok && l.Hides(h) && l.leases.byTimer[h].seq == t.Seq {
		t.State = timer.Scheduled
		t.Attempts--
		t.NextMs = l.leases.byTimer[h].dueMs
	}
}

// Hides reports that a timer's lease is ahead of its due time, or is being returned: clients see
// the timer as scheduled.
func (l *Scheduler) Hides(h timer.Handle) bool {
	f := l.leases.byTimer[h]
	return f != nil && f.hidden() && l.table.Live(h, f.seq)
}

// Leads reports that this node leads the shard.
func (l *Scheduler) Leads() bool { return l.active }

// InDoubt reports that another node may lead by now.
func (l *Scheduler) InDoubt() bool { return l.doubted }

// InFlight returns how many leases have not ended, as far as this process knows.
func (l *Scheduler) InFlight() int { return len(l.leases.byTimer) }

// Unstarted returns how many leases have no call yet, or are being returned.
func (l *Scheduler) Unstarted() (n int) {
	for _, f := range l.leases.byTimer {
		if f.unstarted() || f.phase == returned {
			n++
		}
	}
	return n
}

// Totals counts clients' timers. Leases ahead of their due time count as scheduled.
func (l *Scheduler) Totals() timer.Counts {
	c, canary := l.table.Totals(), l.table.Counts(table.CanaryTopic)
	c.Scheduled -= canary.Scheduled
	c.Leased -= canary.Leased
	c.Done -= canary.Done
	for _, f := range l.leases.byTimer {
		if f.hidden() && f.queue.queue.id != table.CanaryTopic {
			c.Leased--
			c.Scheduled++
		}
	}
	return c
}

// Count adds this shard's share to the sums of some topics.
func (l *Scheduler) Count(topics []timer.TopicID, sums []timer.Counts) {
	queues := map[*topicQueue]*timer.Counts{}
	for i, topic := range topics {
		c, sum := l.table.Counts(topic), &sums[i]
		sum.Scheduled += c.Scheduled
		sum.Leased += c.Leased
		sum.Done += c.Done
		sum.Dead += c.Dead
		sum.NoURL += c.NoURL
		refused, _ := l.table.Refused(topic)
		sum.Waiting[timer.WaitRefused] += refused
		if q := l.due.topics[topic]; q != nil && l.active {
			ready, oldest := q.overdue(l.now.WallMs)
			sum.Ready += ready
			sum.OldestOverdueMs = max(sum.OldestOverdueMs, oldest)
			l.countWaiting(q, &sum.Waiting)
			queues[q] = sum
		}
	}
	if len(queues) == 0 {
		return
	}
	for _, f := range l.leases.byTimer {
		if sum := queues[f.queue.queue]; sum != nil && f.hidden() {
			sum.Leased--
			sum.Scheduled++
		}
	}
}

// Waiting counts the due timers of all topics that are not started, and those that were refused an
// address, by what they wait for.
func (l *Scheduler) Waiting() (sum timer.Waiting) {
	for id, q := range l.due.topics {
		if id != table.CanaryTopic {
			l.countWaiting(q, &sum)
		}
	}
	_, sum[timer.WaitRefused] = l.table.Refused(table.CanaryTopic)
	return sum
}

// Overdue calls tell for each topic with timers that are due and wait for a gate, with their number
// and how long the oldest has waited.
func (l *Scheduler) Overdue(tell func(topic timer.TopicID, timers, oldestMs int64)) {
	for id, q := range l.due.topics {
		if n, oldest := q.overdue(l.now.WallMs); n > 0 {
			tell(id, n, oldest)
		}
	}
}

// DueFor adds the number of queued timers to the sum of each destination.
func (l *Scheduler) DueFor(sum map[Destination]int) {
	for _, q := range l.due.topics {
		if q.id == table.CanaryTopic || q.pulled() {
			continue
		}
		for _, n := range q.lanes {
			if n.dest != nil && n.len() > 0 {
				sum[n.dest] += n.len()
			}
		}
	}
}

// overdue returns how many timers of a topic are due and wait for a gate, and how long the oldest
// of the queues' heads has waited.
func (q *topicQueue) overdue(nowMs int64) (n, oldestMs int64) {
	n = int64(q.inLine)
	for _, l := range slices.Concat(q.lanes, q.moving) {
		for _, h := range []*heap[entry]{&l.fresh, &l.backlog} {
			if h.len() == 0 {
				continue
			}
			n += int64(h.len())
			oldestMs = max(oldestMs, nowMs-h.top().dueMs)
		}
	}
	return n, oldestMs
}
