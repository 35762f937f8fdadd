package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	reshardFrom = 4
	reshardKept = 400 // timers that are listed all the time

	// reshardLimit is far more than the doublings should take, kills included.
	reshardLimit = 3 * time.Minute
)

// growing is the part of a view that says how far the number of shards is.
type growing struct {
	Total      int `json:"shards_total"`
	Resharding *struct {
		From  int    `json:"from"`
		To    int    `json:"to"`
		Done  int    `json:"done"`
		Shard int    `json:"shard"`
		Waits string `json:"waits_for"`
	} `json:"resharding"`
	Shards []shardView `json:"shards"`
}

// grows asks members in turn how far the number of shards is; false: none answers.
func (c *cluster) grows() (g growing, ok bool) {
	for _, m := range c.running() {
		if a := m.client.do("GET", "/v1/cluster", ""); a.status == 200 && json.Unmarshal(a.body, &g) == nil && g.Total > 0 {
			return g, true
		}
	}
	return g, false
}

// TestClusterResharding: three nodes with 4 shards become 8, and in long runs 16, under 300 adds and
// fires a second, while the leader of the shard that is being divided is killed several times. No
// timer is lost, early, or called twice but for what was in flight at the kills; every listing sees
// each timer once, under its uid.
func TestClusterResharding(t *testing.T) {
	random := seeded(t)
	to, kills := 2*reshardFrom, 3
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		to, kills = 4*reshardFrom, 8
	}
	c := foundOf(t, reshardFrom, 3, loopbackMembers(t, 3))
	c.rate = 300
	rcv := newReceiver(t, slowNowAndThen())
	load := loadOn(t, c, rcv, random)
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	lists := c.watchListing(t, "kept", len(kept))
	wait(time.Second)

	v := &verdict{}
	begin := time.Now()
	c.eventually(t, "POST", "/v1/cluster/shards", fmt.Sprintf(`{"shards":%d}`, to))
	open := c.killDividing(t, v, rcv, random, kills, to)
	took := time.Since(begin)
	c.shards = to
	c.awaitHealthy(t)
	waits := spreadOf(load.probes.pauses(begin))
	wait(time.Second)
	load.rounds = len(v.crashes)
	load.finish(t, v)
	n := lists.end(t)
	load.checkDuplicates(t, v, open)
	c.checkKept(t, "kept", kept)
	c.checkAgreed(t, c.all())
	t.Logf("%d → %d shards in %v with %d kills of the leader of a shard that was being divided; %d timers, %d arrivals, %d duplicates (%d calls open at the kills); "+
		"%d listings, each whole; longest wait for an add, by shard: %v", reshardFrom, to, took.Round(time.Millisecond), len(v.crashes), load.ledger.size(), len(v.log), v.duplicates, open, n, waits)
}

// killDividing kills the leader of the shard that is being divided, again and again, and starts it
// again, until there are so many shards.
func (c *cluster) killDividing(t *testing.T, v *verdict, rcv *receiver, random *rand.Rand, kills, to int) (open int64) {
	t.Helper()
	last := 0
	for end := time.Now().Add(reshardLimit); ; wait(10 * time.Millisecond) {
		g, ok := c.grows()
		if ok && g.Resharding == nil && g.Total == to {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not %d shards within %v: %+v", to, reshardLimit, g)
		}
		if !ok || g.Resharding == nil || len(v.crashes) == kills || g.Resharding.Shard == 0 || g.Resharding.Shard == last {
			continue
		}
		var victim *member
		for _, m := range c.running() {
			if len(g.Shards) >= g.Resharding.Shard && g.Shards[g.Resharding.Shard-1].Leader == m.name {
				victim = m
			}
		}
		if victim == nil || len(c.running()) < len(c.all()) {
			continue
		}
		last = g.Resharding.Shard
		wait(time.Duration(random.IntN(150)) * time.Millisecond)
		killed := crashNow(victim.process(), rcv)
		v.crashes, open = append(v.crashes, killed), open+killed.open
		wait(time.Duration(200+random.IntN(600)) * time.Millisecond)
		c.start(t, victim)
		victim.process().awaitReady(t)
	}
	if len(v.crashes) == 0 {
		t.Error("no leader was killed: what is to be tested was not")
	}
	return open
}

// listings looks through all members at a topic whose timers stay, again and again.
type listings struct {
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	n    int
	bad  []string
}

func (c *cluster) watchListing(t *testing.T, topic string, want int) *listings {
	t.Helper()
	l := &listings{stop: make(chan struct{})}
	uids := map[string]string{}
	for _, tm := range c.running()[0].client.all(t, topic) {
		uids[tm.ID] = tm.UID
	}
	if len(uids) != want {
		t.Fatalf("%d timers are listed, want %d", len(uids), want)
	}
	for _, m := range c.all() {
		l.done.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if a := m.client.do("GET", "/v1/topics/"+topic+"/timers?limit=1000&payload=false", ""); a.status == 200 {
					l.look(m.name, a, uids)
				}
			}
		})
	}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stop != nil {
			close(l.stop)
			l.stop = nil
		}
	})
	return l
}

// look holds one listing against the timers that there are.
func (l *listings) look(member string, a answer, uids map[string]string) {
	var page struct{ Timers []timer }
	err := json.Unmarshal(a.body, &page)
	seen := map[string]bool{}
	fault := ""
	for _, tm := range page.Timers {
		if seen[tm.ID] {
			fault = tm.ID + " is listed twice"
		} else if tm.UID != uids[tm.ID] {
			fault = fmt.Sprintf("%s has the uid %s, and had %s", tm.ID, tm.UID, uids[tm.ID])
		}
		seen[tm.ID] = true
	}
	if err != nil || fault == "" && len(seen) != len(uids) {
		fault = fmt.Sprintf("%d of %d timers are listed (%v)", len(seen), len(uids), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; fault != "" {
		l.bad = append(l.bad, fmt.Sprintf("%s at %s: %s", member, a.sent.Format(clockFormat), fault))
	}
}

// end ends it, and returns how many listings there were.
func (l *listings) end(t *testing.T) int {
	t.Helper()
	poll(t, formLimit, "the timers are listed", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.n > 0
	})
	l.mu.Lock()
	close(l.stop)
	l.mu.Unlock()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = nil
	for i, bad := range l.bad {
		if i == 10 {
			t.Errorf("%d of %d listings are wrong", len(l.bad), l.n)
			break
		}
		t.Error(bad)
	}
	return l.n
}

// TestClusterReshardingAlone: one node doubles its shards by carillon ctl shards --wait, is killed in
// the middle, and goes on after its start. The command waits for it.
func TestClusterReshardingAlone(t *testing.T) {
	const many = 20_000
	c := foundOf(t, reshardFrom, 1, loopbackMembers(t, 1))
	m := c.all()[0]
	c.addMany(t, "many", many)
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	lists := c.watchListing(t, "kept", len(kept))
	var out, errOut bytes.Buffer
	ctl := exec.Command(binary, "ctl", "--url", "http://"+m.http, "shards", "8", "--wait")
	ctl.Env, ctl.Stdout, ctl.Stderr = cleanEnv(), &out, &errOut
	if err := ctl.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- ctl.Wait() }()
	poll(t, formLimit, "a shard is divided", func() bool {
		g, ok := c.grows()
		return ok && g.Resharding != nil && g.Resharding.Done >= 1
	})
	m.process().kill()
	wait(300 * time.Millisecond)
	c.start(t, m)
	select {
	case err := <-ended:
		if err != nil || !strings.HasSuffix(out.String(), "shards: 8\n") {
			t.Fatalf("ctl shards: %v, %q, %q", err, out.String(), errOut.String())
		}
	case <-time.After(reshardLimit):
		_ = ctl.Process.Kill()
		t.Fatalf("ctl shards has not ended: %q, %q", out.String(), errOut.String())
	}
	c.shards = 8
	c.awaitHealthy(t)
	lists.end(t)
	c.checkKept(t, "kept", kept)
	c.checkCount(t, "many", many)
	if _, text := tool(t, 1, "ctl", "--url", "http://"+m.http, "shards", "12"); !strings.Contains(text, "bad_shards") {
		t.Errorf("12 of 8 shards: %q", text)
	}
}

// TestBackupWhileShardsDouble: backups that are made before, in and after each stage of a doubling
// have every timer once. What is restored of them goes on doubling, and ends with as many shards.
func TestBackupWhileShardsDouble(t *testing.T) {
	const many = 30_000
	c := foundOf(t, reshardFrom, 1, loopbackMembers(t, 1))
	m := c.all()[0]
	url := "http://" + m.http
	c.addMany(t, "many", many)
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	uids := map[string]string{}
	for _, tm := range m.client.all(t, "kept") {
		uids[tm.ID] = tm.UID
	}
	m.client.must(t, 202, "POST", "/v1/cluster/shards", `{"shards":8}`)
	dir := t.TempDir()
	var files []string
	for stage := 0; stage <= 3; stage++ {
		poll(t, formLimit, "the next shard is divided", func() bool {
			g, ok := c.grows()
			return ok && (g.Resharding == nil || g.Resharding.Done >= stage)
		})
		file := filepath.Join(dir, fmt.Sprintf("stage%d.backup", stage))
		tool(t, 0, "ctl", "--url", url, "backup", file)
		files = append(files, file)
	}
	grown := 0
	for i, file := range files {
		back := loopbackMembers(t, 1)
		out, _ := tool(t, 0, "restore", "--from", file, "--data", back[0].dir, "--name", back[0].name)
		again := &cluster{members: back, shards: 8}
		again.start(t, back[0])
		back[0].process().awaitReady(t)
		if g, ok := again.grows(); ok && g.Resharding != nil {
			grown++
			t.Logf("stage %d: the restored cluster goes on at %d of %d: %s", i, g.Resharding.Done, g.Resharding.To-g.Resharding.From, strings.TrimSpace(out))
		}
		lists := again.watchListing(t, "kept", len(kept))
		poll(t, formLimit, "the restored cluster has all shards", func() bool {
			g, ok := again.grows()
			return ok && g.Resharding == nil && g.Total == 8
		})
		again.awaitHealthy(t)
		lists.end(t)
		again.checkKept(t, "kept", kept)
		again.checkCount(t, "many", many)
		for _, tm := range back[0].client.all(t, "kept") {
			if tm.UID != uids[tm.ID] {
				t.Errorf("stage %d: %s has the uid %s, and had %s", i, tm.ID, tm.UID, uids[tm.ID])
				break
			}
		}
		back[0].process().kill()
	}
	if grown == 0 {
		t.Log("no backup was made in the middle: the machine was too slow, or too quick")
	}
}
