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
	"math"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// Scheduler runs the calls of a shard on its leader: it takes due timers from the wheel, queues
// them by topic and destination, leases them as gates open, starts each call once it is leased and
// due, and judges how it ended. All state is local: a new leader rebuilds it from the table.
//
// Invariant (I3, I4): a call starts only for a lease that this leader proposed and saw applied in
// its own term, and not before its wall clock has reached the due time.
//
// The replica calls the exported parts itself; what concerns several parts is a method here.
type Scheduler struct {
	leader
	View view // what clients and metrics see

	// Timers that have left the wheel, until they have a lease.
	due        dueQueues
	topics     topicQueues
	Keys       keyQueues
	windows    topicWindows
	zones      unknownZones
	changed    changedTopics
	compaction compaction
	proposer   proposer

	// Leases, until they have ended.
	limits    topicLimits
	Leases    activeLeases
	Reports   leaseReports
	Consumers consumerLeases
	Pulls     pulledTopics
	inherited inheritedLeases
	child     *Scheduler // to which leases left last; nil: none has left

	// What the next entries carry in addition to leases and clients' changes.
	series   seriesTimes
	Outcomes outcomes
}

func New(cfg Config, env Env, now *clocks.Moment) *Scheduler {
	s := &Scheduler{leader: newLeader(cfg, env, now)}
	s.View, s.proposer = newView(s), newProposer(s)
	s.limits, s.Leases, s.Reports = newTopicLimits(s), newActiveLeases(s), newLeaseReports(s)
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
	s.Keys, s.inherited, s.Pulls = newKeyQueues(s), newInheritedLeases(s), newPulledTopics(s)
	s.Consumers = newConsumerLeases(s, s.Consumers.acked)
	s.series, s.Outcomes = newSeriesTimes(s), newOutcomes(s)
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
	s.Leases.begin()
	s.limits.begin()
	s.Keys.begin()
	s.Leases.judgeReported()
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
	s.Leases.end()
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
	s.Leases.confirm()
	s.Leases.judgeEnded()
	s.due.rearm()
	if s.timed {
		s.inherited.scan()
		s.Consumers.expire()
	}
	if s.sure() {
		s.due.take()
	}
	s.series.realign()
	s.Keys.survey.run()
	s.Keys.scanBlockers()
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
		s.Leases.startDue()
		s.Pulls.notifyReady()
	}
}

// PassedOver reports that none of the due timers has left the wheel, because this leader had no
// time for that in the last turn, or has just begun. It has its turn at once, or at the next tick.
func (s *Scheduler) PassedOver() bool { return s.active && s.sure() && !s.due.least }

// NextInstant is when the next timer is due that may not be leased before; math.MaxInt64: there is
// none, or a manual clock stands still until then.
func (s *Scheduler) NextInstant() int64 {
	if !s.active || s.cfg.ManualClock || s.due.exact.len() == 0 {
		return math.MaxInt64
	}
	return s.due.exact.top().dueMs
}

// StartHeld starts held calls that have become due within a turn, and reports whether there are
// any.
func (s *Scheduler) StartHeld() bool {
	if !s.active || !s.mayStart() || s.Leases.held.len() == 0 || s.Leases.held.top().dueMs > s.now.WallMs {
		return false
	}
	s.Leases.startDue()
	return true
}

// Tick runs about every 50 ms, whether or not this node leads or still has a replica.
func (s *Scheduler) Tick() {
	s.Reports.repeat()
	s.series.realignOpen()
	s.limits.endCarriedOver()
	s.limits.leaveSome()
	s.Pulls.renotifyReady()
}

// HasProposals reports that the scheduler has items for the next entry.
func (s *Scheduler) HasProposals() bool {
	return s.active && len(s.Outcomes.outcomes)+len(s.Outcomes.expires)+len(s.Outcomes.forgets)+len(s.series.skips)+len(s.series.overlaps)+s.topics.turns.line.Len() > 0 ||
		s.due.toDeclare()
}

// NextWake returns when the scheduler must run next, in wall-clock ms.
func (s *Scheduler) NextWake() int64 {
	if !s.active {
		return 1<<63 - 1
	}
	at := s.Consumers.endWakeMs()
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
	if len(s.Leases.calls) > 0 {
		at = min(at, s.now.WallMs)
	}
	if s.Leases.held.len() > 0 {
		at = min(at, s.Leases.held.top().dueMs, s.Leases.renewMs())
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

// Lease proposes leases for timers that may go now, after a bound that they are to have.
func (s *Scheduler) Lease(b *table.Batch) {
	s.due.declare(b)
	if s.mayStart() && !s.env.HandingOver() {
		s.proposer.propose(b)
	}
}

// Sweep drops idle queues and outdated entries, in slices.
func (s *Scheduler) Sweep() { s.compaction.begin() }

// Rebase corrects what a wrong clock decided and that is not proposed yet.
func (s *Scheduler) Rebase() {
	s.Outcomes.rebase()
	s.series.rebase()
}

// Refresh takes over topics that have changed; ids: none if any may have. It reports whether there
// is something to do.
func (s *Scheduler) Refresh(ids ...timer.TopicID) bool { return s.changed.begin(ids) }

// DeliveryChanged handles a logged change of a topic's delivery, by call or by pull: timers that it
// held back may go now.
func (s *Scheduler) DeliveryChanged(topic timer.TopicID) {
	if q := s.topics.byID[topic]; s.active && q != nil {
		s.topics.join(q)
		s.env.WakeNext()
	}
}

// RearmAll puts the timers that left the wheel and have no lease back, in slices.
func (s *Scheduler) RearmAll() { s.due.rearmAll() }

// ScanAgain looks for inherited leases once more.
func (s *Scheduler) ScanAgain() { s.inherited.scanAgain() }

// FollowClock proposes what a shard's clock that was set back changes in series.
func (s *Scheduler) FollowClock(b *table.Batch) { s.series.followClock(b) }

// Config configures a Scheduler. It does not change.
type Config struct {
	Shard      timer.ShardID
	Owner      table.Incarnation // this process
	Seed       uint64
	Dispatcher Dispatcher
	Topics     Topics
	Observer   Observer
	Ready      func(timer.TopicID, int) // see shard.Config
	Limiters   *Limits                  // the node's, shared by all its schedulers
	Zones      *recurrence.Zones
	Describe   Describe
	// ManualClock: the clock stands still while there is work, see shard.Config. Nothing is leased
	// ahead of its due time.
	ManualClock bool
}

// Topics is where a leader looks topics up.
type Topics interface {
	Topic(id timer.TopicID) (*timer.Topic, bool)
	Named(name string) (*timer.Topic, bool)
	// Given reports whether there was ever a topic of the id, as this node knows.
	Given(id timer.TopicID) bool
	// Current reports whether this node has learned all that was decided before its process began.
	// Until then a topic may be another than it shows: paused, say. Once true, it stays so.
	Current() bool
}

// Observer receives events for metrics.
type Observer interface {
	Expired() // a timer expired before it could be attempted again
	// Outcomes reports outcomes: timers that were made as others ended, and those that were not
	// because their topic is gone.
	Outcomes(made, lost int)
	// Lateness of a first attempt that has ended; held: a gate delayed it; traceID: nil for none.
	Lateness(ms int64, held bool, traceID *[16]byte)
}

// Env is a scheduler's access to its replica. All methods but Post are called on the replica's
// worker.
type Env interface {
	Wake()     // runs the scheduler once more in this turn of the worker
	WakeNext() // runs it in the next turn, which follows at once
	// Spent counts steps of work in this turn of the worker, of about a microsecond each, and
	// reports that the turn's time is over: what is left is done in the next turn.
	Spent(steps int) bool
	// Least reports whether the least may be done nevertheless. It is asked once for each visit.
	Least() bool
	// Post runs an event on the worker. It may be called from any goroutine. stopped: the host has
	// stopped, and the event runs on any goroutine.
	Post(event func(stopped bool))

	Proposed(Item)                // records the purpose of the item just added to the entry
	Confirm(then func(error))     // asks a majority whether this node still leads
	HandingOver() bool            // nothing new may begin: the leadership is being transferred, or the node stops
	Full() bool                   // memory, or the table, is at its limit: what can be left out is not kept
	Present() bool                // the node has a replica, so the table keeps up
	Ended(table.Incarnation) bool // a later process of its node has registered
	// Fence asks the meta group to record that a process is gone. then runs on the worker; without
	// an error, a majority found it gone after Fence was called.
	Fence(owner table.Incarnation, then func(error))

	Resume([]ClientChange) // continues changes that waited for a lease, ahead of others
	Refuse([]ClientChange) // answers that this node does not lead
	SendReport(*Report)    // sends the outcome of a lease to the current leader
	ZoneUnknown(string)    // a due timer is in a time zone that this node lacks
	Fired(timer.TopicID, *table.Outcome)
	CanaryPassed()
}

// ClientChange is a client's change that waits for a lease.
type ClientChange interface {
	WaitsUntil() time.Duration // the deadline of its wait; monotonic
	Answer(timer.Result, error)
}

// Dispatcher makes the calls. The scheduler acquires a permit before it leases a timer, so that a
// receiver that is down or busy costs no attempt; see transport/callback.
type Dispatcher interface {
	// Route returns the destination of a timer of this topic; own overrides the topic's callback
	// settings. An error means that it cannot be delivered as the topic stands (no URL): it waits
	// until the topic changes.
	Route(t *timer.Topic, own *timer.Callback) (Destination, error)
	// Tenant names the user of a topic: tenants have their turns before topics. "" is nobody in
	// particular.
	Tenant(t *timer.Topic) string
	// Acquire asks for a permit for one call, without blocking; nil unless it is granted.
	Acquire(d Destination, t *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict)
	// Start uses a permit of Acquire, or of a waiter: it makes the call on another goroutine and
	// reports how it ended, exactly once, from any goroutine. The Delivery is the caller's.
	Start(p delivery.Permit, j *Delivery, done func(delivery.Outcome))
	// StartBatch uses a permit for one call that attempts many timers. It reports how each attempt
	// ended, in the order of the timers, exactly once, from any goroutine.
	StartBatch(p delivery.Permit, c *BatchCall, done func([]delivery.Outcome))
	// State describes a destination, and the breaker that the topic's calls to it go through.
	State(d Destination, t *timer.Topic) delivery.State
}

// Delivery is one attempt to be made.
type Delivery struct {
	Topic    *timer.Topic
	Shard    timer.ShardID
	Job      table.Job
	Own      timer.Callback
	Deadline time.Duration // on the clock of leases, clocks.Moment.Lease: a call that could end later is not started
}

// BatchCall is one call that attempts many timers.
type BatchCall struct {
	Topic    *timer.Topic
	Shard    timer.ShardID
	Jobs     []table.Job
	Own      timer.Callback // of each of them; it has no headers
	Deadline time.Duration  // see Delivery
}
