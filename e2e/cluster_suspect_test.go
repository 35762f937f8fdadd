package e2e

import (
	"slices"
	"testing"
)

// TestClusterViewOfALostNode: from the kill of a node on, what another node says of the cluster
// agrees with itself. No shard of a node that is not there is ok, no more shards are led than there
// are, and nobody alive is missed.
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

// agreesWithItself fails the test where one part of a view contradicts another.
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
