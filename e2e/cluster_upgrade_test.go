package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClusterUpgradeInAnyOrder: under load, nodes that understand a feature level are started again
// with the next, in an order that is drawn, and one goes back in between. No client notices. The
// cluster uses the higher level when an operator finalizes the upgrade, which is refused before the
// last node has it; from then on a node that is held back ends, says what to do, and the others go
// on.
func TestClusterUpgradeInAnyOrder(t *testing.T) {
	t.Parallel()
	const before, now = 3, 4 // 3 is the last level that rises by itself
	random := seeded(t)
	members := loopbackMembers(t, 3)
	for _, m := range members {
		m.understands(before)
	}
	c := found(t, members)
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), random)
	c.awaitLevel(t, before, before, before, before)
	restart := func(m *member, level int) {
		t.Helper()
		wait(500 * time.Millisecond)
		m.process().stop(t)
		m.understands(level)
		c.start(t, m)
		c.awaitHealthy(t)
		load.rounds++
	}
	levels := []int{before, before, before}
	order := random.Perm(3)
	for _, at := range order[:2] {
		restart(members[at], now)
		levels[at] = now
		c.awaitLevel(t, before, levels...)
	}
	back := order[random.IntN(2)]
	restart(members[back], before)
	levels[back] = before
	c.awaitLevel(t, before, levels...)
	c.finalizeRefused(t, members[back])
	for _, at := range random.Perm(3) {
		if levels[at] == before {
			restart(members[at], now)
			levels[at] = now
		}
	}
	c.awaitLevel(t, before, now, now, now)
	c.finalize(t, now)
	c.awaitLevel(t, now, now, now, now)

	late := members[random.IntN(3)]
	late.process().stop(t)
	late.understands(before)
	c.start(t, late)
	if code := late.process().awaitExit(t, formLimit); code != 1 || !strings.Contains(late.process().stderr.String(), "start the newer release") {
		t.Errorf("a node that is too old exits with %d: %s", code, late.process().stderr)
	}
	late.understands(now)
	c.start(t, late)
	c.awaitHealthy(t)

	v := &verdict{} // no crash: every duplicate is a fault
	load.rounds++
	load.finish(t, v)
	c.checkAgreed(t, members)
	t.Logf("order %v, %s went back: %d timers, %d arrivals, %d duplicates", order, members[back].name, load.ledger.size(), len(v.log), v.duplicates)
}

// finalize ends an upgrade as an operator does, who sees first that it waits.
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

// finalizeRefused: a node of the release before is named.
func (c *cluster) finalizeRefused(t testing.TB, old *member) {
	t.Helper()
	_, said := tool(t, 1, "ctl", "--url", "http://"+c.running()[0].http, "upgrade", "finalize")
	if !strings.Contains(said, "is not understood by ") || !strings.Contains(said, old.name+" (release ") {
		t.Errorf("upgrade finalize with %s of the release before: %s", old.name, said)
	}
}

// understands sets the level of the next start.
func (m *member) understands(level int) {
	m.env = []string{fmt.Sprint("CARILLON_FEATURE_LEVEL=", level)}
}

// awaitLevel waits until all nodes say what the cluster has agreed on, and what each node
// understands. That must never have been more.
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
