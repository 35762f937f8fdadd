package e2e

import (
	"slices"
	"testing"
	"time"
)

const (
	manyShards = 256
	manyFrom   = 3
	manyTo     = 9

	// manyLimit is for how long six new nodes may be without their shares of 256 small shards.
	manyLimit = 30 * time.Second
)

// TestClusterManyNodesJoin: six empty nodes join three that have 256 shards and a light load. They
// have their shares within half a minute, hardly a replica moves that need not, no timer is lost or
// altered, none fires early or twice.
func TestClusterManyNodesJoin(t *testing.T) {
	needTime(t)
	members := loopbackMembers(t, manyTo)
	c := foundOf(t, manyShards, 3, slices.Clip(members[:manyFrom]))
	c.rate, c.probed = 100, 16
	c.keepTimers(t, "kept", 0, 10_000)
	before := c.timersOf(t, "kept")
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), seeded(t))
	watch := c.watchMoves(t, load.probes)
	wait(2 * time.Second)
	looked := 0
	begin := time.Now()
	c.mu.Lock()
	c.members = append(c.members, members[manyFrom:]...)
	c.mu.Unlock()
	for _, m := range members[manyFrom:] {
		c.start(t, m)
	}
	const least = 3 * manyShards * (manyTo - manyFrom) / manyTo // the shares of the new nodes
	var joined time.Time
	shown := map[string]bool{} // members that have shown what waits and for which nodes
	poll(t, 4*manyLimit, "the new nodes have their shares", func() bool {
		m := members[looked%manyFrom]
		looked++
		v, err := m.view()
		ok := err == nil
		if ok && v.Moves != nil && v.Moves.UnderWay > 0 && v.Moves.Waiting > 0 && len(v.Moves.AtLimit) > 0 {
			shown[m.name] = true
		}
		if ok && joined.IsZero() && len(v.Nodes) == manyTo {
			joined = time.Now()
		}
		for _, m := range members[manyFrom:] {
			ok = ok && 10*len(v.heldBy(m.name)) >= 9*least/(manyTo-manyFrom)
		}
		return ok && !slices.ContainsFunc(v.Shards, func(s shardView) bool { return s.State == "moving" })
	})
	took := time.Since(joined)
	moved := watch.moved()
	t.Logf("the six had joined after %v and had their shares %v later; %d replicas moved, %d are the shares", joined.Sub(begin), took, moved, least)
	if took > manyLimit {
		t.Errorf("it took %v, %v is the limit", took, manyLimit)
	}
	if 10*moved > 12*least {
		t.Errorf("%d replicas moved, the new nodes' shares are %d", moved, least)
	}
	if len(shown) < manyFrom {
		t.Errorf("only %v have shown what waits, and for which nodes", shown)
	}
	if v := c.awaitSettled(t, members, 3); v.Moves != nil {
		t.Errorf("at rest: %+v", *v.Moves)
	}
	watch.finish(t, movePause)
	load.finish(t, &verdict{}) // nothing crashes, so every duplicate is an error
	c.checkSame(t, "kept", before)
}
