package scheduler

import (
	"math"
	"math/rand/v2"
	"time"

	"carillon/internal/clocks"
	"carillon/shard/table"
	"carillon/timer"
)

// leader is what all parts of a scheduler read: its configuration, the replica's table, the
// worker's turn, and what this node knows of its leadership. It knows no part.
type leader struct {
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
	doubtedAt  time.Duration // … since; on clocks.Moment.Lease
	confirming bool          // Env.Confirm is pending
	provenAt   time.Duration // a majority surely followed this leader then, or later; on clocks.Moment.Lease
	declaring  bool          // a change of table.Table.StartsSlowly is proposed
	declaredAt time.Duration // when the last one was applied; monotonic
	slowFor    time.Duration // how long it starts slowly, at least
}

func newLeader(cfg Config, env Env, now *clocks.Moment) leader {
	return leader{
		cfg: cfg, env: env, now: now,
		random: rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Shard))),
	}
}

// begin starts a leadership. Its takeover has proved it, so nothing is in doubt.
func (l *leader) begin() {
	l.active, l.since = true, l.now.Mono
	l.leadership++
	l.timed, l.doubted, l.confirming, l.provenAt, l.declaring = false, false, false, 0, false
}

// StartWithin bounds how long after a majority last followed a leader it may start a call. A
// majority that has elected another leader follows the former one no more: so the other knows that
// from this bound after its own election on no call of the former begins. See docs/adr/0048.
//
// A leader whose entries and confirmations take long, on a starved machine, would return leases
// instead of calling. So it declares in the log that its leases have the other bound from now on,
// which is as long as an election timeout at most.
const (
	StartWithin     = 250 * time.Millisecond
	SlowStartWithin = 2 * time.Second
)

// StartWithinOf is the bound of a call lease.
func StartWithinOf(t *table.Table, fence uint64) time.Duration {
	return startWithin(t.SlowStart(fence))
}

func startWithin(slow bool) time.Duration {
	if slow {
		return SlowStartWithin
	}
	return StartWithin
}

// within is the lease's bound.
func (l *activeLease) within() time.Duration { return startWithin(l.slow) }

const (
	// A commit or confirmation of half this makes a leader slow. Proofs of StartWithin still reach
	// it then.
	slowFrom = 180 * time.Millisecond
	fastFrom = 80 * time.Millisecond // … fast again, if all of two seconds are below half this

	// It starts slowly for at least this time. That doubles when it becomes slow again within a
	// minute: one slow commit is soon forgotten, and no leadership changes its bound all the time.
	minSlowFor = 2 * time.Second
	maxSlowFor = 16 * time.Second
	slowAgain  = time.Minute
)

// toDeclare reports that the leases of this leader should have another bound.
func (dq *dueQueues) toDeclare() bool {
	switch {
	case !dq.active || !dq.timed || dq.declaring || dq.env.HandingOver():
		return false
	case dq.table.StartsSlowly():
		return dq.lookAhead <= fastFrom && dq.now.Mono-dq.declaredAt >= dq.slowFor
	}
	return dq.lookAhead >= slowFrom
}

// declare proposes another bound for the leases that follow in the log.
func (dq *dueQueues) declare(b *table.Batch) {
	if !dq.toDeclare() {
		return
	}
	owner := uint64(0)
	if dq.table.StartsSlowly() {
		owner = uint64(dq.cfg.Owner)
	}
	b.Takeover(owner)
	dq.declaring = true
	dq.env.Proposed(Item{kind: boundDeclared})
}

// declared follows the log: the leases after this have another bound.
func (l *leader) declared() {
	since := l.now.Mono - l.declaredAt
	l.declaring, l.declaredAt = false, l.now.Mono
	if !l.table.StartsSlowly() {
		return
	}
	longer := 2 * l.slowFor
	if since >= slowAgain {
		longer = 0
	}
	l.slowFor = min(max(longer, minSlowFor), maxSlowFor)
}

// proven reports that a majority followed this leader so lately that a call may start. The rest of
// its bound is for the way to the call's begin.
func (l *leader) proven(within time.Duration) bool {
	return l.now.Lease-l.provenAt <= provenFor(within)
}

func provenFor(within time.Duration) time.Duration {
	if within == SlowStartWithin {
		return within * 3 / 4
	}
	return within / 2
}

// outdated reports that a lease with this bound is from before this leader became slow. It is
// returned rather than confirmed: confirmations may take longer than it allows.
func (l *leader) outdated(within time.Duration) bool {
	return within == StartWithin && l.table.StartsSlowly()
}

// canaryOf is the canary's topic as schedulers see it.
var canaryOf = &timer.Topic{ID: table.CanaryTopic, Name: "canary", Policy: timer.DefaultPolicy()}

// topic returns a topic as this node knows it; nil if it is unknown.
func (l *leader) topic(id timer.TopicID) *timer.Topic {
	if id == table.CanaryTopic {
		return canaryOf
	}
	t, _ := l.cfg.Topics.Topic(id)
	return t
}

// retention returns how long a timer's topic keeps dead letters, in ms.
func (l *leader) retention(h timer.Handle) int64 {
	if t := l.topic(l.table.Due(h).Topic); t != nil {
		return t.Policy.DeadRetentionMs
	}
	return timer.DefaultPolicy().DeadRetentionMs
}

// Doubt prevents starts until a majority has confirmed that this node still leads.
func (l *leader) Doubt() {
	l.doubted, l.doubtedAt = true, l.now.Lease
	l.env.Wake()
}

// confirm asks a majority whether this node leads, unless that is pending: if it is in doubt, or if
// the proof would be too old when the first held lease is due.
func (al *activeLeases) confirm() {
	if !al.active || al.confirming || !al.doubted && al.now.WallMs < al.renewMs() {
		return
	}
	al.confirming = true
	leadership, asked, askedAt := al.leadership, al.now.Lease, al.now.Mono
	al.env.Confirm(func(err error) {
		if al.leadership != leadership {
			return // a new leadership has begun, and its takeover proved it
		}
		al.confirming = false
		if err == nil {
			al.doubted, al.provenAt = al.doubted && asked < al.doubtedAt, max(al.provenAt, asked)
			al.due.learn(al.now.Mono-askedAt, al.now.Mono)
		}
		al.env.WakeNext()
	})
}

// renewMs is when the proof is to be renewed, so that the first held lease need not wait for that
// when it is due; wall clock.
func (al *activeLeases) renewMs() int64 {
	if al.held.len() == 0 || al.confirming || al.doubted {
		return math.MaxInt64
	}
	f := al.held.top()
	lasts := provenFor(f.within())
	if left := time.Duration(f.dueMs-al.now.WallMs) * time.Millisecond; f.phase != held || al.now.Lease-al.provenAt+left <= lasts {
		return math.MaxInt64
	}
	return f.dueMs - (lasts / 2).Milliseconds()
}

// sure reports that the wall clock is trusted, so that due timers may be processed.
func (l *leader) sure() bool { return l.now.Trust == clocks.Sure }

// mayStart reports that calls may start and timers may be given to consumers.
func (l *leader) mayStart() bool { return l.sure() && !l.doubted && l.cfg.Topics.Current() }

// KnowsTime reports that the clock was trusted in this leadership. Until then nothing that depends
// on it is proposed.
func (l *leader) KnowsTime() bool { return l.timed }

// Leads reports that this node leads the shard.
func (l *leader) Leads() bool { return l.active }

// InDoubt reports that another node may lead by now.
func (l *leader) InDoubt() bool { return l.doubted }

// LeaseMs returns how long a consumer's lease lasts unless it asks for another length.
func (l *leader) LeaseMs(id timer.TopicID) int64 {
	if t := l.topic(id); t != nil {
		return t.Policy.LeaseFor()
	}
	return timer.DefaultLeaseMs
}

// HasZone reports whether the times of a timer can be computed: it does not repeat by the calendar,
// or this node knows its zone.
func (l *leader) HasZone(h timer.Handle, d *table.Due) bool {
	if !d.Series {
		return true
	}
	name, byCalendar := l.table.Zone(h)
	return !byCalendar || l.cfg.Zones.Known(name)
}

// A walk over the table has slices of so many slots, if the turn has time for them.
const (
	scanBudget = 4096
	scanStep   = 64 // slots between two looks at that time; a step of Env.Spent pays for 16
)

// inSlices continues a walk over the table after a slot, and returns where the slice ends. If the
// walk is not done, the next turn continues it.
func (l *leader) inSlices(from timer.Handle, walk func(from timer.Handle, slots int) (timer.Handle, bool)) (next timer.Handle, done bool) {
	for slots, over := 0, false; slots < scanBudget && !over && !done; slots += scanStep {
		from, done = walk(from, scanStep)
		over = l.env.Spent(scanStep / 16)
	}
	if !done {
		l.env.WakeNext()
	}
	return from, done
}

// current reports that a timer is unchanged since it was queued.
func (l *leader) current(e entry) bool {
	return l.table.ScheduledAt(e.handle, e.seq, e.rev)
}
