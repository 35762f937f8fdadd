package scheduler

import (
	"maps"
	"math/rand/v2"
	"slices"
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
type Scheduler struct {
	cfg    Config
	env    Env
	table  *table.Table   // the replica's; see SetTable
	now    *clocks.Moment // the worker's current turn
	random *rand.Rand

	active     bool
	leadership uint64        // counts this process's leaderships
	since      time.Duration // when it began; monotonic
	timed      bool          // the clock was trusted once; before that nothing that depends on it is proposed
	doubted    bool          // another node may lead; nothing starts until a majority has confirmed this one
	confirming bool          // Env.Confirm is pending
	provenAt   time.Duration // when the last Env.Confirm that succeeded was asked, on clocks.Moment.Lease

	due       dueQueues
	keys      keyQueues
	limits    topicLimits
	leases    activeLeases
	consumers consumerLeases
	inherited inheritedLeases
	series    seriesTimes
	out       outcomes
}

// outcomes are the changes of timers that the next entries carry, besides clients' changes and
// leases.
type outcomes struct {
	outcomes []outcomeItem
	expires  []entry // scheduled, past their expiry
	forgets  []entry // dead, past their retention
	skips    []entry // missed occurrences
	overlaps []overlap
}

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
}

// Topics is where a leader looks topics up.
type Topics interface {
	Topic(id timer.TopicID) (*timer.Topic, bool)
}

// Observer receives events for metrics.
type Observer interface {
	Expired()                     // a timer expired before it could be attempted again
	Lateness(ms int64, held bool) // of a first attempt that has ended; held: a gate delayed it
}

// Env is a scheduler's access to its replica. All methods but Post are called on the replica's
// worker.
type Env interface {
	Wake()     // runs the scheduler once more in this turn of the worker
	WakeNext() // runs it in the next turn, which follows at once
	// Spent counts steps of work in this turn of the worker, of about a microsecond each, and reports
	// that the turn's time is over: what is left goes on in the next turn.
	Spent(steps int) bool
	// Least reports whether the least may be done nevertheless. It is asked once for each visit.
	Least() bool
	// Post runs an event on the worker. It may be called from any goroutine. stopped: the host has
	// stopped, and the event runs on any goroutine.
	Post(event func(stopped bool))

	Proposed(Item)                // records the purpose of the item just added to the entry
	Confirm(then func(error))     // asks a majority whether this node still leads
	HandingOver() bool            // nothing new may begin: the leadership is being transferred, or the node stops
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

// outcomeItem is an outcome to be proposed, with its active lease. lease is nil if no active lease
// belongs to it, as for inherited and consumers' leases.
type outcomeItem struct {
	table.Outcome
	lease *activeLease
}

func New(cfg Config, env Env, now *clocks.Moment) *Scheduler {
	return &Scheduler{
		cfg: cfg, env: env, now: now,
		random: rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Shard))),
		limits: topicLimits{carriedOver: map[timer.Handle]carriedLease{}},
		series: seriesTimes{calendar: recurrence.Calendar{Zones: cfg.Zones}},
	}
}

// SetTable replaces the table, as after a snapshot.
func (l *Scheduler) SetTable(t *table.Table) { l.table = t }

// Begin starts a leadership, after its takeover was applied. It keeps from the previous one the
// leases whose calls still run, consumers' leases that count at limits, and the last acked leases.
func (l *Scheduler) Begin() {
	l.active, l.since = true, l.now.Mono
	l.leadership++
	l.timed, l.doubted, l.confirming, l.provenAt = false, false, false, 0
	led := l.leases.byTimer != nil
	if !led {
		l.leases.byTimer = map[timer.Handle]*activeLease{}
	}
	l.leases.held = heap[*activeLease]{}
	l.due = newDueQueues()
	l.due.rearming = led
	l.consumers = consumerLeases{leases: map[timer.Handle]consumerLease{}, reserved: map[timer.Handle]uint64{}, acked: l.consumers.acked}
	l.inherited = inheritedLeases{scanning: true, fences: map[table.Incarnation]bool{}}
	l.limits.carried = map[timer.Handle]carriedLease{}
	l.series = seriesTimes{calendar: l.series.calendar}
	l.out = outcomes{}
	l.beginOrder()
	for _, h := range l.activeHandles() {
		if f := l.leases.byTimer[h]; f.phase == reporting {
			l.ended(f, &f.attempt) // this node leads again and judges the attempt itself
		}
	}
}

// activeHandles returns the timers with an active lease, sorted: the order of effects must be
// deterministic.
func (l *Scheduler) activeHandles() []timer.Handle { return slices.Sorted(maps.Keys(l.leases.byTimer)) }

// End stops the leadership: nothing more starts. The next leadership puts the timers that left the
// wheel back, in slices: see rearm.
func (l *Scheduler) End() {
	if !l.active {
		return
	}
	l.active, l.timed = false, false
	for l.due.spares.Len() > 0 {
		l.returnSpare(l.due.spares.First())
	}
	for l.due.withSlot.Len() > 0 {
		l.returnCredits(l.due.withSlot.First())
	}
	l.due = newDueQueues()
	l.endLimits()
	l.leases.blocked, l.leases.proposed = nil, 0
	for _, h := range l.activeHandles() {
		f := l.leases.byTimer[h]
		l.env.Refuse(f.waiting)
		f.waiting = nil
		switch f.phase {
		case started: // it continues, and is reported when it ends
		case proposed, held:
			f.permit.Cancel()
			l.report(f, delivery.Outcome{NotSent: true})
		case returned:
			l.report(f, delivery.Outcome{NotSent: true})
		case ended:
			l.report(f, f.attempt)
		}
	}
}

// Run does this turn's work: it moves due timers from the wheel into destination queues, and starts
// held calls that are due. While the wall clock is in doubt nothing leaves the wheel or starts.
func (l *Scheduler) Run() {
	if !l.active {
		return
	}
	if l.sure() && !l.timed {
		l.timed = true
		l.Rebase()
	}
	l.confirm()
	l.rearm()
	if l.timed {
		l.scanInherited()
		l.expireLeases()
	}
	if l.sure() {
		l.takeDue()
	}
	l.realign()
	l.scanBlockers()
	l.refreshSome()
	l.move()
	l.compact()
	l.resumeDeferred()
	l.reopen()
	l.openWindows()
	l.retryZones()
	if l.mayStart() {
		l.startDue()
		l.notifyReady()
	}
}

// canaryOf is the canary's topic as schedulers see it.
var canaryOf = &timer.Topic{ID: table.CanaryTopic, Name: "canary", Policy: timer.DefaultPolicy()}

// topic returns a topic as this node knows it; nil if it is unknown.
func (l *Scheduler) topic(id timer.TopicID) *timer.Topic {
	if id == table.CanaryTopic {
		return canaryOf
	}
	t, _ := l.cfg.Topics.Topic(id)
	return t
}

// retention returns how long a timer's topic keeps dead letters, in ms.
func (l *Scheduler) retention(h timer.Handle) int64 {
	if t := l.topic(l.table.Due(h).Topic); t != nil {
		return t.Policy.DeadRetentionMs
	}
	return timer.DefaultPolicy().DeadRetentionMs
}

// Doubt prevents starts until a majority has confirmed that this node still leads.
func (l *Scheduler) Doubt() {
	l.doubted = true
	l.env.Wake()
}

// confirm asks a majority whether this node leads, unless that is pending.
func (l *Scheduler) confirm() {
	if !l.active || !l.doubted || l.confirming {
		return
	}
	l.confirming = true
	leadership, asked := l.leadership, l.now.Lease
	l.env.Confirm(func(err error) {
		if l.leadership != leadership {
			return // a new leadership has begun, and its takeover proved it
		}
		l.confirming = false
		if err == nil {
			l.doubted, l.provenAt = false, asked
		}
		l.env.WakeNext()
	})
}

// sure reports that the wall clock is trusted, so that due timers may be processed.
func (l *Scheduler) sure() bool { return l.now.Trust == clocks.Sure }

// mayStart reports that calls may start and timers may be given to consumers.
func (l *Scheduler) mayStart() bool { return l.sure() && !l.doubted }

// Tick runs about every 50 ms, whether or not this node leads or still has a replica.
func (l *Scheduler) Tick() {
	l.reportAll()
	l.realignOpen()
	l.endCarriedOver(false)
	l.renotifyReady()
}

// HasProposals reports that the scheduler has items for the next entry.
func (l *Scheduler) HasProposals() bool {
	o := &l.out
	return l.active && len(o.outcomes)+len(o.expires)+len(o.forgets)+len(o.skips)+len(o.overlaps)+l.due.turns.ring.Len() > 0
}

// NextWake returns when the scheduler must run next, in wall-clock ms.
func (l *Scheduler) NextWake() int64 {
	if !l.active {
		return 1<<63 - 1
	}
	at := l.endWakeMs()
	if l.due.shut.len() > 0 {
		at = min(at, l.now.WallMs+(l.due.shut.top().until-l.now.Mono+time.Millisecond-1).Milliseconds())
	}
	if !l.mayStart() {
		return at // due timers wait for a tick
	}
	if list := l.due.unknownZones.list; len(list) > 0 {
		at = min(at, l.now.WallMs+(list[0].retry-l.now.Mono).Milliseconds()+1)
	}
	if ms, ok := l.table.NextDue(); ok {
		at = min(at, ms-l.due.lookAhead.Milliseconds())
	}
	if l.leases.held.len() > 0 {
		at = min(at, l.leases.held.top().dueMs)
	}
	if l.due.exact.len() > 0 {
		at = min(at, l.due.exact.top().dueMs)
	}
	if l.due.windows.len() > 0 {
		at = min(at, l.due.windows.top().untilMs)
	}
	if l.due.later.len() > 0 {
		at = min(at, l.due.later.top().dueMs-l.due.lookAhead.Milliseconds())
	}
	return at
}
