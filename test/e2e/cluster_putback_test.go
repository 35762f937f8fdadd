package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestClusterIdentityPutBack: a node's identity.json is replaced by a copy from before its newest
// starts, and all other nodes have restarted since. Its peers refuse it. It reports the remedy and
// exits with the code after which supervisors do not restart it, and so does each later start. The
// other nodes go on.
func TestClusterIdentityPutBack(t *testing.T) {
	t.Parallel()
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
	c.endsAsOlder(t, m, "older copy")
	awaitServing(t, members[:2])
}

// TestClusterDirectoryPutBack: a node's whole directory is replaced by an older copy, from before
// its newest start or from within it. Peers that know its newest start, or more of its log, tell
// it. It exits, and the other nodes go on.
func TestClusterDirectoryPutBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		another    int // restarted after the copy; either way m's log grows
	}{
		{"from before its newest start", "older copy", 2},
		{"from within its newest start", "the data directory is an older copy", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 3)
			members := c.all()
			m := members[2]
			older := filepath.Join(t.TempDir(), "copy")
			m.process().signal(t, syscall.SIGSTOP) // for a consistent copy
			err := os.CopyFS(older, os.DirFS(m.dir))
			m.process().signal(t, syscall.SIGCONT)
			if err != nil {
				t.Fatal(err)
			}
			c.awaitHealthy(t)
			other := members[test.another]
			other.process().stop(t)
			c.start(t, other)
			c.awaitHealthy(t)
			m.process().stop(t)
			if err := errors.Join(os.RemoveAll(m.dir), os.CopyFS(m.dir, os.DirFS(older))); err != nil {
				t.Fatal(err)
			}
			c.endsAsOlder(t, m, test.says)
			awaitServing(t, members[:2])
		})
	}
}

// TestIdentityPutBackAlone: on a single node only its own log shows that identity.json is older.
func TestIdentityPutBackAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("several starts")
	}
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "identity.json")
	serve(t, dir).stop(t)
	older, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p := serve(t, dir)
		poll(t, formLimit, "the start is to be put on record", func() bool {
			var id struct{ Starts, Asked int }
			b, err := os.ReadFile(file)
			return err == nil && json.Unmarshal(b, &id) == nil && id.Starts == id.Asked
		})
		// A topic: an entry in the same raft group as the record of the start.
		newClient(p).topic(t, fmt.Sprint("t", i), "http://127.0.0.1:1/", "")
		p.stop(t)
	}
	if err := os.WriteFile(file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"identity.json is older than the log", "this node ended itself at"} {
		code, stdout, stderr := command(t, serveArgs(dir, "127.0.0.1:0")...)
		if code != exitDown || stdout != "" || !strings.Contains(stderr, says) || !strings.Contains(stderr, "put the newest data directory back") {
			t.Errorf("code %d, stdout %q, stderr %q; want %q", code, stdout, stderr, says)
		}
	}
}

// awaitServing waits until all members are ready: a node that has just taken over a shard is not
// until its first canary timer has passed.
func awaitServing(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members {
		poll(t, formLimit, m.name+" is to be alive and ready", func() bool { return m.alive() && m.ready() })
	}
}

// endsAsOlder starts a member twice. It must exit and report the fault and the remedy both times.
func (c *cluster) endsAsOlder(t *testing.T, m *member, says string) {
	t.Helper()
	for _, says := range []string{says, "this node ended itself at"} {
		c.start(t, m)
		if code := m.process().awaitExit(t, 30*time.Second); code != exitDown {
			t.Errorf("exit code %d", code)
		}
		if text := m.process().stderr.String(); !strings.Contains(text, says) || !strings.Contains(text, "empty the data directory") {
			t.Errorf("it does not say %q and what to do: %s", says, tail(text, 1000))
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, "halted.json")); err != nil {
		t.Error(err)
	}
}
