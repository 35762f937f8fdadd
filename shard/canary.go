package shard

import (
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

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
		phase := canaryEach * time.Duration(s.g.id%canaryPhases) / canaryPhases
		s.canary.next -= (s.g.w.now.Mono - phase) % canaryEach
	}
	s.waiting = append(s.waiting, &op{shard: s, brief: true, deadline: s.g.w.now.Mono + waitLimit,
		cmd: &timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: "canary", Spec: &timer.Spec{DueMs: s.g.w.now.WallMs}}})
}
