package scheduler

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"carillon/clocks"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// Scheduler is what only a shard's leader does: it takes what falls due from the wheel, queues it
// by topic and destination, leases it as gates open, starts the call when lease and due time are
// there, and judges how it ended. All of it is local: whatever a new leader does not find here, it
// finds in the table.
//
// Invariant (I3, I4): a call starts only for a lease that this leader proposed, saw applied in its
// own term, and whose due time its wall clock has reached.
type Scheduler struct {
	cfg    Config
	env    Env
	table  *table.Table   // the replica's; see SetTable
	now    *clocks.Moment // of the worker's turn
	random *rand.Rand

	active     bool
	leadership uint64        // its number in this process
	since      time.Duration // when it began; monotonic
	timed      bool          // it was sure of the time: until then nothing is proposed that depends on it
	doubted    bool          // whether this node still leads: nothing is started until a majority has said so
	confirming bool          // a majority is being asked

	due       dueQueues
	keys      keyQueues
	limits    topicLimits
	leases    activeLeases
	consumers consumerLeases
	inherited inheritedLeases
	series    seriesTimes
	out       outcomes
}

// outcomes are what the next entries say of timers, beside clients' changes and leases.
type outcomes struct {
	outcomes []outcomeItem
	expires  []entry // scheduled, past their expiry
	forgets  []entry // dead, past their retention
	skips    []entry // occurrences that were missed
	overlaps []overlap
}

// Config is what a scheduler works with, the same for as long as it is there.
type Config struct {
	Shard      timer.ShardID
	Owner      table.Incarnation // this process
	Seed       uint64
	Dispatcher Dispatcher
	Topics     Topics
	Observer   Observer
	Ready      func(timer.TopicID, int) // see Config.Ready
	Limiters   *Limits                  // of the node, shared by all schedulers
	Zones      *recurrence.Zones
}

// Topics is where a leader looks topics up.
type Topics interface {
	Topic(id timer.TopicID) (*timer.Topic, bool)
}

// Observer is told what happens, for metrics.
type Observer interface {
	Expired()                     // a timer is given up without another attempt
	Lateness(ms int64, held bool) // of a first attempt; held: a gate kept it
}

// Env is what a scheduler asks of the replica that it belongs to. Methods are called on the
// replica's worker, but for Post.
type Env interface {
	Wake()     // the scheduler is run once more in this turn of the worker
	WakeNext() // … in another, at once after this one
	// post has an event run on the worker; stopped: the host has stopped, and it runs on any
	// goroutine. Any may call post.
	Post(event func(stopped bool))
	Background(job func()) // runs what may take long on another goroutine

	Proposed(Item)                // says what the last item of the entry was for
	Confirm(then func(error))     // asks a majority whether this node still leads
	HandingOver() bool            // nothing new is begun: the leadership goes to another replica, or the node stops
	Present() bool                // the node has a replica, and so the table goes on
	Ended(table.Incarnation) bool // that process is known to have ended

	Resume([]ClientChange)    // has those go on that waited for a lease, before others
	Refuse([]ClientChange)    // answers them that this node does not lead
	SendReport(*Report)       // tells whoever leads how a lease ended
	ZoneUnread(string, error) // a time zone cannot be read
	Fired(timer.TopicID, *table.Outcome)
	CanaryPassed()
}

// ClientChange is a client's change that waits for a lease.
type ClientChange interface {
	WaitsUntil() time.Duration // monotonic; then it has waited too long
	Answer(timer.Result, error)
}

// outcomeItem is an outcome on its way into the log, with its active lease (nil: an inherited
// lease's).
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

// SetTable has the scheduler go on with that state of the replica's.
func (l *Scheduler) SetTable(t *table.Table) { l.table = t }

// Begin starts a leadership, after the takeover was applied. What it keeps of the one before are
// the leases whose calls still run, those that consumers had at its end, and those that were acked
// lately.
func (l *Scheduler) Begin() {
	l.active, l.since = true, l.now.Mono
	l.leadership++
	l.timed, l.doubted, l.confirming = false, false, false
	led := l.leases.byTimer != nil
	if !led {
		l.leases.byTimer = map[timer.Handle]*activeLease{}
	}
	l.leases.held = heap[*activeLease]{}
	l.due = dueQueues{topics: map[timer.TopicID]*topicQueue{}, routes: map[routeKey]*destQueue{}, lookAhead: minLookAhead, rearming: led}
	l.consumers = consumerLeases{leases: map[timer.Handle]consumerLease{}, reserved: map[timer.Handle]uint64{}, acked: l.consumers.acked}
	l.inherited = inheritedLeases{scanning: true}
	l.limits.carried = map[timer.Handle]carriedLease{}
	l.series = seriesTimes{calendar: l.series.calendar}
	l.out = outcomes{}
	l.beginOrder()
	for _, h := range l.activeHandles() {
		if f := l.leases.byTimer[h]; f.phase == reporting {
			l.ended(f, &f.attempt) // nobody else has to be told any more
		}
	}
}

// activeHandles are the timers with an active lease, in order: what is done for each must not
// depend on chance.
func (l *Scheduler) activeHandles() []timer.Handle { return slices.Sorted(maps.Keys(l.leases.byTimer)) }

// End stops the leadership: nothing more is started. What was taken from the wheel a later
// leadership puts back, in slices: see rearm.
func (l *Scheduler) End() {
	if !l.active {
		return
	}
	l.active, l.timed = false, false
	for _, id := range slices.Sorted(maps.Keys(l.due.topics)) {
		for _, n := range slices.Concat(l.due.topics[id].lanes, l.due.topics[id].moving) {
			n.fresh, n.backlog = heap[entry]{}, heap[entry]{}
			if n.spare != nil {
				n.spare.Cancel()
				n.spare = nil
			}
		}
	}
	l.due.later, l.due.exact = heap[entry]{}, heap[entry]{}
	l.due.compacting, l.due.compacted = nil, nil
	l.endLimits()
	l.leases.blocked = nil
	for _, h := range l.activeHandles() {
		f := l.leases.byTimer[h]
		l.env.Refuse(f.waiting)
		f.waiting = nil
		switch f.phase {
		case started: // it goes on, and is reported when it ends
		case proposed, held:
			f.permit.Cancel()
			l.report(f, Attempt{NotSent: true})
		case returned:
			l.report(f, Attempt{NotSent: true})
		case ended:
			l.report(f, f.attempt)
		}
	}
}

// Run does this turn's share: wheel → destination queues → leases, and starts what is held and due.
// Nothing leaves the wheel, and nothing starts, while the wall clock is in doubt.
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
	l.move()
	l.compact()
	l.unpark()
	l.reopen()
	if l.mayStart() {
		l.startDue()
		l.notifyReady()
	}
}

// canaryOf is the canary's topic as leads see it.
var canaryOf = &timer.Topic{ID: table.CanaryTopic, Name: "canary", Policy: timer.DefaultPolicy()}

// topic is a topic as this node knows it; nil: not at all.
func (l *Scheduler) topic(id timer.TopicID) *timer.Topic {
	if id == table.CanaryTopic {
		return canaryOf
	}
	t, _ := l.cfg.Topics.Topic(id)
	return t
}

// retention is how long a timer of the topic stays a dead letter, in ms.
func (l *Scheduler) retention(h timer.Handle) int64 {
	if t := l.topic(l.table.Due(h).Topic); t != nil {
		return t.Policy.DeadRetentionMs
	}
	return timer.DefaultPolicy().DeadRetentionMs
}

// Doubt has nothing started any more until a majority has said that this node still leads.
func (l *Scheduler) Doubt() {
	l.doubted = true
	l.env.Wake()
}

// confirm asks, if that is not being done.
func (l *Scheduler) confirm() {
	if !l.active || !l.doubted || l.confirming {
		return
	}
	l.confirming = true
	leadership := l.leadership
	l.env.Confirm(func(err error) {
		if l.leadership != leadership {
			return // another leadership has begun, with an entry that a majority has
		}
		l.confirming = false
		if err == nil {
			l.doubted = false
		}
		l.env.WakeNext()
	})
}

// sure reports that what is due by the wall clock may be done.
func (l *Scheduler) sure() bool { return l.now.Trust == clocks.Sure }

// mayStart reports that calls may be started, and timers be given to consumers.
func (l *Scheduler) mayStart() bool { return l.sure() && !l.doubted }

// Tick is what a scheduler does every 50 ms or so, whoever leads and even if the replica is gone.
func (l *Scheduler) Tick() {
	l.reportAll()
	l.realignOpen()
	l.endCarriedOver(false)
	l.renotifyReady()
}

// HasProposals reports that there is something for the next entry.
func (l *Scheduler) HasProposals() bool {
	o := &l.out
	return l.active && len(o.outcomes)+len(o.expires)+len(o.forgets)+len(o.skips)+len(o.overlaps)+len(l.due.runnable) > 0
}

// NextWake is when something falls due, in wall ms.
func (l *Scheduler) NextWake() int64 {
	if !l.active {
		return 1<<63 - 1
	}
	at := l.endWakeMs()
	if l.due.shut.len() > 0 {
		at = min(at, l.now.WallMs+(l.due.shut.top().until-l.now.Mono+time.Millisecond-1).Milliseconds())
	}
	if !l.mayStart() {
		return at // what is due waits for a tick
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
	if l.due.later.len() > 0 {
		at = min(at, l.due.later.top().dueMs-l.due.lookAhead.Milliseconds())
	}
	return at
}
