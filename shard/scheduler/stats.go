package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// view is what clients and metrics see of a scheduler. It changes nothing.
type view struct {
	*leader
	compaction *compaction
	consumers  *consumerLeases
	due        *dueQueues
	keys       *keyQueues
	leases     *activeLeases
	limits     *topicLimits
	topics     *topicQueues
	windows    *topicWindows
	zones      *unknownZones
}

func newView(s *Scheduler) view {
	return view{
		leader:     &s.leader,
		compaction: &s.compaction, consumers: &s.Consumers, due: &s.due, keys: &s.Keys, leases: &s.Leases, limits: &s.limits, topics: &s.topics, windows: &s.windows, zones: &s.zones,
	}
}

// Overlay shows a timer as clients know it: they do not see a lease whose call has not started.
func (v *view) Overlay(t *timer.Timer) {
	if t.State != timer.Leased || !v.active {
		return
	}
	if h, ok := v.table.Lookup(t.Topic, t.ID); ok && v.Hides(h) && v.leases.byTimer[h].seq == t.Seq {
		t.State = timer.Scheduled
		t.Attempts--
		t.NextMs = v.leases.byTimer[h].dueMs
	}
}

// Hides reports that a timer's lease is ahead of its due time, or is being returned: clients see
// the timer as scheduled.
func (v *view) Hides(h timer.Handle) bool {
	f := v.leases.byTimer[h]
	return f != nil && f.hidden() && v.table.Live(h, f.seq)
}

// InFlight returns how many leases have not ended, as this process knows.
func (v *view) InFlight() int { return len(v.leases.byTimer) }

// Calling returns how many leases have a call that runs.
func (v *view) Calling() (n int) {
	for _, f := range v.leases.byTimer {
		if f.phase == started {
			n++
		}
	}
	return n
}

// Unstarted returns how many leases have no call yet, or are being returned.
func (v *view) Unstarted() (n int) {
	for _, f := range v.leases.byTimer {
		if f.unstarted() || f.phase == returned {
			n++
		}
	}
	return n
}

// Totals counts clients' timers. Leases ahead of their due time count as scheduled.
func (v *view) Totals() timer.Counts {
	c, canary := v.table.Totals(), v.table.Counts(table.CanaryTopic)
	c.Scheduled -= canary.Scheduled
	c.Leased -= canary.Leased
	c.Done -= canary.Done
	c.Leased -= int64(v.leases.unseen.all)
	c.Scheduled += int64(v.leases.unseen.all)
	return c
}

// Count adds this shard's share to the sums of some topics.
func (v *view) Count(topics []timer.TopicID, sums []timer.Counts) {
	for i, topic := range topics {
		c, sum := v.table.Counts(topic), &sums[i]
		if c == (timer.Counts{}) {
			continue // nothing of it waits or is leased either
		}
		sum.Add(&c)
		if t := v.zones.topics[topic]; t != nil && v.active {
			n, oldest := t.dueOrder.Overdue(v.now.WallMs)
			sum.Ready += n
			sum.Waiting[timer.WaitZone] += n
			sum.OldestOverdueMs = max(sum.OldestOverdueMs, oldest)
		}
		inWheel, _ := v.table.WheelWaits(topic)
		addInWheel(inWheel, +1, &sum.Waiting)
		if n := inWheel.Spread; n > 0 && v.active {
			if cause := v.topicGate(v.queueOf(topic)); cause != timer.NoWait {
				sum.Waiting[timer.WaitSpread] -= n
				sum.Waiting[cause] += n
			}
		}
		q := v.topics.byID[topic]
		if q == nil || !v.active {
			continue
		}
		sum.Leased -= int64(q.unseen)
		sum.Scheduled += int64(q.unseen)
		ready, oldest := q.dueOrder.Overdue(v.now.WallMs)
		sum.Ready += ready
		sum.OldestOverdueMs = max(sum.OldestOverdueMs, oldest)
		v.countWaiting(q, &sum.Waiting)
	}
}

// statsBudget is how many queues one call of Waiting, Overdue or DueFor looks at.
const statsBudget = 512

// Waiting adds the due timers that are not started, and those between attempts, by what they wait
// for. It looks at some topics from *at on, and reports whether it has seen all.
func (v *view) Waiting(at *int, sum *timer.Waiting) (done bool) {
	if *at == 0 {
		canary, all := v.table.WheelWaits(table.CanaryTopic)
		addInWheel(all, +1, sum)
		addInWheel(canary, -1, sum)
		sum[timer.WaitZone] += int64(v.InUnknownZones())
		if !v.due.caughtUp { // some are due in the wheel, which does not know their topics
			cause := timer.WaitTurn
			if !v.mayStart() {
				cause = timer.WaitLeader
			}
			sum[cause] += v.table.Overdue()
		}
	}
	for n := 0; n < statsBudget && *at < len(v.topics.list); n++ {
		if q := v.topics.list[*at]; q.id != table.CanaryTopic {
			v.countWaiting(q, sum)
		}
		*at++
	}
	return *at >= len(v.topics.list)
}

func addInWheel(n table.WheelWaits, by int64, sum *timer.Waiting) {
	sum[timer.WaitBackoff] += by * n.Backoff
	sum[timer.WaitRefused] += by * n.Refused
	sum[timer.WaitSpread] += by * n.Spread
	sum[timer.WaitHeld] += by * n.Paused
	sum[timer.WaitOrder] += by * n.Order
}

// Overdue calls add for topics with timers that are due and wait for a gate, with their number and
// how long the oldest has waited. A window that is shut is no such gate: its timers are where they
// should be. It looks at some topics from *at on, and reports whether it has seen all.
func (v *view) Overdue(at *int, add func(topic timer.TopicID, timers, oldestMs int64)) (done bool) {
	if *at == 0 {
		v.zones.overdue(v.now.WallMs, add)
	}
	for n := 0; n < statsBudget && *at < len(v.topics.list); n++ {
		q := v.topics.list[*at]
		*at++
		if open, _ := v.windows.inWindow(q); !open && q.window.hours != nil {
			continue
		}
		if n, oldest := q.dueOrder.Overdue(v.now.WallMs); n > 0 {
			add(q.id, n, oldest)
		}
	}
	return *at >= len(v.topics.list)
}

// DueCursor is where DueFor continues.
type DueCursor struct{ topic, dest int }

// DueFor adds the number of queued timers to the sum of each destination. It looks at some queues,
// and reports whether it has seen all.
func (v *view) DueFor(at *DueCursor, sum map[Destination]int) (done bool) {
	for n := 0; n < statsBudget; n++ {
		if at.topic >= len(v.topics.list) {
			return true
		}
		q := v.topics.list[at.topic]
		if q.id == table.CanaryTopic || q.pulled() || at.dest >= len(q.dests) {
			at.topic, at.dest = at.topic+1, 0
			continue
		}
		if d := q.dests[at.dest]; d.dest != nil && d.len() > 0 {
			sum[d.dest] += d.len()
		}
		at.dest++
	}
	return false
}

// Inspection counts a scheduler's state, for tests only.
type Inspection struct {
	Leading    bool
	Held       int // applied leases that are not due yet
	Proposed   int // leases in the log's pipeline, as counted
	Unstarted  int // leases with an unused permit, without the canary's
	Spare      int // unused permits of destination queues
	Later      int // timers beyond the look-ahead
	Compacting int // queues that compact has not finished

	ConsumerLeases int // that have not ended

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
	Leases, Waiting int
}

// Inspect is for tests, from any goroutine.
func (l *Limits) Inspect() map[timer.TopicID]InspectedLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[timer.TopicID]InspectedLimit{}
	for id, b := range l.topics {
		b.mu.Lock()
		all[id] = InspectedLimit{Leases: b.leases, Waiting: b.line.Len()}
		b.mu.Unlock()
	}
	return all
}

// Inspect counts the scheduler's state. Like its other methods it runs on the replica's worker.
func (v *view) Inspect() *Inspection {
	i := &Inspection{
		Leading: v.active, Held: v.leases.held.len(), Proposed: v.leases.pipeline.proposed, Later: v.due.later.len(), Compacting: len(v.compaction.queues),
		ConsumerLeases: len(v.consumers.byTimer), KeyRefs: len(v.keys.refs),
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
			i.Spare += len(n.spares)
		}
		i.Topics[id] = t
	}
	for h, c := range v.keys.refs {
		if !v.table.Live(h, c.seq) {
			i.GoneRefs++
		}
		if c.lane.key.dropped() {
			i.OldRefs++
		}
	}
	return i
}

// Settled reports whether nothing happens before NextWake by itself: what is due waits for an
// instant, for a client or for a consumer. It is for a manual clock, by which no lease is ahead of
// its time. Cost: O(1) while a lease is active or being queued, else O(topics with queues).
func (s *Scheduler) Settled() bool {
	if !s.active || !s.timed || s.doubted || !s.cfg.Topics.Current() || s.HasProposals() || len(s.Leases.byTimer)+len(s.Pulls.reserved) > 0 {
		return false
	}
	if !s.due.caughtUp || s.due.rearming || s.inherited.scanning || s.Keys.survey.left > 0 || s.Keys.scanning || len(s.compaction.queues)+s.compaction.sweeping > 0 ||
		len(s.changed.rerouting) > 0 || s.changed.waiting() || s.topics.deferred.Len() > 0 {
		return false
	}
	for _, q := range s.topics.list {
		if q.standing[waiting] > 0 || q.asks[0] || q.asks[1] {
			return false
		}
	}
	return true
}

// Left counts the timers that were due by now and have not ended, once they have left the wheel,
// and those of them that are leased. Cost: O(entries of the queues).
func (s *Scheduler) Left() (n, leased int64) {
	_, inWheel := s.table.WheelWaits(table.CanaryTopic)
	leased = s.table.Totals().Leased - s.table.Counts(table.CanaryTopic).Leased
	n = leased + inWheel.Paused
	seen := map[timer.Handle]bool{}
	count := func(e entry) {
		if !seen[e.handle] && s.current(e) {
			seen[e.handle] = true
			n++
		}
	}
	countAll := func(list *heap[entry]) {
		for e := range list.all() {
			count(e)
		}
	}
	for _, q := range s.topics.list {
		for _, d := range q.dests {
			countAll(&d.fresh)
			countAll(&d.backlog)
		}
		for _, k := range q.keys {
			countAll(&k.first.due)
			if k.keyTurns != nil {
				for _, l := range k.more {
					countAll(&l.due)
				}
			}
		}
	}
	for i := range s.zones.list {
		count(s.zones.list[i].entry)
	}
	return n, leased
}
