package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The feature levels of the release to upgrade from and go back to, which is the build under test,
// and of the newer one: the build for tests understands a level more.
const (
	olderLevel  = 1
	newestLevel = 2
)

// upgrade is a cluster under load whose nodes are restarted with the older or the newer build.
type upgrade struct {
	t       *testing.T
	c       *cluster
	load    *clusterLoad
	members []*member
	levels  []int
}

// run sets the build of a node's next process by its level.
func (u *upgrade) run(at, level int) {
	u.t.Helper()
	u.members[at].binary = ""
	if level == newestLevel {
		u.members[at].binary = testBinary(u.t)
	}
	u.levels[at] = level
}

func (u *upgrade) restart(at, level int) {
	u.t.Helper()
	m := u.members[at]
	wait(500 * time.Millisecond)
	m.process().stop(u.t)
	u.run(at, level)
	u.begin(m)
	u.c.awaitLevel(u.t, olderLevel, u.levels...)
}

func (u *upgrade) begin(m *member) {
	u.t.Helper()
	u.c.start(u.t, m)
	u.c.awaitHealthy(u.t)
	u.load.rounds++
}

// thereAndBack upgrades all nodes and downgrades them again, one after the other.
func (u *upgrade) thereAndBack(random *rand.Rand) {
	u.t.Helper()
	for _, level := range []int{newestLevel, olderLevel} {
		for _, at := range random.Perm(len(u.members)) {
			u.restart(at, level)
		}
	}
}

// TestClusterUpgradeInAnyOrder restarts nodes of the older release with the newer one, under load
// and in random order, and downgrades one in between. No client notices. Finalizing is refused until
// the last node is upgraded, and then raises the feature level. After that a node of the older
// release exits and reports the remedy, and the others go on. With CARILLON_E2E_LONG all nodes are first upgraded
// and downgraded once.
func TestClusterUpgradeInAnyOrder(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	u := &upgrade{t: t, members: loopbackMembers(t, 3), levels: []int{olderLevel, olderLevel, olderLevel}}
	c := found(t, u.members)
	u.c, u.load = c, loadOn(t, c, newReceiver(t, slowNowAndThen()), random)
	c.awaitLevel(t, olderLevel, u.levels...)
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		u.thereAndBack(random)
	}
	order := random.Perm(3)
	for _, at := range order[:2] {
		u.restart(at, newestLevel)
	}
	back := order[random.IntN(2)]
	u.restart(back, olderLevel)
	c.finalizeRefused(t, u.members[back], u.members[slices.Index(u.levels, newestLevel)])
	for _, at := range random.Perm(3) {
		if u.levels[at] == olderLevel {
			u.restart(at, newestLevel)
		}
	}
	c.finalize(t, newestLevel)
	c.awaitLevel(t, newestLevel, u.levels...)

	at := random.IntN(3)
	late := u.members[at]
	late.process().stop(t)
	u.run(at, olderLevel)
	c.start(t, late)
	if code := late.process().awaitExit(t, formLimit); code != 1 || !strings.Contains(late.process().stderr.String(), "start the newer release") {
		t.Errorf("a node that is too old exits with %d: %s", code, late.process().stderr)
	}
	u.run(at, newestLevel)
	u.begin(late)

	v := &verdict{} // nothing crashes, so every duplicate is an error
	u.load.finish(t, v)
	c.checkAgreed(t, u.members)
	t.Logf("order %v, %s went back: %d timers, %d arrivals, %d duplicates", order, u.members[back].name, u.load.ledger.size(), len(v.log), v.duplicates)
}

// finalize finalizes an upgrade like an operator, after upgrade status says that it waits.
func (c *cluster) finalize(t testing.TB, level int) {
	t.Helper()
	url := "http://" + c.running()[len(c.running())-1].http
	if out, _ := tool(t, 0, "ctl", "--url", url, "upgrade", "status"); !strings.Contains(out, "waits to be finalized: carillon ctl upgrade finalize") {
		t.Errorf("upgrade status: %s", out)
	}
	if out, _ := tool(t, 0, "ctl", "--url", url, "upgrade", "finalize"); out != fmt.Sprintf("feature level %d\n", level) {
		t.Errorf("upgrade finalize: %s", out)
	}
}

// finalizeRefused checks that finalize is refused and names the old node. The old node itself
// refuses, too: it may not know the request.
func (c *cluster) finalizeRefused(t testing.TB, old, upgraded *member) {
	t.Helper()
	if _, said := tool(t, 1, "ctl", "--url", "http://"+old.http, "upgrade", "finalize"); !strings.Contains(said, "is not understood by ") && !strings.Contains(said, "ask one that is upgraded") {
		t.Errorf("upgrade finalize at %s of the release before: %s", old.name, said)
	}
	_, said := tool(t, 1, "ctl", "--url", "http://"+upgraded.http, "upgrade", "finalize")
	if !strings.Contains(said, "is not understood by ") || !strings.Contains(said, old.name+" (release ") {
		t.Errorf("upgrade finalize with %s of the release before: %s", old.name, said)
	}
}

// awaitLevel waits until all nodes report the agreed feature level and the level of each node. A
// higher agreed level fails the test at once.
func (c *cluster) awaitLevel(t testing.TB, agreed int, levels ...int) {
	t.Helper()
	poll(t, formLimit, fmt.Sprintf("all say level %d, of %v", agreed, levels), func() bool {
		for _, m := range c.running() {
			var v struct {
				Level int `json:"feature_level"`
				Nodes []struct {
					Name  string
					Level int `json:"feature_level"`
				}
			}
			a := m.client.do("GET", "/v1/cluster", "")
			if a.status != 200 || json.Unmarshal(a.body, &v) != nil {
				return false
			}
			if v.Level > agreed {
				t.Fatalf("%s: the cluster has agreed on level %d, of %v", m.name, v.Level, levels)
			}
			list := make([]int, len(v.Nodes))
			for _, n := range v.Nodes {
				list[slices.IndexFunc(c.all(), func(m *member) bool { return m.name == n.Name })] = n.Level
			}
			if v.Level != agreed || !slices.Equal(list, levels) {
				return false
			}
		}
		return true
	})
}
