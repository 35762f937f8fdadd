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

// TestClusterIdentityPutBack: a node's identity.json is put back from before its newest starts, and
// all others have begun anew since. Nobody hears it; it says what to do, ends with the exit code
// that no supervisor restarts, and no later start gets further. The others go on.
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
	for _, other := range members[:2] {
		if !other.alive() || !other.ready() {
			t.Errorf("%s: alive %v", other.name, other.alive())
		}
	}
}

// TestClusterDirectoryPutBack: a node's whole directory is put back: from before its newest start,
// and from within it. Those who have met that process, or have heard more of its log, tell it; it
// ends, and the others go on.
func TestClusterDirectoryPutBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		another    int // whose restart makes the log of the third node longer
	}{
		{"from before its newest start", "older copy", 2},
		{"from within its newest start", "the data directory is an older copy", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 3)
			members := c.all()
			m := members[2]
			older := filepath.Join(t.TempDir(), "copy")
			m.process().signal(t, syscall.SIGSTOP) // so that the copy is of one moment
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
			for _, other := range members[:2] {
				if !other.alive() || !other.ready() {
					t.Errorf("%s: alive %v", other.name, other.alive())
				}
			}
		})
	}
}

// TestIdentityPutBackAlone: a node alone has nobody that knows more than it does, but for its own
// log.
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
		newClient(p).topic(t, fmt.Sprint("t", i), "http://127.0.0.1:1/", "") // by an entry of the same group as the record's
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

// endsAsOlder starts a member twice: both end, and say what is wrong and what to do.
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
