package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestClusterRestartKeepsAPause: a topic is paused, timers come, and all nodes are killed at once
// and start again. No timer of it is called, though its shards may have leaders before the nodes
// have the meta group's latest state.
func TestClusterRestartKeepsAPause(t *testing.T) {
	needCluster(t)
	t.Parallel()
	c, rcv := newCluster(t, 3), newReceiver(t, nil)
	client := c.all()[0].client
	client.topic(t, "held", rcv.url(), "")
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		client.must(t, 200, "POST", "/v1/topics/held/pause", "")
		ops := make([]string, 50)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"add","id":"r%d-%d","delay":"0s"}`, round, i)
		}
		client.batch(t, "held", ops)
		called := func() bool { return rcv.count() != 50*round }
		if holdsWithin(500*time.Millisecond, called) {
			t.Fatalf("round %d: %d calls of a paused topic", round, rcv.count()-50*round)
		}
		for _, m := range c.all() {
			m.process().kill()
		}
		for _, m := range c.all() {
			c.start(t, m)
		}
		c.awaitHealthy(t)
		if holdsWithin(time.Second, called) {
			t.Errorf("round %d: %d calls of a paused topic after all nodes were killed", round, rcv.count()-50*round)
		}
		client.must(t, 200, "POST", "/v1/topics/held/resume", "")
		poll(t, patience, "all timers are called once the topic is resumed", func() bool { return rcv.count() >= 50*(round+1) })
	}
}
