package e2e

import (
	"os"
	"strings"
	"testing"
)

// refusedLimit is how long a node may take to report why it is not admitted.
const refusedLimit = formLimit

// TestClusterVolumesMountedEmpty: during a rolling restart two of three nodes start without their
// volumes. The first is treated as a node that lost its disk: its replicas are copied, and it is
// not ready before that. Meanwhile the second is not admitted and reports the remedy. Once it has
// its volume back nothing is missing.
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

// mountEmpty restarts a member with an empty data directory and keeps the old one beside it.
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
