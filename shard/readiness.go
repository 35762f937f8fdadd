package shard

import (
	"fmt"
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// settleFor is how long a node that has been ready stays so while a group has no leader, or has
// come here just now, or is led here and has not fired its canary yet: leaderships move as shards
// do, and operations wait that long. It is for settleWithin as a whole. So a group whose leader
// changes all the time makes its nodes not ready, and they stay so until it has rested, for
// mostUnrest at most.
const (
	settleFor    = 2 * time.Second
	settleWithin = 10 * time.Second
	mostUnrest   = settleFor + settleFor/4

	restFor = (settleWithin - settleFor) / settleFor // how much of rest makes up for unrest
)

// unrest is how much of settleFor a group has used up.
type unrest struct {
	changed time.Duration // monotonic time at which the replica came, or the leader changed
	spent   time.Duration // until then
	first   bool          // no leader has been known yet
}

// at is how much is used up at a time, if the group has lacked something since its leader changed,
// or has lacked nothing.
func (u *unrest) at(now time.Duration, lacks bool) time.Duration {
	if lacks {
		return min(u.spent+now-u.changed, mostUnrest)
	}
	return max(0, u.spent-(now-u.changed)/restFor)
}

// changes records that the leader of a group changes. lacks: something was lacking until now. What
// a new replica lacks until it knows a leader is no unrest of its group.
func (p *replicaPublic) changes(now time.Duration, lacks bool) {
	next := &unrest{changed: now}
	if u := p.unrest.Load(); u != nil && !u.first {
		next.spent = u.at(now, lacks)
	}
	p.unrest.Store(next)
}

// unrestAt is how much of settleFor a group has used up.
func (p *replicaPublic) unrestAt(now time.Duration, lacks bool) time.Duration {
	if u := p.unrest.Load(); u != nil {
		return u.at(now, lacks)
	}
	return mostUnrest
}

// lacks reports whether a group with this leader has none, or is led here and has not fired its
// canary yet.
func (r *replica) lacks(leader uint64) bool {
	at, led := r.canaryAt(leader)
	return leader == 0 || led && at == 0
}

// canaryAt returns when the canary of a shard with this leader fired last, if it is led here.
func (r *replica) canaryAt(leader uint64) (at time.Duration, led bool) {
	s, ok := r.machine.(*timerShard)
	if !ok || leader != r.w.host.cfg.Node {
		return 0, false
	}
	return time.Duration(s.canary.passed.Load()), true
}

// lacksChild reports whether timers have waited for a child's first replica for long.
func (p *replicaPublic) lacksChild(now time.Duration) bool {
	since := p.awaitedSince.Load()
	return since != 0 && now-time.Duration(since) >= settleFor
}

// LacksLeader reports whether this node's replica of a group knows no leader. In a node that has
// been ready, one that is yet to come does not count, nor one that knows none for a moment.
func (t *groupTable) LacksLeader(id timer.ShardID, wasReady bool) bool {
	if int(id) >= len(t.all()) {
		return !wasReady
	}
	p := &t.resolve(id).public
	if !p.present.Load() {
		return !wasReady || p.lacksChild(t.h.cfg.Clock.Mono())
	}
	return p.leader.Load() == 0 && !(wasReady && p.unrestAt(t.h.cfg.Clock.Mono(), true) < settleFor)
}

// NotReady returns the reason why the host does not serve fully, or nil if it does: every group
// that has a replica here has a leader, and every shard that this node leads has fired its canary
// within canaryLate. A host that has been ready is excused for a moment, see settleFor.
func (h *Host) NotReady(wasReady bool) error {
	select {
	case <-h.started:
	default:
		return timer.ErrRecovering
	}
	select {
	case <-h.stopped:
		return timer.ErrStopped
	default:
	}
	now := h.cfg.Clock.Mono()
	for _, r := range h.all() {
		leader := r.public.leader.Load()
		at, led := r.canaryAt(leader)
		lacks := leader == 0 || led && at == 0
		restless := r.public.unrestAt(now, lacks) >= settleFor
		switch {
		case r.public.lacksChild(now):
			return &NoLeaderError{Group: r.shard}
		case h.dividing(r.shard): // it is there in a moment, and its parent is until then
		case !r.public.present.Load():
			if r.shard == Meta {
				return timer.ErrRecovering
			}
		case lacks && wasReady && !restless:
		case leader == 0:
			return &NoLeaderError{Group: r.shard}
		case led && (at == 0 || now-at > canaryLate):
			e := &CanaryError{Shard: r.shard}
			if at != 0 {
				e.Late = now - at
			}
			return e
		case wasReady && restless:
			return &NoLeaderError{Group: r.shard, Lately: true}
		}
	}
	return nil
}

// CanaryError reports that a shard's own timer is late, so clients' timers may be late too.
type CanaryError struct {
	Shard timer.ShardID
	Late  time.Duration // since the last one fired; 0: none has yet
}

func (e *CanaryError) Error() string {
	if e.Late == 0 {
		return fmt.Sprintf("shard %d has not fired its canary timer yet", e.Shard)
	}
	return fmt.Sprintf("shard %d fired its canary timer %s ago", e.Shard, e.Late.Round(time.Second))
}

// NoLeaderError reports that a group with a replica here has no leader that this node can reach.
type NoLeaderError struct {
	Group  timer.ShardID
	Lately bool // it has one now, and had none for more than settleFor lately
}

func (e *NoLeaderError) Error() string {
	name := fmt.Sprintf("shard %d", e.Group)
	if e.Group == Meta {
		name = "the meta group"
	}
	if e.Lately {
		return fmt.Sprintf("%s had no leader for more than %s of the last %s, or not one that this node could reach", name, settleFor, settleWithin)
	}
	return name + " has no leader, or not one that this node can reach"
}

// Each led shard keeps firing a timer of its own in CanaryTopic, through log, wheel and lease. So a
// node is ready only if the whole path works.
const (
	canaryEvery = 10 * time.Second
	canaryLate  = 3 * canaryEvery // a shard without a delivery for this long is not ready

	canaryPhases = 128 // of the many shards of a worker
)

// canary is the state of a shard's canary timer.
type canary struct {
	next   time.Duration // monotonic time of the next put
	passed atomic.Int64  // monotonic ns of the last delivery, 0 = not yet in this leadership
}

func (c *canary) begin(now time.Duration) {
	c.next = now
	c.passed.Store(0)
}

// tickCanary puts the canary timer again every canaryEvery while this replica serves.
func (s *timerShard) tickCanary() {
	if !s.g.serving || s.g.w.now.Mono < s.canary.next || s.g.w.host.draining.Load() || !s.g.w.sure() {
		return
	}
	s.canary.next = s.g.w.now.Mono + canaryEvery
	if len(s.g.w.groups) > canaryPhases { // else one turn would be all of theirs at once
		phase := canaryEvery * time.Duration(s.g.shard%canaryPhases) / canaryPhases
		s.canary.next -= (s.g.w.now.Mono - phase) % canaryEvery
	}
	s.putCanary()
}

func (s *timerShard) putCanary() {
	s.waiting = append(s.waiting, &op{shard: s, brief: true, deadline: s.g.w.now.Mono + waitLimit,
		cmd: &timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: table.CanaryID, Spec: &timer.Spec{DueMs: s.g.w.now.WallMs}}})
}
