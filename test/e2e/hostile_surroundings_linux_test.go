package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

// inOwnMounts is a wrapper that runs a process in a mount namespace, once a shell has changed it.
func inOwnMounts(t testing.TB, commands string) []string {
	t.Helper()
	if os.Geteuid() != 0 || exec.Command("unshare", "-m", "true").Run() != nil {
		t.Skip("mount namespaces are not permitted here: files of the machine are not replaced")
	}
	return []string{"unshare", "-m", "sh", "-ec", "mount --make-rprivate /\n" + commands + "\n" + `exec "$@"`, "sh"}
}

// machineCases are about files of the machine.
func machineCases() []surrounding {
	var resolver net.PacketConn
	return []surrounding{{
		name: "no /proc, /sys, /etc and zones",
		before: func(t *testing.T, s *surrounded) {
			s.wrapper = inOwnMounts(t, `for d in /sys /etc /usr/share/zoneinfo /proc; do if [ -d $d ]; then mount -t tmpfs none $d; fi; done`)
		},
		after: berlin,
	}, {
		name: "a host name that is none",
		before: func(t *testing.T, s *surrounded) {
			s.wrapper = inOwnMounts(t, `printf -- '-\303\274 _.%64d' 1 >/proc/sys/kernel/hostname`)
			s.wrapper = append([]string{"unshare", "-u"}, s.wrapper...)
		},
	}, {
		name: "zones of the environment",
		before: func(t *testing.T, s *surrounded) {
			s.env = append(s.env, "ZONEINFO="+otherZones(t, s.dir))
		},
		after: berlin,
	}, {
		name: "zones of the machine are others",
		before: func(t *testing.T, s *surrounded) {
			if _, err := os.Stat("/usr/share/zoneinfo"); err != nil {
				t.Skip("there are none")
			}
			s.wrapper = inOwnMounts(t, "mount --bind "+otherZones(t, s.dir)+" /usr/share/zoneinfo")
		},
		after: berlin,
	}, {
		name: "a resolver that does not answer",
		before: func(t *testing.T, s *surrounded) {
			file := filepath.Join(s.dir, "resolv.conf")
			writeFile(t, file, "nameserver 127.0.0.77\n")
			s.wrapper = inOwnMounts(t, "mount --bind "+file+" /etc/resolv.conf")
			var err error
			if resolver, err = net.ListenPacket("udp", "127.0.0.77:53"); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { resolver.Close() })
		},
		strike: func(t *testing.T, s *surrounded) {
			for i := range 60 {
				s.c.must(t, 201, "POST", "/v1/topics/named/timers",
					fmt.Sprintf(`{"id":"n%d","delay_ms":0,"callback":{"url":"http://host%d.example.com/","timeout":"2s"}}`, i, i%20))
			}
			buf := make([]byte, 512)
			_ = resolver.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, _, err := resolver.ReadFrom(buf); err != nil {
				t.Fatal("the resolver is not asked:", err)
			}
		},
		shows: `carillon_fired_total{result="retry"}`,
		after: func(t *testing.T, s *surrounded) {
			if got := s.c.read(t, "named", "n0"); got.State == "done" || got.LastError == "" {
				t.Errorf("%+v", got)
			}
		},
	}, {
		name: "the audit log is on a full disk",
		before: func(t *testing.T, s *surrounded) {
			s.dir = diskOf(t, "size=128k")
			s.flags = append(s.flags, "--audit-log", filepath.Join(s.dir, "audit.log"))
		},
		strike: func(t *testing.T, s *surrounded) {
			f, err := os.Create(filepath.Join(s.dir, "filler"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for err == nil {
				_, err = f.Write(make([]byte, 512))
			}
			for range 80 { // of 130 bytes each: the file's last page may have room for some
				s.c.must(t, 200, "POST", "/v1/topics/calm/resume", "")
			}
		},
		shows: auditLost,
		after: func(t *testing.T, s *surrounded) {
			if err := os.Remove(filepath.Join(s.dir, "filler")); err != nil {
				t.Fatal(err)
			}
			s.c.must(t, 200, "POST", "/v1/topics/calm/resume", "")
			poll(t, patience, "the file has the number of lost entries", func() bool {
				text, _ := os.ReadFile(filepath.Join(s.dir, "audit.log"))
				return strings.Contains(string(text), `"entries.lost"`)
			})
		},
	}, {
		name: "the log is as large as a file may be",
		before: func(t *testing.T, s *surrounded) {
			const most = 64 << 20
			f := openFile(t, filepath.Join(s.dir, "stderr"))
			if err := f.Truncate(most); err != nil {
				t.Fatal(err)
			}
			s.arrange = outputs(nil, f)
			s.wrapper = []string{"prlimit", fmt.Sprint("--fsize=", most)}
		},
		strike: loseLines,
	}}
}

// otherZones makes a directory of zones in which Berlin is somewhere else.
func otherZones(t testing.TB, dir string) string {
	t.Helper()
	tokyo, err := os.ReadFile("/usr/share/zoneinfo/Asia/Tokyo")
	if err != nil {
		t.Skip("there are no zones here to copy")
	}
	dir = filepath.Join(dir, "zones")
	if err := os.MkdirAll(filepath.Join(dir, "Europe"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "Europe", "Berlin"), string(tokyo))
	return dir
}

// berlin adds a series whose times are those of Berlin, not those of a file.
func berlin(t *testing.T, s *surrounded) {
	got := s.c.must(t, 201, "POST", "/v1/topics/calm/timers", `{"id":"nine","repeat":{"cron":"0 9 1 7 *","zone":"Europe/Berlin"}}`).timer(t)
	if due := time.UnixMilli(got.DueMs).UTC(); due.Hour() != 7 { // summer time
		t.Errorf("9 o'clock in Berlin is %v", due)
	}
	s.c.must(t, 200, "POST", timerPath("calm", "nine")+"/fire", "")
	poll(t, patience, "the series has fired", func() bool { return s.receiver.called("calm", "nine") == 1 })
}

// TestHostileMachines: files of the machine that a node reads may be gone, or others.
func TestHostileMachines(t *testing.T) {
	t.Parallel()
	for _, h := range machineCases() {
		t.Run(h.name, h.run)
	}
}

// TestHostileLimits: with few files a node serves some clients and receivers, and its own files
// are not among those that it lacks.
func TestHostileLimits(t *testing.T) {
	t.Parallel()
	for _, files := range []int{64, 128} {
		var end func()
		h := surrounding{
			name: fmt.Sprint(files, " open files"),
			long: files != 64,
			before: func(_ *testing.T, s *surrounded) {
				s.wrapper = []string{"prlimit", fmt.Sprintf("--nofile=%d", files)}
			},
			strike: func(t *testing.T, s *surrounded) { end = s.takesFiles(t) },
			after:  func(*testing.T, *surrounded) { end() },
		}
		t.Run(h.name, h.run)
	}
}

// takesFiles has more calls under way than the node may have files, and as many clients, while
// its log goes through many files of its own.
func (s *surrounded) takesFiles(t *testing.T) (end func()) {
	t.Helper()
	payload := strings.Repeat("p", 100<<10)
	large := func(name string) (took time.Duration) { // 5 MiB: five segments of the log
		begun := time.Now()
		for i := range 50 {
			poll(t, patience, "a large add is taken", func() bool {
				return s.c.do("POST", "/v1/topics/calm/timers", fmt.Sprintf(`{"id":"%s%d","delay":"24h","payload":%q}`, name, i, payload)).status/100 == 2
			})
		}
		return time.Since(begun)
	}
	before := large("before")
	g := newGate()
	for range 20 {
		hanging := newReceiver(t, g.hold)
		for i := range 10 {
			s.c.must(t, 201, "POST", "/v1/topics/hang/timers", fmt.Sprintf(`{"id":"%s-%d","delay_ms":0,"callback":{"url":%q}}`, strings.ReplaceAll(hanging.server.URL, "/", "_"), i, hanging.url()))
		}
	}
	var open []net.Conn
	for range 200 {
		if conn, err := net.DialTimeout("tcp", s.address, time.Second); err == nil {
			open = append(open, conn)
		}
	}
	if took := large("large"); took > 5*time.Second+3*before {
		t.Errorf("clients waited %v for files that calls have, and %v before", took, before)
	}
	return sync.OnceFunc(func() {
		g.lift()
		for _, conn := range open {
			conn.Close()
		}
	})
}

// TestClusterWithFewFiles: three nodes with 64 files each take adds and call, while receivers hang.
func TestClusterWithFewFiles(t *testing.T) {
	t.Parallel()
	needCluster(t)
	members := loopbackMembers(t, 3)
	for _, m := range members {
		m.wrapper = []string{"prlimit", "--nofile=64"}
	}
	found(t, members)
	rcv, g := newReceiver(t, nil), newGate()
	t.Cleanup(g.lift)
	members[0].client.topic(t, "calm", rcv.url(), "")
	for range 20 {
		hanging := newReceiver(t, g.hold)
		for i := range 10 {
			members[i%3].client.must(t, 201, "POST", "/v1/topics/hang/timers", fmt.Sprintf(`{"delay_ms":0,"callback":{"url":%q}}`, hanging.url()))
		}
	}
	const timers = 60
	for i := range timers {
		members[i%3].client.must(t, 201, "POST", "/v1/topics/calm/timers", fmt.Sprintf(`{"id":"t%d","delay_ms":10}`, i))
	}
	poll(t, patience, "all have fired", func() bool { return rcv.count() == timers })
	for _, m := range members {
		if !m.alive() {
			t.Errorf("%s has ended: %s", m.name, m.process().stderr)
		}
	}
}

// TestJoinByNamesOfADeadResolver: a node that cannot find its cluster ends when it is told to.
func TestJoinByNamesOfADeadResolver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	writeFile(t, file, "nameserver 127.0.0.78\n")
	wrapper := inOwnMounts(t, "mount --bind "+file+" /etc/resolv.conf")
	resolver, err := net.ListenPacket("udp", "127.0.0.78:53")
	if err != nil {
		t.Skip(err)
	}
	defer resolver.Close()
	key := filepath.Join(dir, "cluster.key")
	writeFile(t, key, strings.Repeat("5a", 32)+"\n")
	node := begin(t, append(wrapper, binary, "serve", "--data", filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
		"--gossip-key", key, "--join", "n1.example.com:7702,n2.example.com:7702"))
	if _, _, err := resolver.ReadFrom(make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	node.signal(t, syscall.SIGTERM)
	if code := node.awaitExit(t, endLimit); code != 0 {
		t.Errorf("exit code %d: %s", code, node.stderr)
	}
}

// TestCrashWhileTheLogStandsStill: a process that crashes ends, though nobody reads why. SIGQUIT
// writes and ends as a crash does.
func TestCrashWhileTheLogStandsStill(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]func(*testing.T) *os.File{
		"pipe": func(t *testing.T) *os.File {
			_, w := fullPipe(t)
			return w
		},
		"socket": func(t *testing.T) *os.File { // as systemd gives it
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Close(pair[0]) })
			for err == nil {
				_, err = syscall.Write(pair[1], make([]byte, 1))
			}
			if err := syscall.SetNonblock(pair[1], false); err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(pair[1]), "socket")
			t.Cleanup(func() { f.Close() })
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &surrounded{address: freeport.Address(t), arrange: outputs(nil, output(t)), env: []string{"GOTRACEBACK=crash"}}
			s.flags = []string{"--shards", "4", "--data", t.TempDir(), "--http", s.address}
			s.start(t)
			s.signal(t, syscall.SIGQUIT)
			if code := s.awaitExit(t, endLimit); code != -1 { // a signal, so that the unit starts it again
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestRemovedNodeStaysDown: a process that is removed exits 0, and a later start exits 3: a
// supervisor that always restarts would otherwise do so for ever.
func TestRemovedNodeStaysDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	removed := c.all()[1]
	c.drainAndRemove(t, removed)
	c.start(t, removed)
	if code := removed.process().awaitExit(t, readyLimit); code != exitDown || !strings.Contains(removed.process().stderr.String(), "was removed from the cluster") {
		t.Errorf("exit code %d: %s", code, removed.process().stderr)
	}
}

// TestClusterWhoseLogsAreNotRead: all three nodes lose the readers of their logs, or these stand
// still. One node is killed; the others work.
func TestClusterWhoseLogsAreNotRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		output func(*testing.T) (reader, writer *os.File)
		ends   bool // the readers end once the cluster is healthy
	}{
		{"the readers end", func(t *testing.T) (r, w *os.File) { return newPipe(t) }, true},
		{"the readers stand still", func(t *testing.T) (r, w *os.File) { return fullPipe(t) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needCluster(t)
			members := loopbackMembers(t, 3)
			var readers []*os.File
			for _, m := range members {
				r, w := c.output(t)
				readers = append(readers, r)
				m.arrange = outputs(w, w)
			}
			rcv := newReceiver(t, nil)
			cluster := found(t, members, "--log-level", "debug")
			members[0].client.topic(t, "calm", rcv.url(), "")
			if c.ends {
				for _, r := range readers {
					r.Close()
				}
			}
			victim := cluster.busiest(t)
			victim.process().kill()
			rest := cluster.running()
			if len(rest) != 2 {
				t.Fatalf("%d nodes are left", len(rest))
			}
			for i := range 60 {
				id := fmt.Sprintf("t%d", i)
				due := time.Now().Add(time.Second).UnixMilli()
				poll(t, patience, "an add is taken", func() bool {
					a := rest[i%2].client.do("POST", "/v1/topics/calm/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d}`, id, due))
					return a.status == http.StatusCreated || a.status == http.StatusOK
				})
			}
			poll(t, patience, "all have fired", func() bool {
				for i := range 60 {
					if rcv.called("calm", fmt.Sprintf("t%d", i)) == 0 {
						return false
					}
				}
				return true
			})
			for _, m := range rest {
				m.process().signal(t, syscall.SIGTERM)
			}
			for _, m := range rest {
				if code := m.process().awaitExit(t, 2*endLimit); code != 0 {
					t.Errorf("%s ended with %d", m.name, code)
				}
			}
		})
	}
}
