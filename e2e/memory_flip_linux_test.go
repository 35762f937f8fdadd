package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// walkLimit is how long a process may take to check its whole memory. It does so about every half
// minute if it gets enough processor time.
const walkLimit = 3 * time.Minute

// needMemory skips a test that writes the memory of another process.
func needMemory(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: the memory of another process cannot be written")
	}
}

// flipBit flips a bit in each copy of text in the memory of the stopped process. It returns the
// number of copies.
func flipBit(t testing.TB, p *process, text string) (places int) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	defer p.signal(t, syscall.SIGCONT)
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.cmd.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Skipf("the memory of another process cannot be written here: %v", err)
	}
	defer mem.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); n != 3 || !strings.HasPrefix(mode, "rw") {
			continue
		}
		b := make([]byte, to-from)
		n, _ := mem.ReadAt(b, from) // some kernel mappings cannot be read
		for at := 0; ; at++ {
			next := bytes.Index(b[at:n], []byte(text))
			if next < 0 {
				break
			}
			at += next
			half := at + len(text)/2
			if _, err := mem.WriteAt([]byte{b[half] ^ 1}, from+int64(half)); err != nil {
				t.Fatal(err)
			}
			places++
		}
	}
	return places
}

// struckTimer adds a timer with a unique text, and 64 others.
func struckTimer(t testing.TB, c *client, rec *receiver) (text string) {
	t.Helper()
	text = fmt.Sprintf("in-memory-%x-of-one-process", time.Now().UnixNano())
	c.must(t, 201, "PUT", "/v1/topics/t", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.url()))
	c.must(t, 201, "PUT", "/v1/topics/t/timers/struck", `{"delay":"24h","payload":"`+text+`"}`)
	for i := range 64 {
		c.must(t, 201, "PUT", fmt.Sprint("/v1/topics/t/timers/other", i), `{"delay":"24h","payload":1}`)
	}
	return text
}

// isRight checks that the timer reads as written, fires it, and checks that each call has its
// payload.
func isRight(t testing.TB, c *client, rec *receiver, text string) {
	t.Helper()
	want := `"` + text + `"`
	if got := c.read(t, "t", "struck"); string(got.Payload) != want || got.State != "scheduled" {
		t.Errorf("read %s, %s", got.Payload, got.State)
	}
	c.must(t, 200, "POST", "/v1/topics/t/timers/struck/fire", "")
	poll(t, 20*time.Second, "it is called", func() bool { return rec.called("t", "struck") > 0 })
	sum := fnv.New64a()
	sum.Write([]byte(want))
	for _, a := range rec.of("t", "struck") {
		if a.sum != sum.Sum64() {
			t.Errorf("attempt %d was made with another payload", a.attempt)
		}
	}
}

var faultLine = regexp.MustCompile(`memory has changed by itself.* shard=(\d+)`)

// TestFlippedBitInTheMemoryOfAProcess: a bit of a timer flips in the memory of a follower, then of
// a leader, or the other way round. The process finds the fault and takes the state of another
// replica, and no process exits. Then the timer is called as written. (Before that a leader may
// call with the altered payload.)
func TestFlippedBitInTheMemoryOfAProcess(t *testing.T) {
	t.Parallel()
	needCluster(t)
	needMemory(t)
	rec := newReceiver(t, nil)
	c := newCluster(t, 3)
	text := struckTimer(t, c.members[0].client, rec)
	led := func(shard string) string {
		for _, s := range c.view(t).Shards {
			if fmt.Sprint(s.Shard) == shard {
				return s.Leader
			}
		}
		return ""
	}
	// strike flips the bit and waits until the cluster is healthy again.
	strike := func(victim *member) (shard string) {
		p := victim.process()
		before := len(p.stderr.String())
		said := func() string { return p.stderr.String()[before:] }
		if n := flipBit(t, p, text); n == 0 {
			t.Fatalf("%s does not have the timer in its memory", victim.name)
		}
		poll(t, walkLimit, victim.name+" finds its fault", func() bool { return faultLine.MatchString(said()) })
		poll(t, walkLimit, victim.name+" has another's state", func() bool { return strings.Contains(said(), "has another's state in the place of its own") })
		c.awaitHealthy(t)
		return faultLine.FindStringSubmatch(said())[1]
	}
	leaders := c.view(t)
	shard := strike(c.members[0])
	roles := map[bool]bool{}
	for _, s := range leaders.Shards {
		if fmt.Sprint(s.Shard) == shard {
			roles[s.Leader == c.members[0].name] = true
		}
	}
	for _, m := range c.members {
		if leads := led(shard) == m.name; !roles[leads] {
			roles[leads] = true
			strike(m)
		}
	}
	if len(roles) != 2 {
		t.Errorf("a leader and a follower were to be struck: %v", roles)
	}
	for _, m := range c.members {
		if !m.process().alive() {
			t.Errorf("%s has ended", m.name)
		}
		if got := m.process().gauge(t, "carillon_replica_faults"); got != "0" {
			t.Errorf("%s has %s faults", m.name, got)
		}
	}
	isRight(t, c.members[0].client, rec, text)
}

// TestFlippedBitInTheMemoryOfANodeAlone: without another replica the process exits. Its disk has
// the right state.
func TestFlippedBitInTheMemoryOfANodeAlone(t *testing.T) {
	t.Parallel()
	needCluster(t)
	needMemory(t)
	rec, dir := newReceiver(t, nil), t.TempDir()
	p := serve(t, dir)
	text := struckTimer(t, newClient(p), rec)
	if n := flipBit(t, p, text); n == 0 {
		t.Fatal("the timer is not in its memory")
	}
	if code := p.awaitExit(t, walkLimit); code == 0 || !faultLine.MatchString(p.stderr.String()) {
		t.Errorf("it ends with %d: %s", code, p.stderr)
	}
	isRight(t, newClient(serve(t, dir)), rec, text)
}
