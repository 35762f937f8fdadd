package e2e

import (
	"net/url"
	"testing"
	"time"
)

// TestClusterReturnAmongStrangers: a node returns to a cluster that is led by nodes that joined
// while it was away. The nodes that it knew are being drained and lead no shards.
func TestClusterReturnAmongStrangers(t *testing.T) {
	t.Parallel()
	needTime(t)
	needCluster(t)
	all := loopbackMembers(t, 5)
	c := &cluster{members: all}
	until := func(what string, m *member, ok func(v view) bool) {
		t.Helper()
		if !holdsWithinBy(lookEvery, 2*formLimit, func() bool { v, err := m.view(); return err == nil && ok(v) }) {
			t.Fatalf("not within %v: %s", 2*formLimit, what)
		}
	}
	for _, m := range all[:3] {
		c.start(t, m, "--bootstrap-expect", "3", "--shards", "4") // few shards move soon
	}
	until("the three are a cluster", all[0], func(v view) bool { return v.Healthy && len(v.Nodes) == 3 })
	away := all[2]
	away.process().stop(t)
	for _, m := range all[3:] {
		c.start(t, m)
	}
	until("two more have joined", all[3], func(v view) bool {
		return v.stateOf(all[3].name) == "alive" && v.stateOf(all[4].name) == "alive"
	})
	for _, m := range all[:2] {
		if a := all[3].client.do("POST", "/v1/cluster/nodes/"+url.PathEscape(m.name)+"/drain", ""); a.status != 202 {
			t.Fatalf("drain %s: %d %s", m.name, a.status, a.body)
		}
	}
	until("the two that are drained lead nothing", all[3], func(v view) bool {
		return len(v.ledBy(all[3].name))+len(v.ledBy(all[4].name)) == 4
	})
	begin := time.Now()
	c.start(t, away)
	until("it is back", all[3], func(v view) bool { return v.stateOf(away.name) == "alive" && away.ready() })
	t.Logf("back after %v", time.Since(begin))
}

func (m *member) ready() bool { return m.client.do("GET", "/readyz", "").status == 200 }
