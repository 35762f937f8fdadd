package scheduler

import (
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
	confirming bool          // Env.Confirm is pending
	provenAt   time.Duration // when the last Env.Confirm that succeeded was asked, on clocks.Moment.Lease
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
	l.timed, l.doubted, l.confirming, l.provenAt = false, false, false, 0
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
	l.doubted = true
	l.env.Wake()
}

// confirm asks a majority whether this node leads, unless that is pending.
func (l *leader) confirm() {
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
