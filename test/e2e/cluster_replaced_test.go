package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// aside returns the folders to which a node's damaged directory was moved.
func (m *member) aside(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(m.dir, "damaged-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// nodeID returns the node id in a directory.
func nodeID(t *testing.T, dir string) uint64 {
	t.Helper()
	var id struct {
		NodeID uint64 `json:"node_id"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if err == nil {
		err = json.Unmarshal(b, &id)
	}
	if err != nil || id.NodeID == 0 {
		t.Fatalf("%s: %s, %v", dir, b, err)
	}
	return id.NodeID
}

// wasReplaced checks that a node's damaged directory was set aside whole, and that it has another id.
func (m *member) wasReplaced(t *testing.T, before uint64) {
	t.Helper()
	list := m.aside(t)
	if len(list) != 1 {
		t.Fatalf("%s has set aside %v", m.name, list)
	}
	if old := nodeID(t, list[0]); old != before || nodeID(t, m.dir) == before {
		t.Errorf("%s was node %x: %x is set aside, %x is there", m.name, before, old, nodeID(t, m.dir))
	}
	if _, err := os.Stat(filepath.Join(list[0], "wal", "0", "FIRST")); err != nil {
		t.Errorf("the damaged log is not kept: %v", err)
	}
	if n := m.process().number(t, "carillon_damaged_folders"); n != 1 {
		t.Errorf("%s shows %v damaged folders", m.name, n)
	}
}

// TestClusterReplacesADamagedNode: all nodes are stopped, and one log is damaged in the middle. Once
// all have started again, that node has set its directory aside by itself and has a new id; no timer
// is missing anywhere. A second node that is damaged later is replaced while the others serve, also
// if its flags name no other node.
func TestClusterReplacesADamagedNode(t *testing.T) {
	t.Parallel()
	const timers = 2000
	c := newCluster(t, 3)
	keepTimers(t, c, timers)
	first, second := c.all()[0], c.all()[1]
	before := nodeID(t, first.dir)
	first.spoil(t, 0.40, 0.40)
	begin := time.Now()
	for _, m := range c.all() {
		c.start(t, m)
	}
	c.awaitHealthy(t)
	t.Logf("healthy after %v", time.Since(begin))
	first.wasReplaced(t, before)

	second.process().stop(t)
	before = nodeID(t, second.dir)
	second.spoil(t, 0.55, 0.56)
	second.running.Store(beginIn(t, second.arrange, []string{binary, "serve", "--data", second.dir, "--name", second.name,
		"--http", second.http, "--peer", second.peer, "--gossip", second.gossip, "--gossip-key", c.keyFile(t)}))
	c.awaitHealthy(t)
	second.wasReplaced(t, before)
	for _, m := range c.all() {
		if got := len(m.client.all(t, "kept")); got != timers {
			t.Errorf("%s lists %d timers, want %d", m.name, got, timers)
		}
	}
	first.process().stop(t) // its next start is an ordinary one
	c.start(t, first)
	c.awaitHealthy(t)
	if list := first.aside(t); len(list) != 1 {
		t.Errorf("set aside again: %v", list)
	}
}

// TestClusterCutLogDoesNotServe: one of three is paused while the two others acknowledge. Both are
// killed, and the log of one is cut inside its last frame. With the paused one it would be a majority
// that lacks what was acknowledged: it refuses, until the third is back. Then it is replaced.
func TestClusterCutLogDoesNotServe(t *testing.T) {
	t.Parallel()
	needTime(t)
	const timers = 1000
	c := newCluster(t, 3)
	paused, cut, third := c.all()[0], c.all()[1], c.all()[2]
	cut.client.topic(t, "kept", "http://127.0.0.1:9/", "")
	before := nodeID(t, cut.dir)
	paused.process().signal(t, syscall.SIGSTOP)
	var ops []string
	for i := range timers {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"k%d","delay":"1000h"}`, i))
	}
	poll(t, time.Minute, "two of three acknowledge", func() bool {
		statuses, ok := cut.client.tryBatch("kept", ops)
		return ok && !slices.ContainsFunc(statuses, func(s int) bool { return s != 200 && s != 201 })
	})
	cut.process().kill()
	third.process().kill()
	cutLastFrame(t, cut.dir)
	c.start(t, cut)
	paused.process().signal(t, syscall.SIGCONT)
	if code := cut.process().awaitExit(t, 2*time.Minute); code != exitDown {
		t.Errorf("%s ended with %d", cut.name, code)
	}
	if says := cut.process().lastWords(); !strings.Contains(says, "ends inside a frame") || !strings.Contains(says, "start the other nodes") {
		t.Errorf("%s says %s", cut.name, says)
	}
	c.start(t, third)
	c.start(t, cut)
	c.awaitHealthyWithin(t, time.Minute)
	cut.wasReplaced(t, before)
	for _, m := range c.all() {
		if got := len(m.client.all(t, "kept")); got != timers {
			t.Errorf("%s lists %d timers, want %d", m.name, got, timers)
		}
	}
}

// TestClusterDamagedTwice: two of three logs are damaged. Both nodes end, say why, and keep their
// directories as they are; the third does not serve.
func TestClusterDamagedTwice(t *testing.T) {
	t.Parallel()
	needTime(t)
	c := newCluster(t, 3)
	keepTimers(t, c, 2000)
	damaged := c.all()[:2]
	for i, m := range damaged {
		m.spoil(t, 0.2+float64(i)/10, 0.8)
	}
	for _, m := range c.all() {
		c.start(t, m)
	}
	for _, m := range damaged {
		if code := m.process().awaitExit(t, time.Minute); code != exitDown {
			t.Errorf("%s ended with %d", m.name, code)
		}
		if says := m.process().stderr.String(); !strings.Contains(says, "restore a backup") || !strings.Contains(says, "offset") || !strings.Contains(says, "damaged, too") {
			t.Errorf("%s says %s", m.name, says)
		}
		if list := m.aside(t); len(list) != 0 {
			t.Errorf("%s has set aside %v", m.name, list)
		}
	}
	if a := c.all()[2].client.do("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("the third answers %d %s", a.status, a.body)
	}
}
