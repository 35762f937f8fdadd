package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keepTimers fills a cluster with timers due in 1,000 hours, in batches of 100 with 800 byte
// payloads, and stops all nodes.
func keepTimers(t *testing.T, c *cluster, timers int) {
	t.Helper()
	client := c.all()[0].client
	client.topic(t, "kept", "http://127.0.0.1:9/", "")
	for i := 0; i < timers; {
		ops := make([]string, 100)
		for j := range ops {
			ops[j] = fmt.Sprintf(`{"op":"add","id":"k%d","delay":"1000h","payload":%q}`, i, strings.Repeat("p", 800))
			i++
		}
		for _, status := range client.batch(t, "kept", ops) {
			if status != 201 {
				t.Fatalf("add: status %d", status)
			}
		}
	}
	for _, m := range c.all() {
		m.process().stop(t)
	}
}

// spoil flips a bit in each byte of the first segment of a node's log between two fractions of its
// length.
func (m *member) spoil(t *testing.T, from, to float64) string {
	t.Helper()
	path := filepath.Join(m.dir, segments(t, m.dir)[0])
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := int(from * float64(len(b))); at <= int(to*float64(len(b))); at++ {
		b[at] ^= 0x10
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClusterMendsItself: all nodes are stopped and two of their logs are damaged in different
// places. Once all have started again no timer is missing.
func TestClusterMendsItself(t *testing.T) {
	t.Parallel()
	const timers = 2000
	c := newCluster(t, 3)
	keepTimers(t, c, timers)
	damaged := []string{c.all()[0].spoil(t, 0.40, 0.40), c.all()[1].spoil(t, 0.55, 0.56)}
	begin := time.Now()
	for _, m := range c.all() {
		c.start(t, m)
	}
	c.awaitHealthy(t)
	t.Logf("healthy after %v", time.Since(begin))
	for i, m := range c.all() {
		if got := len(m.client.all(t, "kept")); got != timers {
			t.Errorf("%s lists %d timers, want %d", m.name, got, timers)
		}
		if i < len(damaged) {
			if broken, err := filepath.Glob(damaged[i] + ".*.broken"); err != nil || len(broken) != 1 {
				t.Errorf("%s kept %v, %v", m.name, broken, err)
			}
			if n := m.process().number(t, "carillon_wal_mended_frames_total"); n < 1 {
				t.Errorf("%s repaired %v frames", m.name, n)
			}
		}
	}
}

// TestClusterDamagedEverywhere: all three logs are damaged in the same place. All nodes exit and
// report the missing entries.
func TestClusterDamagedEverywhere(t *testing.T) {
	t.Parallel()
	needTime(t)
	c := newCluster(t, 3)
	keepTimers(t, c, 2000)
	for _, m := range c.all() {
		m.spoil(t, 0.2, 0.8)
	}
	for _, m := range c.all() {
		c.start(t, m)
	}
	for _, m := range c.all() {
		if code := m.process().awaitExit(t, time.Minute); code != exitDown {
			t.Errorf("%s ended with %d", m.name, code)
		}
		if says := m.process().stderr.String(); !strings.Contains(says, "entries are missing") || !strings.Contains(says, "offset") {
			t.Errorf("%s says %s", m.name, says)
		}
	}
}
