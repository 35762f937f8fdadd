package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// auditCases are about the file of the audit log. Each has lines before the strike and after it.
func auditCases() []surrounding {
	file := func(s *surrounded) string { return filepath.Join(s.dir, "audit.log") }
	with := func(_ *testing.T, s *surrounded) { s.flags = append(s.flags, "--audit-log", file(s)) }
	entries := func(names ...string) (n int) {
		for _, name := range names {
			text, _ := os.ReadFile(name)
			n += strings.Count(string(text), `"timer.add"`)
		}
		return n
	}
	all := func(t *testing.T, want int, names ...string) {
		t.Helper()
		poll(t, patience, fmt.Sprint(want, " entries are in ", names), func() bool { return entries(names...) == want })
	}
	const round = 21 // adds
	rename := func(t *testing.T, s *surrounded) {
		t.Helper()
		all(t, round, file(s))
		if err := os.Rename(file(s), file(s)+".1"); err != nil {
			t.Fatal(err)
		}
	}
	return []surrounding{{
		name: "the audit log is renamed", before: with, strike: rename,
		after: func(t *testing.T, s *surrounded) {
			all(t, round, file(s))
			all(t, round, file(s)+".1")
		},
	}, {
		name: "the audit log is renamed, and SIGHUP sent", before: with,
		strike: func(t *testing.T, s *surrounded) {
			rename(t, s)
			s.signal(t, syscall.SIGHUP)
			poll(t, patience, "the old file is closed", func() bool { return !s.hasOpen(t, file(s)+".1") })
		},
		after: func(t *testing.T, s *surrounded) { all(t, round, file(s)) },
	}, {
		name: "the audit log is removed", before: with,
		strike: func(t *testing.T, s *surrounded) {
			all(t, round, file(s))
			if err := os.Remove(file(s)); err != nil {
				t.Fatal(err)
			}
		},
		after: func(t *testing.T, s *surrounded) { all(t, round, file(s)) },
	}, {
		name: "the folder of the audit log goes away, and comes back", before: with,
		strike: func(t *testing.T, s *surrounded) {
			all(t, round, file(s))
			if err := os.RemoveAll(s.dir); err != nil {
				t.Fatal(err)
			}
			s.c.must(t, 200, "POST", "/v1/topics/calm/resume", "")
		},
		shows: auditLost,
		after: func(t *testing.T, s *surrounded) {
			if err := os.Mkdir(s.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			s.c.must(t, 200, "POST", "/v1/topics/calm/resume", "")
			poll(t, patience, "the file has the number of lost entries", func() bool {
				text, _ := os.ReadFile(file(s))
				return strings.Contains(string(text), `"entries.lost"`)
			})
		},
	}, {
		name: "the audit log is a pipe that nobody reads", long: true,
		before: func(t *testing.T, s *surrounded) {
			if err := syscall.Mkfifo(file(s), 0o600); err != nil {
				t.Fatal(err)
			}
			with(t, s)
		},
		strike: func(t *testing.T, s *surrounded) {
			label := strings.Repeat("l", 60)
			ops := make([]string, 1000) // of 150 bytes each in the audit log: more than a pipe takes
			for i := range ops {
				ops[i] = fmt.Sprintf(`{"op":"add","id":"%s%d","delay":"1h"}`, label, i)
			}
			s.c.batch(t, "calm", ops)
		},
	}}
}

// TestHostileAuditFiles: entries go to the file that has the name, and what cannot be written is
// counted.
func TestHostileAuditFiles(t *testing.T) {
	t.Parallel()
	for _, h := range auditCases() {
		t.Run(h.name, h.run)
	}
}

// hasOpen reports whether the process has a file open.
func (p *process) hasOpen(t testing.TB, name string) bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == name {
			return true
		}
	}
	return false
}
