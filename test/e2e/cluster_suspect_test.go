package e2e

import (
	"slices"
	"testing"
)

// TestClusterViewOfALostNode: after the kill of a node, another node's views of the cluster are
// consistent: no shard with a replica on the lost node is ok, the cluster is not healthy, and no
// more shards are led than exist.
func TestClusterViewOfALostNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	dead, witness := c.all()[0], c.all()[1]
	dead.process().kill()
	suspected := false
	down := holdsWithinBy(lookEvery, formLimit, func() bool {
		v, err := witness.view()
		if err != nil {
			t.Fatal(err)
		}
		state := v.stateOf(dead.name)
		suspected = suspected || state == "suspect"
		v.agreesWithItself(t)
		return state == "down" && len(v.ledBy(dead.name)) == 0
	})
	if !down || !suspected {
		t.Errorf("the node was seen as down: %v, as suspect: %v", down, suspected)
	}
}

// agreesWithItself fails the test if one part of a view contradicts another.
func (v view) agreesWithItself(t *testing.T) {
	t.Helper()
	leads := 0
	for _, n := range v.Nodes {
		leads += n.Leads
		if n.State != "suspect" && n.State != "down" {
			continue
		}
		for _, s := range v.Shards {
			if s.State == "ok" && (s.Leader == n.Name || slices.Contains(s.Replicas, n.Name)) {
				t.Fatalf("%s is %s and shard %d of %v, led by %q, is ok", n.Name, n.State, s.Shard, s.Replicas, s.Leader)
			}
		}
		if v.Healthy {
			t.Fatalf("healthy with %s %s", n.Name, n.State)
		}
	}
	if leads > len(v.Shards) {
		t.Fatalf("%d of %d shards are led: %+v", leads, len(v.Shards), v.Nodes)
	}
}
