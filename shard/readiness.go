package shard

import (
	"fmt"
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// leaderChangeFor is how long a node that has been ready stays so while a group's leader changes, or
// the group has come here just now: leaderships move as shards do, and operations wait that long.
const leaderChangeFor = 2 * time.Second

// changedLately reports whether a group has got another leader, or none, a moment ago.
func (p *replicaPublic) changedLately(now time.Duration) bool {
	return now-time.Duration(p.changed.Load()) < leaderChangeFor
}

// LacksLeader reports whether this node's replica of a group knows no leader. In a node that has
// been ready, one that is yet to come does not count, nor one that knows none for a moment.
func (t *groupTable) LacksLeader(id timer.ShardID, wasReady bool) bool {
	if int(id) >= len(t.all()) {
		return !wasReady
	}
	p := &t.resolve(id).public
	if !p.present.Load() {
		return !wasReady || p.unborn.Load() && !p.changedLately(t.h.cfg.Clock.Mono())
	}
	return p.leader.Load() == 0 && !(wasReady && p.changedLately(t.h.cfg.Clock.Mono()))
}

// NotReady returns the reason why the host does not serve fully, or nil if it does: every group
// that has a replica here has a leader, and every shard that this node leads has fired its canary
// within canaryLate. A host that has been ready is excused while a group gets another leader.
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
		switch leader := r.public.leader.Load(); {
		case r.public.unborn.Load() && !r.public.changedLately(now):
			return &NoLeaderError{Group: r.shard}
		case h.dividing(r.shard): // it is there in a moment, and its parent is until then
			continue
		case !r.public.present.Load():
			if r.shard == Meta {
				return timer.ErrRecovering
			}
			continue
		case leader == 0 && wasReady && r.public.changedLately(now):
			continue
		case leader == 0:
			return &NoLeaderError{Group: r.shard}
		case r.shard == Meta || leader != h.cfg.Node:
			continue
		}
		at := time.Duration(h.shard(r.shard).canary.passed.Load())
		switch {
		case at == 0 && wasReady && r.public.changedLately(now):
			continue
		case at == 0:
			return &CanaryError{Shard: r.shard}
		}
		if now-at > canaryLate {
			return &CanaryError{Shard: r.shard, Late: now - at}
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
type NoLeaderError struct{ Group timer.ShardID }

func (e *NoLeaderError) Error() string {
	if e.Group == Meta {
		return "the meta group has no leader, or not one that this node can reach"
	}
	return fmt.Sprintf("shard %d has no leader, or not one that this node can reach", e.Group)
}

// Each led shard keeps firing a timer of its own in CanaryTopic, through log, wheel and lease. So a
// node is ready only if the whole path works.
const (
	canaryEach = 10 * time.Second
	canaryLate = 3 * canaryEach // a shard without a delivery for this long is not ready

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

// tickCanary puts the canary timer again every canaryEach while this replica serves.
func (s *timerShard) tickCanary() {
	if !s.g.serving || s.g.w.now.Mono < s.canary.next || s.g.w.host.draining.Load() || !s.g.w.sure() {
		return
	}
	s.canary.next = s.g.w.now.Mono + canaryEach
	if len(s.g.w.groups) > canaryPhases { // else one turn would be all of theirs at once
		phase := canaryEach * time.Duration(s.g.shard%canaryPhases) / canaryPhases
		s.canary.next -= (s.g.w.now.Mono - phase) % canaryEach
	}
	s.putCanary()
}

func (s *timerShard) putCanary() {
	s.waiting = append(s.waiting, &op{shard: s, brief: true, deadline: s.g.w.now.Mono + waitLimit,
		cmd: &timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: "canary", Spec: &timer.Spec{DueMs: s.g.w.now.WallMs}}})
}
