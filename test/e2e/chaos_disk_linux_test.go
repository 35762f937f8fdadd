package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var diskFaults = []fault{
	{name: "disk: EIO on fsync", fresh: true, why: needsStrace, try: func(s *chaosRun, t *testing.T) []time.Duration {
		return s.failDisk(t, "fdatasync", "error=EIO:when=1")
	}},
	{name: "disk: EIO on write", fresh: true, why: needsStrace, try: func(s *chaosRun, t *testing.T) []time.Duration {
		return s.failDisk(t, "write", "error=EIO:when=1")
	}},
	{name: "disk: each fsync takes 1.2 s", fresh: true, why: needsStrace, try: func(s *chaosRun, t *testing.T) []time.Duration {
		return s.slowDisk(t, 1200*time.Millisecond)
	}},
	{name: "disk: an fsync hangs for 20 s", why: needsStrace, try: func(s *chaosRun, t *testing.T) []time.Duration {
		return s.slowDisk(t, 20*time.Second)
	}},
	{name: "disk: almost full", fresh: true, why: needsSmallDisks, try: (*chaosRun).fillDisk},
	{name: "disk: full to the last byte", why: needsSmallDisks, try: (*chaosRun).fillDiskUp},
}

func needsStrace(*chaosRun) string { return straceFault() }

func needsSmallDisks(s *chaosRun) string {
	if len(s.disks) == 0 {
		return "mounting a tmpfs needs root"
	}
	return ""
}

// failDisk makes one system call on the leader's log fail. The process must exit with exitDown and
// name the error, and other nodes take over.
func (s *chaosRun) failDisk(t *testing.T, call, how string) []time.Duration {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	p := victim.process()
	var paths []string
	for _, name := range openLogs(t, p) {
		paths = append(paths, "-P", name)
	}
	failing := crash{at: time.Now(), open: s.receiver.open.Load()}
	release := inject(t, p, call, how, paths...)
	if code := p.awaitExit(t, straceLimit); code != exitDown {
		t.Errorf("exit code %d, want %d", code, exitDown)
	}
	release()
	failing.gone = p.endedAt
	// strace is slow to attach, so count the calls open until the process ended.
	failing.open = s.receiver.openBetween(failing.at, failing.gone)
	if text := p.stderr.String(); !strings.Contains(text, "input/output error") {
		t.Errorf("it does not say why it ends: %s", tail(text, 500))
	}
	s.v.crashes = append(s.v.crashes, failing)
	t.Logf("%s ended %v after strace had begun to come", victim.name, failing.gone.Sub(failing.at))
	took := s.load.probes.takeover(t, led, failing.gone, takeoverLimit)
	s.start(t, victim)
	return took
}

// straceLimit is how long the process may take to react under strace, which stops it at each system
// call.
const straceLimit = time.Minute

// slowDisk delays each fsync of the leader. The leader must hand over its shards and name the
// reason.
func (s *chaosRun) slowDisk(t *testing.T, each time.Duration) []time.Duration {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	from := time.Now()
	release := inject(t, victim.process(), "fdatasync,fsync", fmt.Sprintf("delay_exit=%d", each.Microseconds()))
	took := []time.Duration{s.handedOver(t, victim, from, straceLimit, "fsync")}
	took = append(took, s.load.probes.takeover(t, led, time.Now(), takeoverLimit)...)
	release()
	s.leadsAgain(t, victim)
	return took
}

// leftOnDisk is too little free space for adds, and enough for everything else.
const leftOnDisk = 200 << 20

// fillDisk leaves the leader leftOnDisk bytes. It refuses adds to the shards that it leads, and
// still serves reads, cancels and fires.
func (s *chaosRun) fillDisk(t *testing.T) []time.Duration {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	topic, n := s.load.probes.topic, time.Now().UnixNano()
	id := func(shard int, name string) string {
		return fmt.Sprintf("{%s}%s%d", s.load.probes.keys[shard], name, n)
	}
	add := func(shard int, name string) answer {
		body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"callback":{"url":%q}}`, id(shard, name), time.Now().Add(10*time.Hour).UnixMilli(), s.receiver.url())
		return victim.client.do("POST", "/v1/topics/"+topic+"/timers", body)
	}
	for _, shard := range led {
		for _, name := range []string{"cancels", "fires"} {
			if a := add(shard, name); a.status != 201 {
				t.Errorf("add: %d %s %v", a.status, a.body, a.err)
			}
		}
	}
	from, i, refuses, leads := time.Now(), 0, 0, true
	free := fill(t, s.disks[victim], freeBytes(t, s.disks[victim])-leftOnDisk)
	poll(t, 20*time.Second, "adds are refused", func() bool {
		i, leads = i+1, false
		for _, shard := range s.view(t).ledBy(victim.name) { // shards may return here
			if !slices.Contains(led, shard) {
				continue
			}
			leads = true
			if a := add(shard, fmt.Sprint("more", i)); a.status == 503 && a.code() == "low_disk" {
				refuses = shard
				return true
			}
		}
		return !leads
	})
	if refuses == 0 {
		free()
		t.Logf("%s has handed over what it led before it noticed", victim.name)
		return nil
	}
	t.Logf("adds refused %v after the disk was full", time.Since(from))
	path := func(name string) string { return timerPath(topic, url.PathEscape(id(refuses, name))) }
	if a := victim.client.do("GET", path("cancels"), ""); a.status != 200 {
		t.Errorf("read: %d %s %v", a.status, a.body, a.err)
	}
	if a := victim.client.do("DELETE", path("cancels"), ""); a.outcome() != "prevented" {
		t.Errorf("cancel: %d %s %v", a.status, a.body, a.err)
	}
	if a := victim.client.do("POST", path("fires")+"/fire", ""); a.status != 200 {
		t.Errorf("fire: %d %s %v", a.status, a.body, a.err)
	}
	poll(t, 10*time.Second, "a timer fires", func() bool { return s.receiver.called(topic, id(refuses, "fires")) > 0 })
	wait(time.Second)
	free()
	poll(t, 20*time.Second, "adds are taken again", func() bool { i++; return add(refuses, fmt.Sprint("more", i)).status == 201 })
	return nil
}

// fillDiskUp leaves no free byte. When the leader's log cannot grow, the leader hands over its
// shards and names the reason; it does not exit. It leads again once there is free space.
func (s *chaosRun) fillDiskUp(t *testing.T) (took []time.Duration) {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	from := time.Now()
	free := fill(t, s.disks[victim], freeBytes(t, s.disks[victim]))
	var last string
	waits := s.handsOver(victim, 20*time.Second, "disk is full", &last)
	if waits {
		took = append(took, time.Since(from))
		took = append(took, s.load.probes.takeover(t, led, time.Now(), takeoverLimit)...)
	} else {
		t.Logf("it had room for 20 s")
	}
	free()
	if !victim.process().alive() {
		t.Fatalf("the process ended with %d: %s", victim.process().code, tail(victim.process().stderr.String(), 500))
	}
	if waits {
		s.leadsAgain(t, victim)
	}
	return took
}

func freeBytes(t testing.TB, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}
