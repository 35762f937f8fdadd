package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClusterIdentityPutBack: a node's identity.json is put back from before its newest starts, and all others have begun anew since. Nobody hears it;
// it says what to do, ends with the exit code that no supervisor restarts, and no later start gets further. The others go on.
func TestClusterIdentityPutBack(t *testing.T) {
	c := newCluster(t, 3)
	members := c.all()
	m := members[2]
	file := filepath.Join(m.dir, "identity.json")
	older, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again := func(m *member) {
		m.process().stop(t)
		c.start(t, m)
		c.awaitHealthy(t)
	}
	again(m)
	again(m)
	again(members[0])
	again(members[1])
	m.process().stop(t)
	if err := os.WriteFile(file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"older copy", "this node ended itself at"} {
		c.start(t, m)
		if code := m.process().awaitExit(t, 30*time.Second); code != exitDown {
			t.Errorf("exit code %d", code)
		}
		if text := m.process().stderr.String(); !strings.Contains(text, says) || !strings.Contains(text, "empty the data directory") {
			t.Errorf("it does not say what is wrong and what to do: %s", tail(text, 1000))
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, "halted.json")); err != nil {
		t.Error(err)
	}
	for _, other := range members[:2] {
		if !other.alive() || !other.ready() {
			t.Errorf("%s: alive %v", other.name, other.alive())
		}
	}
}
