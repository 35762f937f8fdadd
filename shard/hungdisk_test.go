package shard

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// tightFrames reduces the bounds of frames and queues.
func tightFrames(cfg *Config) {
	cfg.Log.QueueFrames, cfg.Log.FrameBytes = 32, 32<<10
	cfg.FrameBytes, cfg.UnsyncedBytes = 8<<10, 128<<10
	cfg.RetainBytes = 1 << 20
}

// bulkyAdd submits a timer with a payload of the given size to the leader.
func (c *hostCluster) bulkyAdd(n, bytes int) {
	c.collectAnswers()
	r := c.leader()
	if r == nil {
		return
	}
	payload := []byte(`"` + strings.Repeat("x", bytes) + `"`)
	spec := &timer.Spec{DueMs: r.clock.wallMs + 3_600_000, Payload: payload, PayloadKind: timer.JSONPayload}
	if p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("bulky", n), Spec: spec}); err == nil {
		c.adds = append(c.adds, p)
	}
}

// TestHungDiskOfAFollower: while the follower's disk hangs, the leader's entries are batched into
// few frames, and are dropped beyond a bound. The follower keeps running, and has all entries once
// its disk is back.
func TestHungDiskOfAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHostCluster(t, 3, []int{0, 1, 2}, tightFrames)
		defer c.end()
		c.hung = 1
		w := c.hosts[1].host.workers[0]
		most, frames := 0, 0
		for n := range 400 {
			c.bulkyAdd(n, 500)
			c.tick()
			most, frames = max(most, w.out.unsynced), max(frames, len(w.out.inflight))
		}
		if c.collectAnswers(); len(c.acked) < 390 {
			t.Fatalf("%d of 400 adds were acknowledged by the other two", len(c.acked))
		}
		if limit := w.host.cfg.UnsyncedBytes + 4*w.host.cfg.FrameBytes; most > limit || frames > w.host.cfg.Log.QueueFrames {
			t.Errorf("%d bytes in %d frames waited for the disk, the bounds are %d and %d", most, frames, limit, w.host.cfg.Log.QueueFrames)
		}
		c.hung = -1
		c.until("the follower has everything", 20*time.Second, c.followed)
	})
}

// TestFramesKeepTheirBound: a replica that was suspended receives in one turn all entries that its
// leader has sent meanwhile. Its frames keep to the bound, also where one part exceeds it.
func TestFramesKeepTheirBound(t *testing.T) {
	// The leader of shard 1. Node 0 may lead or follow after it was suspended.
	for _, leader := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			c := newHostCluster(t, 3, []int{leader, 1 - leader, 2}, tightFrames)
			defer c.end()
			c.still = 1 - leader
			for n := range 200 {
				c.bulkyAdd(n, 800)
				c.tick()
			}
			c.still = -1
			for n := range 100 {
				c.bulkyAdd(200+n, 800)
				c.tick()
			}
			c.until("all have everything", 20*time.Second, c.followed)
		})
	}
}
