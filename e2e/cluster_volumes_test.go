package e2e

import (
	"os"
	"strings"
	"testing"
)

// refusedLimit is within what a node that is not let in says why.
const refusedLimit = formLimit

// TestClusterVolumesMountedEmpty: in a rolling restart the volumes of two of three nodes are not
// mounted. The first is taken for a node whose disk was lost, and is filled; it is not ready
// before. The second is not let in while that goes on, and says what to do. With its volume back
// nothing is missing.
func TestClusterVolumesMountedEmpty(t *testing.T) {
	t.Parallel()
	needTime(t)
	c := newCluster(t, 3)
	timers := c.keepTimers(t, "kept", 0, setting(t, "CARILLON_E2E_CLUSTER_KEPT", 1000))
	first, second := c.all()[0], c.all()[1]
	c.mountEmpty(t, first)
	awaitReason(t, first, "takes the place of another")
	c.mountEmpty(t, second)
	awaitReason(t, second, "mount that one")
	if first.ready() {
		t.Errorf("%s is ready, and its replicas cannot have been filled", first.name)
	}
	for _, force := range []string{"", "?force=true"} {
		a := c.all()[2].client.do("DELETE", "/v1/cluster/nodes/"+second.name+force, "")
		if a.status != 409 && a.status != 503 { // 503: the meta group has no majority either
			t.Errorf("%s is removed: %d %s", second.name, a.status, a.body)
		}
	}
	second.process().kill()
	if err := os.RemoveAll(second.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(second.dir+".volume", second.dir); err != nil {
		t.Fatal(err)
	}
	c.start(t, second)
	c.awaitHealthy(t)
	c.awaitSettled(t, c.all(), 3)
	c.checkKept(t, "kept", timers)
}

// mountEmpty restarts a member without its data directory, which is kept aside.
func (c *cluster) mountEmpty(t *testing.T, m *member) {
	t.Helper()
	m.process().kill()
	if err := os.Rename(m.dir, m.dir+".volume"); err != nil {
		t.Fatal(err)
	}
	c.start(t, m)
}

func awaitReason(t *testing.T, m *member, part string) {
	t.Helper()
	var a answer
	if !holdsWithinBy(lookEvery, refusedLimit, func() bool {
		a = m.client.do("GET", "/readyz", "")
		return a.status == 503 && strings.Contains(string(a.body), part)
	}) {
		t.Fatalf("within %v %s does not say %q: %d %s", refusedLimit, m.name, part, a.status, a.body)
	}
}
