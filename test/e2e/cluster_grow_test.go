package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// settleLimit is how long moving replicas may take on a busy machine.
const settleLimit = 60 * time.Second

// keepTimers adds timers that are due in ten hours, through the first running member. It returns
// their due times by id.
func (c *cluster) keepTimers(t testing.TB, topic string, from, n int) map[string]int64 {
	t.Helper()
	client := clientAt("http://"+c.running()[0].http, 30*time.Second)
	due := time.Now().Add(10 * time.Hour).UnixMilli()
	kept := map[string]int64{}
	padding := strings.Repeat("x", 200)
	var ops []string
	for i := from; i < from+n; i++ {
		id := fmt.Sprintf("kept%d", i)
		kept[id] = due + int64(i)
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":%q,"at_ms":%d,"payload":%q,"callback":{"url":"http://127.0.0.1:9/"}}`, id, kept[id], padding))
	}
	poll(t, patience, "all adds are acknowledged", func() bool {
		var again []string // a shard may be without a leader for a moment
		for i, status := range client.batch(t, topic, ops) {
			if status != 201 && status != 200 {
				again = append(again, ops[i])
			}
		}
		ops = again
		return len(ops) == 0
	})
	return kept
}

// checkKept checks that the topic's timers are exactly the kept ones, scheduled, with the same due
// times.
func (c *cluster) checkKept(t testing.TB, topic string, kept map[string]int64) {
	t.Helper()
	there := map[string]int64{}
	for _, tm := range clientAt("http://"+c.running()[0].http, 30*time.Second).all(t, topic) {
		if tm.State != "scheduled" {
			t.Errorf("%s is %s", tm.ID, tm.State)
		}
		if _, twice := there[tm.ID]; twice {
			t.Errorf("%s is listed twice", tm.ID)
		}
		there[tm.ID] = tm.DueMs
	}
	if !maps.Equal(there, kept) {
		t.Errorf("%d timers were kept, %d are there, and they are not the same", len(kept), len(there))
	}
}

// stillFor is how long no replica must move before the cluster is settled. The controller acts
// every second.
const stillFor = 2500 * time.Millisecond

// awaitSettled waits until these members hold all shards, balanced and with so many replicas each,
// and nothing has moved for stillFor.
func (c *cluster) awaitSettled(t testing.TB, members []*member, replicas int) view {
	t.Helper()
	return c.awaitSettledWithin(t, members, replicas, settleLimit)
}

// awaitSettledWithin is awaitSettled with a limit, for a cluster whose data takes longer to copy.
func (c *cluster) awaitSettledWithin(t testing.TB, members []*member, replicas int, limit time.Duration) view {
	t.Helper()
	var still view
	var since time.Time
	why := ""
	if !holdsWithinBy(lookEvery, limit, func() bool {
		v := c.view(t)
		if why = v.settledOn(members, replicas); why != "" {
			since = time.Time{}
			return false
		}
		if since.IsZero() || v.placed() != still.placed() {
			still, since = v, time.Now()
		}
		if time.Since(since) < stillFor {
			return false
		}
		still = v // what was on its way at the first of these looks has arrived
		return true
	}) {
		t.Fatalf("%d nodes do not hold all, evenly, within %v: %s", len(members), limit, why)
	}
	return still
}

// TestClusterGrowAndShrink: a single node becomes a cluster of three nodes with three replicas of
// each shard. With a larger setting it grows to four or five nodes and shrinks again. A load runs
// all the time, and no client notices a move.
func TestClusterGrowAndShrink(t *testing.T) {
	kept, most := setting(t, "CARILLON_E2E_CLUSTER_KEPT", 1000), setting(t, "CARILLON_E2E_CLUSTER_GROW", 3)
	members := loopbackMembers(t, most)
	c := foundWith(t, 1, slices.Clip(members[:1]))
	c.keepTimers(t, "kept", 0, kept)
	before := c.timersOf(t, "kept")
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), seeded(t))
	watch := c.watchMoves(t, load.probes)
	// A step may move: replicas that are added; the new nodes' shares and a tenth more; or the
	// replicas of a removed node and a quarter more, because the other nodes may need balancing.
	step := func(what string, replicas, atMost int, members []*member, do func()) {
		t.Helper()
		begin, before := time.Now(), watch.moved()
		do()
		v := c.awaitSettled(t, members, replicas)
		moved := watch.moved() - before
		t.Logf("%s: %d replicas moved, settled after %v; %s", what, moved, time.Since(begin)-stillFor, v.summary())
		if moved > atMost {
			t.Errorf("%s: %d replicas moved, at most %d should", what, moved, atMost)
		}
	}
	step("three nodes", 1, 11*(clusterShards/2+clusterShards/3)/10+1, members[:3], func() { c.join(t, members[1]); c.join(t, members[2]) })
	step("three copies", 3, 2*clusterShards, members[:3], func() { c.setReplicas(t, 3) })
	share := 0
	for n := 4; n <= most; n++ {
		share += fairShare(n)
	}
	if most > 3 {
		step(fmt.Sprint(most, " nodes"), 3, 11*share/10, members, func() {
			for _, m := range members[3:] {
				c.join(t, m)
			}
		})
	}
	for i := range most - 3 {
		held := len(c.view(t).heldBy(members[i].name))
		step(members[i].name+" drained and removed", 3, 5*held/4+1, members[i+1:], func() { c.drainAndRemove(t, members[i]) })
	}
	if most > 4 {
		step("one copy", 1, 0, members[most-3:], func() { c.setReplicas(t, 1) })
	}
	watch.finish(t, movePause)
	load.finish(t, &verdict{}) // nothing crashes, so every duplicate is an error
	c.checkSame(t, "kept", before)
}

func (c *cluster) setReplicas(t testing.TB, n int) {
	t.Helper()
	c.running()[0].client.must(t, 202, "PUT", "/v1/cluster/replicas", fmt.Sprintf(`{"replicas":%d}`, n))
}

// timerFacts are the fields that must not change of a timer that no client changes.
type timerFacts struct {
	uid, state string
	version    int
	dueMs      int64
}

// timersOf returns all timers of a topic by id.
func (c *cluster) timersOf(t testing.TB, topic string) map[string]timerFacts {
	t.Helper()
	there := map[string]timerFacts{}
	for _, tm := range clientAt("http://"+c.running()[0].http, 30*time.Second).all(t, topic) {
		if _, twice := there[tm.ID]; twice {
			t.Errorf("%s is listed twice", tm.ID)
		}
		there[tm.ID] = timerFacts{tm.UID, tm.State, tm.Version, tm.DueMs}
	}
	return there
}

// checkSame checks that a topic's timers have not changed.
func (c *cluster) checkSame(t testing.TB, topic string, before map[string]timerFacts) {
	t.Helper()
	after := c.timersOf(t, topic)
	if maps.Equal(before, after) {
		return
	}
	t.Errorf("there were %d timers, there are %d, and they are not the same", len(before), len(after))
	shown := 0
	for id, f := range before {
		if after[id] != f && shown < 10 {
			t.Errorf("%s was %+v, is %+v", id, f, after[id])
			shown++
		}
	}
}

// drainAndRemove removes a node as an operator does, by requests to another node. The removed
// node's process must exit by itself with 0.
func (c *cluster) drainAndRemove(t testing.TB, m *member) {
	t.Helper()
	var by *client
	for _, other := range c.running() {
		if other != m {
			by = other.client
		}
	}
	path := "/v1/cluster/nodes/" + m.name
	if a := by.must(t, 409, "DELETE", path, ""); a.code() != "not_drained" {
		t.Errorf("removing a node that holds replicas: %s", a.body)
	}
	by.must(t, 202, "POST", path+"/drain", "")
	c.awaitView(t, settleLimit, m.name+" is drained", func(v view) bool { return v.stateOf(m.name) == "drained" && len(v.heldBy(m.name)) == 0 })
	c.awaitView(t, settleLimit, "healthy with "+m.name+" drained", func(v view) bool { return v.Healthy })
	by.must(t, 200, "DELETE", path, "")
	if code := m.process().awaitExit(t, 40*time.Second); code != 0 {
		t.Errorf("the removed node exited with %d: %s", code, m.process().stderr)
	}
}

// TestClusterWipedNode: a node that lost its disk rejoins under its name and receives its replicas
// again. From then on they count: with them the cluster survives the loss of another node.
func TestClusterWipedNode(t *testing.T) {
	needTime(t)
	n := setting(t, "CARILLON_E2E_CLUSTER_KEPT", 1000)
	c := newCluster(t, 3)
	timers := c.keepTimers(t, "kept", 0, n)
	lost, other := c.all()[2], c.all()[1]
	lost.process().kill()
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c.start(t, lost)
	c.awaitHealthy(t) // the wiped node itself is ready, under its new id
	c.awaitSettled(t, c.all(), 3)
	t.Logf("a wiped node is filled with %d timers after %v", n, time.Since(begin))
	other.process().kill()
	maps.Copy(timers, c.keepTimers(t, "kept", n, n/4))
	c.checkKept(t, "kept", timers)
}
