package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Inspection is what a scheduler has in hand, counted. It is for tests: nothing else may depend on
// it.
type Inspection struct {
	Leading    bool
	Held       int // leases that were taken ahead of their time, and wait for it
	Unstarted  int // leases whose call has not started, and so has a permit; without the canary's
	Spare      int // permits that destination queues were granted and have not used
	Later      int // timers that are queued until they may be leased
	Compacting int // queues that are being gone through

	ConsumerLeases, ConsumerEnds int // leases of consumers; their ends, of which some may be void

	KeyRefs           int // timers that have a place in the line of their key
	GoneRefs, OldRefs int // … that are no more; … in a line of an earlier time

	Leases map[timer.Handle]InspectedLease
	Topics map[timer.TopicID]InspectedTopic
}

// InspectedLease is a lease for a call.
type InspectedLease struct {
	Pending bool // in the log's pipeline, not applied yet
	Waiting int  // clients' changes that wait for it
}

// InspectedTopic is what is queued of a topic.
type InspectedTopic struct {
	Queued int // entries of its destination queues
	InLine int // entries of the lines of its keys
	Keys   int
	Calls  int // that its destination queues count as started
}

// Inspect counts what the scheduler has in hand. It is called where its other methods are.
func (l *Scheduler) Inspect() *Inspection {
	i := &Inspection{
		Leading: l.active, Held: l.leases.held.len(), Later: l.due.later.len(), Compacting: len(l.due.compacting),
		ConsumerLeases: len(l.consumers.leases), ConsumerEnds: l.consumers.ends.len(), KeyRefs: len(l.keys.refs),
		Leases: map[timer.Handle]InspectedLease{}, Topics: map[timer.TopicID]InspectedTopic{},
	}
	for h, f := range l.leases.byTimer {
		i.Leases[h] = InspectedLease{Pending: f.phase == proposed, Waiting: len(f.waiting)}
		if f.queue.queue.id != table.CanaryTopic && f.unstarted() {
			i.Unstarted++
		}
	}
	for id, q := range l.due.topics {
		t := InspectedTopic{InLine: q.inLine, Keys: len(q.keys)}
		for _, n := range q.lanes {
			t.Queued += n.len()
			t.Calls += n.flying
			if n.spare != nil {
				i.Spare++
			}
		}
		i.Topics[id] = t
	}
	for h, c := range l.keys.refs {
		if !l.table.Live(h, c.seq) {
			i.GoneRefs++
		}
		if c.key.order != c.key.queue.order {
			i.OldRefs++
		}
	}
	return i
}

// InspectedLimit is what is counted at the limit of a topic.
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
