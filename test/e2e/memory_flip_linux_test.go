package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
	poll(t, patience, "it is called", func() bool { return rec.called("t", "struck") > 0 })
	sum := fnv.New64a()
	sum.Write([]byte(want))
	for _, a := range rec.of("t", "struck") {
		if a.sum != sum.Sum64() {
			t.Errorf("attempt %d was made with another payload", a.attempt)
		}
	}
}

// changeStruck changes the timer, so that each replica takes its old content out of its sums. A
// process that was stopped for seconds may have lost its peers: its first answers may be 503 then.
func (c *cluster) changeStruck(t testing.TB, priority int) {
	t.Helper()
	c.eventually(t, "PATCH", "/v1/topics/t/timers/struck", fmt.Sprintf(`{"priority":%d}`, priority))
}

var (
	wrongLine   = regexp.MustCompile(`this replica's state is wrong.* shard=(\d+)`)
	damagedLine = regexp.MustCompile(`shard (\d+): the state in memory has changed by itself`)
)

// TestFlippedBitInTheMemoryOfAProcess: a bit of a timer flips in the memory of a follower, then of a
// leader, or the other way round, and the timer is changed. The replica has another state than the
// others then, and is replaced by another on the same node. If a snapshot is due before the states
// are compared, the process exits instead, and is started again. Then the timer is called as written.
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
	struck := 0
	// strike flips the bit and waits until the cluster is healthy again.
	strike := func(victim *member) (shard string) {
		p := victim.process()
		before := len(p.stderr.String())
		said := func() string { return p.stderr.String()[before:] }
		if n := flipBit(t, p, text); n == 0 {
			t.Fatalf("%s does not have the timer in its memory", victim.name)
		}
		struck++
		c.changeStruck(t, struck)
		found := func() []string {
			if line := damagedLine.FindStringSubmatch(said()); line != nil && !p.alive() {
				return line
			}
			return wrongLine.FindStringSubmatch(said())
		}
		poll(t, time.Minute, victim.name+" finds its state wrong", func() bool { return found() != nil })
		shard = found()[1]
		poll(t, 2*time.Minute, victim.name+" has another replica, or has ended", func() bool {
			return !p.alive() || strings.Contains(string(victim.client.do("GET", "/metrics", "").body), "\ncarillon_replica_faults 0\n")
		})
		if !p.alive() {
			t.Logf("a snapshot has ended %s", victim.name)
			c.start(t, victim)
		}
		c.awaitHealthy(t)
		return shard
	}
	leaders := c.view(t)
	shard := strike(c.members[0])
	roles := map[bool]bool{}
	for _, s := range leaders.Shards {
		if fmt.Sprint(s.Shard) == shard {
			roles[s.Leader == c.members[0].name] = true
		}
	}
	// The node that was struck is the last choice: it asks for one more replica a minute later.
	for _, m := range slices.Concat(c.members[1:], c.members[:1]) {
		if leads := led(shard) == m.name; !roles[leads] {
			roles[leads] = true
			strike(m)
		}
	}
	if len(roles) != 2 {
		t.Errorf("a leader and a follower were to be struck: %v", roles)
	}
	isRight(t, c.members[0].client, rec, text)
}

// TestFlippedBitInTheMemoryOfANodeAlone: a snapshot shows that the memory is not what was applied. The
// process exits so that it is started again. Its disk has the right state.
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
	newClient(p).do("POST", "/v1/backup", "") // has snapshots written
	if code := p.awaitExit(t, time.Minute); code != 1 || !strings.Contains(p.stderr.String(), "the state in memory has changed by itself") {
		t.Errorf("it ends with %d: %s", code, p.stderr)
	}
	isRight(t, newClient(serve(t, dir)), rec, text)
}
