package e2e

import (
	"net/url"
	"testing"
	"time"
)

// TestClusterReturnAmongStrangers: a node comes back, and meanwhile the cluster is led by nodes that joined when it was away: those it knew
// are being drained and lead nothing.
func TestClusterReturnAmongStrangers(t *testing.T) {
	needCluster(t)
	all := loopbackMembers(t, 5)
	c := found(t, all[:3])
	away := all[2]
	away.process().stop(t)
	c.mu.Lock()
	c.members = all
	c.mu.Unlock()
	for _, m := range all[3:] {
		c.start(t, m)
	}
	until := func(what string, ok func(v view) bool) {
		t.Helper()
		if !holdsWithinBy(lookEvery, formLimit, func() bool { v, err := all[3].view(); return err == nil && ok(v) }) {
			t.Fatalf("not within %v: %s", formLimit, what)
		}
	}
	until("they have joined and hold something", func(v view) bool {
		for _, m := range all[3:] {
			if v.stateOf(m.name) != "alive" {
				return false
			}
		}
		held := 0
		for _, n := range v.Nodes {
			if n.Name == all[3].name || n.Name == all[4].name {
				held += n.Replicas
			}
		}
		return held > clusterShards/2
	})
	for _, m := range all[:2] {
		if a := all[3].client.do("POST", "/v1/cluster/nodes/"+url.PathEscape(m.name)+"/drain", ""); a.status != 202 {
			t.Fatalf("drain %s: %d %s", m.name, a.status, a.body)
		}
	}
	until("the two that are drained lead nothing", func(v view) bool {
		return len(v.ledBy(all[0].name))+len(v.ledBy(all[1].name)) == 0
	})
	begin := time.Now()
	c.start(t, away)
	until("it is back", func(v view) bool { return v.stateOf(away.name) == "alive" && away.ready() })
	t.Logf("back after %v", time.Since(begin))
}

func (m *member) ready() bool { return m.client.do("GET", "/readyz", "").status == 200 }
