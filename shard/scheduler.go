package shard

import (
	"carillon/shard/table"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"carillon/clocks"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// scheduler is what only a shard's leader does: it takes what falls due from the wheel, queues it by topic and
// destination, leases it as gates open, starts the call when lease and due time are there, and judges how it ended.
// All of it is local: whatever a new leader does not find here, it finds in the table.
//
// Invariant (I3, I4): a call starts only for a lease that this leader proposed, saw applied in its own term, and whose due time its
// wall clock has reached.
type scheduler struct {
	cfg    schedulerConfig
	env    surroundings
	table  *table.Table   // the replica's; see group.setTable
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

// schedulerConfig is what a scheduler works with, the same for as long as it is there.
type schedulerConfig struct {
	shard      timer.ShardID
	owner      Incarnation // this process
	seed       uint64
	dispatcher Dispatcher
	topics     Topics
	observer   Observer
	ready      func(timer.TopicID, int) // see Config.Ready
	limiters   *limits                  // of the node, shared by all schedulers
	zones      *recurrence.Zones
}

// surroundings is what a scheduler asks of the replica that it belongs to. Methods are called on the replica's worker, but for post.
type surroundings interface {
	wake()     // the scheduler is run once more in this turn of the worker
	wakeNext() // … in another, at once after this one
	// post has an event run on the worker; stopped: the host has stopped, and it runs on any goroutine. Any may call post.
	post(event func(stopped bool))
	background(job func()) // runs what may take long on another goroutine

	proposed(kind itemKind, lease *activeLease) // says what the last item of the entry was for
	confirm(then func(error))                   // asks a majority whether this node still leads
	handingOver() bool                          // nothing new is begun: the leadership goes to another replica, or the node stops
	present() bool                              // the node has a replica, and so the table goes on
	ended(Incarnation) bool                     // that process is known to have ended

	resume([]clientChange)    // has those go on that waited for a lease, before others
	refuse([]clientChange)    // answers them that this node does not lead
	sendReport(*activeLease)  // tells whoever leads how a lease ended
	zoneUnread(string, error) // a time zone cannot be read
	fired(timer.TopicID, *table.Outcome)
	canaryPassed()
}

// clientChange is a client's change that waits for a lease.
type clientChange interface {
	waitsUntil() time.Duration // monotonic; then it has waited too long
	answer(timer.Result, error)
}

// outcomeItem is an outcome on its way into the log, with its active lease (nil: an inherited lease's).
type outcomeItem struct {
	table.Outcome
	lease *activeLease
}

func newScheduler(cfg schedulerConfig, env surroundings, now *clocks.Moment) *scheduler {
	return &scheduler{
		cfg: cfg, env: env, now: now,
		random: rand.New(rand.NewPCG(cfg.seed, uint64(cfg.shard))),
		limits: topicLimits{carriedOver: map[timer.Handle]carriedLease{}},
		series: seriesTimes{calendar: recurrence.Calendar{Zones: cfg.zones}},
	}
}

// begin starts a leadership, after the takeover was applied. What it keeps of the one before are the leases
// whose calls still run, those that consumers had at its end, and those that were acked lately.
func (l *scheduler) begin() {
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

// activeHandles are the timers with an active lease, in order: what is done for each must not depend on chance.
func (l *scheduler) activeHandles() []timer.Handle { return slices.Sorted(maps.Keys(l.leases.byTimer)) }

// end stops the leadership: nothing more is started. What was taken from the wheel a later leadership puts
// back, in slices: see rearm.
func (l *scheduler) end() {
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
		l.env.refuse(f.waiting)
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

// run does this turn's share: wheel → destination queues → leases, and starts what is held and due. Nothing leaves the wheel, and nothing
// starts, while the wall clock is in doubt.
func (l *scheduler) run() {
	if !l.active {
		return
	}
	if l.sure() && !l.timed {
		l.timed = true
		l.rebase()
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

// topic is a topic as this node knows it; nil: not at all.
func (l *scheduler) topic(id timer.TopicID) *timer.Topic {
	if id == table.CanaryTopic {
		return canaryOf
	}
	t, _ := l.cfg.topics.Topic(id)
	return t
}

// retention is how long a timer of the topic stays a dead letter, in ms.
func (l *scheduler) retention(h timer.Handle) int64 {
	if t := l.topic(l.table.Due(h).Topic); t != nil {
		return t.Policy.DeadRetentionMs
	}
	return timer.DefaultPolicy().DeadRetentionMs
}

// doubt has nothing started any more until a majority has said that this node still leads.
func (l *scheduler) doubt() {
	l.doubted = true
	l.env.wake()
}

// confirm asks, if that is not being done.
func (l *scheduler) confirm() {
	if !l.active || !l.doubted || l.confirming {
		return
	}
	l.confirming = true
	leadership := l.leadership
	l.env.confirm(func(err error) {
		if l.leadership != leadership {
			return // another leadership has begun, with an entry that a majority has
		}
		l.confirming = false
		if err == nil {
			l.doubted = false
		}
		l.env.wakeNext()
	})
}

// sure reports that what is due by the wall clock may be done.
func (l *scheduler) sure() bool { return l.now.Trust == clocks.Sure }

// mayStart reports that calls may be started, and timers be given to consumers.
func (l *scheduler) mayStart() bool { return l.sure() && !l.doubted }

// tick is what a scheduler does every 50 ms or so, whoever leads and even if the replica is gone.
func (l *scheduler) tick() {
	l.reportAll()
	l.realignOpen()
	l.endCarriedOver(false)
	l.renotifyReady()
}

// hasProposals reports that there is something for the next entry.
func (l *scheduler) hasProposals() bool {
	o := &l.out
	return l.active && len(o.outcomes)+len(o.expires)+len(o.forgets)+len(o.skips)+len(o.overlaps)+len(l.due.runnable) > 0
}

// nextWake is when something falls due, in wall ms.
func (l *scheduler) nextWake() int64 {
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
