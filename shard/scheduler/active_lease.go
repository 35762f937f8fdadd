package scheduler

import (
	"maps"
	"slices"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
)

// phase is the progress of a lease on its leader.
type phase uint8

const (
	proposed  phase = iota // in the log's pipeline, not applied yet
	held                   // applied; its due time has not come
	started                // the call runs
	ended                  // an outcome is in the pipeline
	returned               // the call never started, and the lease's release is in the pipeline
	reporting              // its outcome is reported to the current leader
)

// activeLease is one lease of this leader, from its proposal to the applied outcome.
type activeLease struct {
	handle   timer.Handle
	seq      uint64
	fence    uint64 // of the lease; 0 until it is applied
	rev      uint32 // of the timer, before the lease
	queue    *destQueue
	permit   delivery.Permit
	phase    phase
	key      *keyQueue        // of the timer's key; nil if the topic is not serial
	firm     bool             // no earlier timer of the key may preempt it
	limit    *limit           // where it counts; nil if nowhere
	called   bool             // the call was started
	kept     bool             // a gate delayed its timer
	revoked  bool             // do not start: return the lease when it is applied
	dueMs    int64            // wall clock; the call does not start before
	expireMs int64            // … or after; 0: no limit
	leaseEnd time.Duration    // on clocks.Moment.Lease
	timeout  time.Duration    // of the call
	provenAt time.Duration    // when it was proposed, on clocks.Moment.Lease: a majority followed later
	askedAt  time.Duration    // … monotonic, to learn how long a commit takes
	firedMs  int64            // when the call was started, wall clock
	fromMs   int64            // of a first attempt: when the timer was due, or created if that was later; else 0
	attempt  delivery.Outcome // how the call ended
	until    time.Duration    // reporting: when to give up, monotonic
	waiting  []ClientChange   // changes until the lease is applied, lease updates until the call's outcome
}

// activeLeases are this process's leases for calls, until it has seen their end.
type activeLeases struct {
	byTimer map[timer.Handle]*activeLease
	held    heap[*activeLease]
	blocked []*activeLease // leases that client changes wait for
	pipeline

	*leader
	consumers *consumerLeases
	due       *dueQueues
	inherited *inheritedLeases
	keys      *keyQueues
	limits    *topicLimits
	out       *outcomes
	pulls     *pulledTopics
	reports   *leaseReports
	series    *seriesTimes
	topics    *topicQueues
	windows   *topicWindows
}

func newActiveLeases(s *Scheduler) activeLeases {
	return activeLeases{
		byTimer: map[timer.Handle]*activeLease{}, leader: &s.leader,
		consumers: &s.consumers, due: &s.due, inherited: &s.inherited, keys: &s.keys, limits: &s.limits, out: &s.out,
		pulls: &s.pulls, reports: &s.reports, series: &s.series, topics: &s.topics, windows: &s.windows,
	}
}

// begin starts a leadership: calls of the last one may still run, but no lease waits to start.
func (al *activeLeases) begin() { al.held = heap[*activeLease]{} }

// judgeReported ends the reports of a former leadership: this node leads again, and judges the
// attempts itself.
func (al *activeLeases) judgeReported() {
	for _, h := range al.handles() {
		if f := al.byTimer[h]; f.phase == reporting {
			al.ended(f, &f.attempt)
		}
	}
}

// end stops a leadership: what has not started never will, and all leases are reported to the next
// leader. Calls that run are reported when they end.
func (al *activeLeases) end() {
	al.blocked, al.proposed = nil, 0
	for _, h := range al.handles() {
		f := al.byTimer[h]
		al.env.Refuse(f.waiting)
		f.waiting = nil
		switch f.phase {
		case started: // it continues, and is reported when it ends
		case proposed, held:
			f.permit.Cancel()
			al.reports.begin(f, delivery.Outcome{NotSent: true})
		case returned:
			al.reports.begin(f, delivery.Outcome{NotSent: true})
		case ended:
			al.reports.begin(f, f.attempt)
		}
	}
}

// activeHandles returns the timers with an active lease, sorted: the order of effects must be
// deterministic.
func (al *activeLeases) handles() []timer.Handle { return slices.Sorted(maps.Keys(al.byTimer)) }

// before orders held active leases by due time, then arrival.
func (f *activeLease) before(o *activeLease) bool {
	if f.dueMs != o.dueMs {
		return f.dueMs < o.dueMs
	}
	return f.seq < o.seq
}

// unstarted reports that the call can still be prevented: its permit is not used yet.
func (f *activeLease) unstarted() bool { return f.phase == proposed || f.phase == held }

// hidden reports that clients see the timer as scheduled although the table has it leased.
func (f *activeLease) hidden() bool { return f.phase == held || f.phase == returned }

// CallMargin is how much longer a lease lasts than its call's timeout.
const CallMargin = 5 * time.Second

// StartWithin bounds how long after a majority last followed this leader it may start a call. A
// majority that has elected another leader follows this one no more: so the other knows that from
// StartWithin after its own election on no call of this leader begins. See docs/adr/0048. It is as
// long as an election timeout at most: a leader whose entries and confirmations take longer, on a
// starved machine, would return leases instead of calling.
const StartWithin = 2 * time.Second

// provenFor is the part of StartWithin after which the leader confirms its leadership before it
// starts a call. The rest is for the way to the call's begin.
const provenFor = StartWithin * 3 / 4

// proven returns when a majority surely followed this leader last, as far as the lease shows: its
// own entry was committed after it was proposed.
func (al *activeLeases) proven(f *activeLease) time.Duration { return max(f.provenAt, al.provenAt) }

// deadline is when the call must have ended: by the lease, and because it must begin within
// StartWithin.
func (al *activeLeases) deadline(f *activeLease) time.Duration {
	return min(f.leaseEnd, al.proven(f)+StartWithin+f.timeout)
}
