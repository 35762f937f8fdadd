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

// settleLimit is what moving replicas about may take on a busy machine.
const settleLimit = 60 * time.Second

// keepTimers adds timers that do not fire, through the first member that runs, and returns their due times by id.
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
	poll(t, 20*time.Second, "all adds are acknowledged", func() bool {
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

// checkKept compares what is there with what was kept: the same ids at the same times, no more and no less.
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

// awaitSettled waits until these members hold everything, evenly: nothing moves any more and each shard is led.
func (c *cluster) awaitSettled(t testing.TB, members []*member) view {
	t.Helper()
	replicas := min(3, len(members))
	return c.awaitView(t, settleLimit, fmt.Sprintf("%d nodes hold all, evenly", len(members)), func(v view) bool {
		if !v.Healthy || v.ails(members) != "" {
			return false
		}
		for _, s := range v.Shards {
			if len(s.Replicas) != replicas {
				return false
			}
			for _, name := range s.Replicas {
				if !slices.ContainsFunc(members, func(m *member) bool { return m.name == name }) {
					return false
				}
			}
		}
		for _, m := range members {
			if len(v.heldBy(m.name)) == 0 {
				return false
			}
		}
		return v.balanced(members) == ""
	})
}

// TestClusterGrowAndShrink lets a fourth and a fifth node join under load, and takes two of the first ones out again.
func TestClusterGrowAndShrink(t *testing.T) {
	kept := setting(t, "CARILLON_E2E_CLUSTER_KEPT", 1000)
	members := loopbackMembers(t, 5)
	c := found(t, slices.Clip(members[:3]))
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), seeded(t))
	timers := c.keepTimers(t, "kept", 0, kept)
	allMoved, allFair := 0, 0.0
	for n := 4; n <= 5; n++ {
		before, begin := c.view(t), time.Now()
		c.join(t, members[n-1])
		after := c.awaitSettled(t, members[:n])
		moved, fair := after.arrivedSince(before), float64(3*clusterShards)/float64(n)
		t.Logf("the %dth node: %d replicas moved, its fair share is %.1f, settled after %v; longest wait for an add of each shard %v",
			n, moved, fair, time.Since(begin), spreadOf(load.probes.pauses(begin)))
		// A node may get less than its share, as far as the balance is kept; the next one then makes up for it.
		allMoved, allFair = allMoved+moved, allFair+fair
		if float64(allMoved) > 1.3*allFair+1 {
			t.Errorf("up to the %dth node %d replicas moved, the fair shares are %.1f", n, allMoved, allFair)
		}
	}
	for i := range 2 {
		leaver, rest := members[i], members[i+1:]
		begin := time.Now()
		c.drainAndRemove(t, leaver)
		c.awaitSettled(t, rest)
		t.Logf("%s drained and removed in %v; longest wait for an add of each shard %v", leaver.name, time.Since(begin), spreadOf(load.probes.pauses(begin)))
	}
	load.finish(t, &verdict{}) // no crash: every duplicate is a fault
	c.checkKept(t, "kept", timers)
}

// drainAndRemove takes a node out as an operator does, by another one. Its process ends by itself, with 0.
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
	by.must(t, 200, "DELETE", path, "")
	if code := m.process().awaitExit(t, 40*time.Second); code != 0 {
		t.Errorf("the removed node exited with %d: %s", code, m.process().stderr)
	}
}

// TestClusterWipedNode: a node that lost its disk comes back under its name and is filled again, and then counts: with
// it, another one can be lost.
func TestClusterWipedNode(t *testing.T) {
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
	c.awaitSettled(t, c.all())
	t.Logf("a wiped node is filled with %d timers after %v", n, time.Since(begin))
	other.process().kill()
	maps.Copy(timers, c.keepTimers(t, "kept", n, n/4))
	c.checkKept(t, "kept", timers)
}
