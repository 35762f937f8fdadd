// Package scheduler is the part of a shard that only its leader runs. It takes due timers from the
// table's wheel and queues them by topic and destination, and by key where a topic is serial. When
// all gates are open it proposes a lease. It starts the call once the lease is applied and the
// timer is due, and proposes the outcome.
//
// Rules of use:
//
//   - All state is local. A new leader rebuilds it from the table.
//   - A Scheduler is used by one goroutine, its replica's worker, which calls it in every turn.
//     Waiter.Granted and the events for Env.Post may come from any goroutine.
//   - It reaches its replica through Env alone: it knows nothing of raft, of the log or of workers,
//     and reads no clock but the clocks.Moment that New was given.
//   - Limits belong to the node: the schedulers of all its shards share them, on several workers.
//
// ../DESIGN.md describes the life of a call, the gates, the order of keys, and how a new leader
// treats the leases that it finds.
package scheduler

import (
	"time"

	"carillon/internal/clocks"
	"carillon/shard/table"
	"carillon/timer"
)

// Scheduler runs the calls of a shard on its leader: it takes due timers from the wheel, queues
// them by topic and destination, leases them as gates open, starts each call once it is leased and
// due, and judges how it ended. All state is local: a new leader rebuilds it from the table.
//
// Invariant (I3, I4): a call starts only for a lease that this leader proposed and saw applied in
// its own term, and not before its wall clock has reached the due time.
type Scheduler struct {
	leader
	view

	// Timers that have left the wheel, until they have a lease.
	due        dueQueues
	topics     topicQueues
	keys       keyQueues
	windows    topicWindows
	zones      unknownZones
	changed    changedTopics
	compaction compaction

	// Leases, until they have ended.
	limits    topicLimits
	leases    activeLeases
	reports   leaseReports
	consumers consumerLeases
	pulls     pulledTopics
	inherited inheritedLeases

	// What the next entries carry besides leases and clients' changes.
	series seriesTimes
	out    outcomes
}

func New(cfg Config, env Env, now *clocks.Moment) *Scheduler {
	s := &Scheduler{leader: newLeader(cfg, env, now)}
	s.view = newView(s)
	s.limits, s.leases, s.reports = newTopicLimits(s), newActiveLeases(s), newLeaseReports(s)
	s.beginQueues()
	s.beginLeases()
	return s
}

// beginQueues empties the queues, and all that waits with them.
func (s *Scheduler) beginQueues() {
	if s.table != nil {
		s.table.ForgetQueues()
	}
	s.due, s.topics, s.windows, s.zones = newDueQueues(s), newTopicQueues(s), newTopicWindows(s), newUnknownZones(s)
	s.changed, s.compaction = newChangedTopics(s), newCompaction(s)
}

// beginLeases empties what is known of leases that others hold, and of outcomes. It keeps the last
// leases that were acked.
func (s *Scheduler) beginLeases() {
	s.keys, s.inherited, s.pulls = newKeyQueues(s), newInheritedLeases(s), newPulledTopics(s)
	s.consumers = newConsumerLeases(s, s.consumers.acked)
	s.series, s.out = newSeriesTimes(s), newOutcomes(s)
}

// SetTable replaces the table, as after a snapshot.
func (s *Scheduler) SetTable(t *table.Table) { s.table = t }

// Begin starts a leadership, after its takeover was applied. It keeps from the previous one the
// leases whose calls still run, consumers' leases that count at limits, and the last acked leases.
func (s *Scheduler) Begin() {
	led := s.leadership > 0
	s.leader.begin()
	s.beginQueues()
	s.beginLeases()
	s.due.rearming, s.inherited.scanning = led, true
	s.leases.begin()
	s.limits.begin()
	s.keys.begin()
	s.leases.judgeReported()
}

// End stops the leadership: nothing more starts. The next leadership puts the timers that left the
// wheel back, in slices: see rearm.
func (s *Scheduler) End() {
	if !s.active {
		return
	}
	s.active, s.timed = false, false
	for s.topics.spares.Len() > 0 {
		s.topics.returnPermits(s.topics.spares.First())
	}
	for s.topics.withSlot.Len() > 0 {
		s.topics.returnCredits(s.topics.withSlot.First())
	}
	s.beginQueues()
	s.limits.end()
	s.leases.end()
}

// Run does this turn's work: it moves due timers from the wheel into destination queues, and starts
// held calls that are due. While the wall clock is in doubt nothing leaves the wheel or starts.
func (s *Scheduler) Run() {
	if !s.active {
		return
	}
	if s.sure() && !s.timed {
		s.timed = true
		s.Rebase()
	}
	s.leases.confirm()
	s.due.rearm()
	if s.timed {
		s.inherited.scan()
		s.consumers.expire()
	}
	if s.sure() {
		s.due.take()
	}
	s.series.realign()
	s.keys.scanBlockers()
	s.changed.refreshSome()
	s.changed.move()
	s.compaction.compact()
	s.compaction.sweep()
	s.topics.resumeDeferred()
	s.topics.reopen()
	s.topics.goOn()
	s.windows.reopen()
	s.zones.retry()
	if s.mayStart() {
		s.leases.startDue()
		s.pulls.notifyReady()
	}
}

// StartHeld starts held calls that have become due within a turn, and reports whether there are any.
func (s *Scheduler) StartHeld() bool {
	if !s.active || !s.mayStart() || s.leases.held.len() == 0 || s.leases.held.top().dueMs > s.now.WallMs {
		return false
	}
	s.leases.startDue()
	return true
}

// Tick runs about every 50 ms, whether or not this node leads or still has a replica.
func (s *Scheduler) Tick() {
	s.reports.repeat()
	s.series.realignOpen()
	s.limits.endCarriedOver(false)
	s.pulls.renotifyReady()
}

// HasProposals reports that the scheduler has items for the next entry.
func (s *Scheduler) HasProposals() bool {
	return s.active && len(s.out.outcomes)+len(s.out.expires)+len(s.out.forgets)+len(s.series.skips)+len(s.series.overlaps)+s.topics.turns.ring.Len() > 0 ||
		s.due.toDeclare()
}

// NextWake returns when the scheduler must run next, in wall-clock ms.
func (s *Scheduler) NextWake() int64 {
	if !s.active {
		return 1<<63 - 1
	}
	at := s.consumers.endWakeMs()
	if s.topics.shut.len() > 0 {
		at = min(at, s.now.WallMs+(s.topics.shut.top().until-s.now.Mono+time.Millisecond-1).Milliseconds())
	}
	if !s.mayStart() {
		return at // due timers wait for a tick
	}
	if list := s.zones.list; len(list) > 0 {
		at = min(at, s.now.WallMs+(list[0].retry-s.now.Mono).Milliseconds()+1)
	}
	if ms, ok := s.table.NextDue(); ok {
		at = min(at, ms-s.due.lookAhead.Milliseconds())
	}
	if len(s.leases.calls) > 0 {
		at = min(at, s.now.WallMs)
	}
	if s.leases.held.len() > 0 {
		at = min(at, s.leases.held.top().dueMs, s.leases.renewMs())
	}
	if s.due.exact.len() > 0 {
		at = min(at, s.due.exact.top().dueMs)
	}
	if s.windows.shut.len() > 0 {
		at = min(at, s.windows.shut.top().untilMs)
	}
	if s.topics.gathering.Len() > 0 {
		at = min(at, s.topics.gathering.First().untilMs)
	}
	if s.due.later.len() > 0 {
		at = min(at, s.due.later.top().dueMs-s.due.lookAhead.Milliseconds())
	}
	return at
}

// Sweep drops idle queues and outdated entries, in slices.
func (s *Scheduler) Sweep() { s.compaction.begin() }

// Rebase corrects what a wrong clock decided and that is not proposed yet.
func (s *Scheduler) Rebase() {
	s.out.rebase()
	s.series.rebase()
}

// What follows is passed on to the parts, which describe it.

func (s *Scheduler) Refresh()                            { s.changed.begin() }
func (s *Scheduler) DeliveryChanged(topic timer.TopicID) { s.topics.deliveryChanged(topic) }
func (s *Scheduler) RearmAll()                           { s.due.rearmAll() }
func (s *Scheduler) ScanAgain()                          { s.inherited.scanAgain() }
func (s *Scheduler) FollowClock(b *table.Batch)          { s.series.followClock(b) }
func (s *Scheduler) ProposeOutcomes(b *table.Batch)      { s.out.propose(b) }

func (s *Scheduler) Expire(now time.Duration) { s.leases.expire(now) }
func (s *Scheduler) Drain() int               { return s.leases.drain() }
func (s *Scheduler) GiveWay(b *table.Batch, cmd *timer.Command, o ClientChange) bool {
	return s.leases.giveWay(b, cmd, o)
}

func (s *Scheduler) Review(h timer.Handle)                 { s.keys.review(h) }
func (s *Scheduler) Resumed(h timer.Handle)                { s.keys.resumed(h) }
func (s *Scheduler) ReviewDropped(from, last timer.Handle) { s.keys.reviewDropped(from, last) }

func (s *Scheduler) JudgeReport(r *Report) (over bool)          { return s.reports.judge(r) }
func (s *Scheduler) EndReport(h timer.Handle, fence uint64)     { s.reports.end(h, fence) }
func (s *Scheduler) CanJudge(h timer.Handle, d *table.Due) bool { return s.out.canJudge(h, d) }

func (s *Scheduler) Updatable(cmd *timer.Command, d *table.Due) bool {
	return s.consumers.updatable(cmd, d)
}
func (s *Scheduler) AwaitAnswer(o ClientChange, h timer.Handle, d *table.Due) bool {
	return s.consumers.awaitAnswer(o, h, d)
}
func (s *Scheduler) DecideLeaseUpdate(cmd *timer.Command, d *table.Due) table.Outcome {
	return s.consumers.decide(cmd, d)
}
func (s *Scheduler) ProposeLeaseUpdate(b *table.Batch, out *table.Outcome) {
	s.out.proposeOutcome(b, out)
}
func (s *Scheduler) Updated(cmd *timer.Command) { s.consumers.updated(cmd) }
func (s *Scheduler) LeaseOver(cmd *timer.Command, r timer.Result) timer.Result {
	return s.consumers.leaseOver(cmd, r)
}

func (s *Scheduler) Pull(b *table.Batch, topic timer.TopicID, most int, leaseMs int64) (asked []timer.Handle, known bool) {
	return s.pulls.pull(b, topic, most, leaseMs)
}
func (s *Scheduler) Pulled(h timer.Handle, r *timer.Result) { s.pulls.pulled(h, r) }
func (s *Scheduler) PullDropped(h timer.Handle)             { s.pulls.dropped(h) }
