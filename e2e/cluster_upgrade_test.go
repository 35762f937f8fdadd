package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClusterUpgradeInAnyOrder: under load, nodes that understand feature level 1 are started again
// with the next, in an order that is drawn, and one goes back in between. Nobody notices. The
// cluster agrees on the higher level when the last node has it, and not before; from then on a node
// that is held back ends, says what to do, and the others go on.
func TestClusterUpgradeInAnyOrder(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	members := loopbackMembers(t, 3)
	for _, m := range members {
		m.understands(1)
	}
	c := found(t, members)
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), random)
	c.awaitLevel(t, 1, 1, 1, 1)
	restart := func(m *member, level int) {
		t.Helper()
		wait(500 * time.Millisecond)
		m.process().stop(t)
		m.understands(level)
		c.start(t, m)
		c.awaitHealthy(t)
		load.rounds++
	}
	levels := []int{1, 1, 1}
	order := random.Perm(3)
	for _, at := range order[:2] {
		restart(members[at], 2)
		levels[at] = 2
		c.awaitLevel(t, 1, levels...)
	}
	back := order[random.IntN(2)]
	restart(members[back], 1)
	levels[back] = 1
	c.awaitLevel(t, 1, levels...)
	for _, at := range random.Perm(3) {
		if levels[at] == 1 {
			restart(members[at], 2)
			levels[at] = 2
		}
	}
	c.awaitLevel(t, 2, 2, 2, 2)

	late := members[random.IntN(3)]
	late.process().stop(t)
	late.understands(1)
	c.start(t, late)
	if code := late.process().awaitExit(t, formLimit); code != 1 || !strings.Contains(late.process().stderr.String(), "start the newer release") {
		t.Errorf("a node that is too old exits with %d: %s", code, late.process().stderr)
	}
	late.understands(2)
	c.start(t, late)
	c.awaitHealthy(t)

	v := &verdict{} // no crash: every duplicate is a fault
	load.rounds++
	load.finish(t, v)
	c.checkAgreed(t, members)
	t.Logf("order %v, %s went back: %d timers, %d arrivals, %d duplicates", order, members[back].name, load.ledger.size(), len(v.log), v.duplicates)
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
