package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Inspection counts a scheduler's state, for tests only.
type Inspection struct {
	Leading    bool
	Held       int // applied leases that are not due yet
	Proposed   int // leases in the log's pipeline, as counted
	Unstarted  int // leases with an unused permit, without the canary's
	Spare      int // unused permits of destination queues
	Later      int // timers beyond the look-ahead
	Compacting int // queues that compact has not finished

	ConsumerLeases, ConsumerEnds int // consumers' leases; their ends, stale ones included

	KeyRefs           int // timers that are head of their key, or lease it
	GoneRefs, OldRefs int // … of timers that are gone; … of key queues that were dropped

	Leases map[timer.Handle]InspectedLease
	Topics map[timer.TopicID]InspectedTopic
}

// InspectedLease is a lease for a call.
type InspectedLease struct {
	Pending bool // in the log's pipeline, not applied yet
	Waiting int  // client changes that wait for it
}

// InspectedTopic counts the queues of a topic.
type InspectedTopic struct {
	Queued int // entries of its destination queues
	InLine int // entries of its key queues, without heads
	Keys   int
	Calls  int // leases that its destination queues count
}

// InspectedLimit counts the uses of a topic's limit.
type InspectedLimit struct {
	Leases, Waiting, Users int
}

// Inspect is for tests, from any goroutine.
func (l *Limits) Inspect() map[timer.TopicID]InspectedLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[timer.TopicID]InspectedLimit{}
	for id, b := range l.topics {
		b.mu.Lock()
		all[id] = InspectedLimit{Leases: b.leases, Waiting: len(b.line), Users: b.users}
		b.mu.Unlock()
	}
	return all
}

// Inspect counts the scheduler's state. Like its other methods it runs on the replica's worker.
func (v *view) Inspect() *Inspection {
	i := &Inspection{
		Leading: v.active, Held: v.leases.held.len(), Proposed: v.leases.proposed, Later: v.due.later.len(), Compacting: len(v.compaction.queues),
		ConsumerLeases: len(v.consumers.byTimer), ConsumerEnds: v.consumers.ends.len(), KeyRefs: len(v.keys.refs),
		Leases: map[timer.Handle]InspectedLease{}, Topics: map[timer.TopicID]InspectedTopic{},
	}
	for h, f := range v.leases.byTimer {
		i.Leases[h] = InspectedLease{Pending: f.phase == proposed, Waiting: len(f.waiting)}
		if f.queue.queue.id != table.CanaryTopic && f.unstarted() {
			i.Unstarted++
		}
	}
	for id, q := range v.topics.byID {
		t := InspectedTopic{InLine: q.inLine, Keys: len(q.keys)}
		for _, n := range q.dests {
			t.Queued += n.len()
			t.Calls += n.flying
			if n.spare != nil {
				i.Spare++
			}
		}
		i.Topics[id] = t
	}
	for h, c := range v.keys.refs {
		if !v.table.Live(h, c.seq) {
			i.GoneRefs++
		}
		if c.key.order != c.key.queue.order {
			i.OldRefs++
		}
	}
	return i
}
