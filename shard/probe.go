package shard

import (
	"sync/atomic"
	"time"

	"carillon/timer"
)

// canaryTopic is a topic that no client can reach: each led shard fires a timer of its own through log, wheel and
// lease, every few seconds, so that "ready" means what it says.
const (
	canaryTopic timer.TopicID = 1<<32 - 1
	canaryEach                = 10 * time.Second
	canaryLate                = 3 * canaryEach
)

// canaryOf is the canary's topic as leads see it.
var canaryOf = &timer.Topic{ID: canaryTopic, Name: "canary", Policy: timer.DefaultPolicy()}

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
		cmd: &timer.Command{Kind: timer.Put, Topic: canaryTopic, ID: "canary", Spec: &timer.Spec{DueMs: g.w.now.WallMs}}})
}
