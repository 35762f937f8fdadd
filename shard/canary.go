package shard

import (
	"sync/atomic"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Each led shard fires a timer of its own, in CanaryTopic, through log, wheel and lease every few
// seconds, so that "ready" means what it says.
const (
	canaryEach = 10 * time.Second
	canaryLate = 3 * canaryEach
)

// canary is a shard's own timer.
type canary struct {
	next   time.Duration
	passed atomic.Int64 // monotonic ns of the last delivery, 0 = not yet in this leadership
}

func (c *canary) begin(now time.Duration) {
	c.next = now
	c.passed.Store(0)
}

// tickCanary sets the next one.
func (g *group) tickCanary() {
	if g.table == nil || !g.serving || g.w.now.Mono < g.canary.next || g.w.host.draining.Load() || !g.w.sure() {
		return
	}
	g.canary.next = g.w.now.Mono + canaryEach
	g.waiting = append(g.waiting, &op{group: g, brief: true, deadline: g.w.now.Mono + waitLimit,
		cmd: &timer.Command{Kind: timer.Put, Topic: table.CanaryTopic, ID: "canary", Spec: &timer.Spec{DueMs: g.w.now.WallMs}}})
}
