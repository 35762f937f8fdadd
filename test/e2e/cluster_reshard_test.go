package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
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

// TestClusterResharding: three nodes with 4 shards become 8, and in long runs 16, under 300 adds
// and fires a second, while the leader of the shard that is being divided is killed several times.
// No timer is lost, early, or called twice but for what was in flight at the kills; every listing
// sees each timer once, under its uid.
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

// TestClusterReshardingAlone: one node doubles its shards by carillon ctl shards --wait, is killed
// in the middle, and goes on after its start. The command waits for it.
func TestClusterReshardingAlone(t *testing.T) {
	t.Parallel()
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
	for _, more := range [][]string{nil, {"--wait"}} {
		if _, text := tool(t, 1, append([]string{"ctl", "--url", "http://" + m.http, "shards", "12"}, more...)...); !strings.Contains(text, "bad_shards") {
			t.Errorf("12 of 8 shards: %q", text)
		}
	}
}

// TestBackupWhileShardsDouble: backups that are made before, in and after each stage of a doubling
// have every timer once. What is restored of them goes on doubling, and ends with as many shards.
func TestBackupWhileShardsDouble(t *testing.T) {
	t.Parallel()
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

// TestWhatStaysWhenShardsDouble: what clients know of timers stays as it was when the number of
// shards has doubled twice: ids, uids, versions, ends and attempts, repeated adds, leases of
// consumers, dead letters, cursors, filters.
func TestWhatStaysWhenShardsDouble(t *testing.T) {
	t.Parallel()
	const many = 40
	rcv := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.Header.Get("Carillon-Topic") == "dead" {
			w.WriteHeader(500)
		}
	})
	c := foundOf(t, reshardFrom, 1, loopbackMembers(t, 1))
	m := c.all()[0]
	client := m.client
	client.topic(t, "ended", rcv.url(), "")
	client.topic(t, "dead", rcv.url(), `,"retry":{"max_attempts":1},"breaker":{"failures":10000}`)
	client.topic(t, "waits", rcv.url(), "")
	client.must(t, 201, "PUT", "/v1/topics/pulled", `{"delivery":"pull"}`)
	atMs := time.Now().UnixMilli()
	add := func(topic string, i int) string {
		if topic == "waits" {
			return fmt.Sprintf(`{"id":"t%d","at_ms":%d,"payload":%d,"labels":["l%d"]}`, i, atMs+3_600_000, i, i%2)
		}
		return fmt.Sprintf(`{"id":"t%d","at_ms":%d,"payload":%d}`, i, atMs, i)
	}
	before := map[string]timer{}
	for i := range many {
		for _, topic := range []string{"ended", "dead", "waits", "pulled"} {
			client.must(t, 201, "POST", "/v1/topics/"+topic+"/timers", add(topic, i))
		}
	}
	look := func() map[string]timer {
		all := map[string]timer{}
		for _, topic := range []string{"ended", "dead", "waits"} {
			for i := range many {
				tm := client.must(t, 200, "GET", timerPath(topic, fmt.Sprint("t", i)), "").timer(t)
				all[topic+tm.ID] = tm
			}
		}
		return all
	}
	poll(t, formLimit, "what is due has ended", func() bool {
		before = look()
		for name, tm := range before {
			if !strings.HasPrefix(name, "waits") && tm.State != "done" && tm.State != "dead" {
				return false
			}
		}
		return true
	})
	calls := rcv.count()
	var pulled struct {
		Timers []struct {
			Receipt string `json:"receipt"`
		} `json:"timers"`
	}
	client.must(t, 200, "POST", "/v1/topics/pulled/pull", fmt.Sprintf(`{"max":%d,"lease":"5m"}`, many)).decode(t, &pulled)
	if len(pulled.Timers) != many {
		t.Fatalf("%d timers are pulled", len(pulled.Timers))
	}
	var page struct {
		Timers []timer `json:"timers"`
		Next   string  `json:"next_cursor"`
	}
	client.must(t, 200, "GET", "/v1/topics/waits/timers?limit=7", "").decode(t, &page)

	tool(t, 0, "ctl", "--url", "http://"+m.http, "shards", "16", "--wait")
	c.shards = 16
	c.awaitHealthy(t)

	for name, now := range look() {
		was := before[name]
		if now.UID != was.UID || now.Version != was.Version || now.State != was.State || now.Attempts != was.Attempts || now.FiredMs != was.FiredMs || now.DueMs != was.DueMs {
			t.Errorf("%s was %+v and is %+v", name, was, now)
		}
	}
	// A listing goes on at its cursor.
	seen := map[string]bool{}
	for {
		for _, tm := range page.Timers {
			if seen[tm.ID] {
				t.Errorf("%s is listed twice", tm.ID)
			}
			seen[tm.ID] = true
		}
		if page.Next == "" {
			break
		}
		next := page.Next
		page.Timers, page.Next = nil, ""
		client.must(t, 200, "GET", "/v1/topics/waits/timers?limit=7&cursor="+next, "").decode(t, &page)
	}
	if len(seen) != many {
		t.Errorf("%d timers are listed", len(seen))
	}
	// An add that is repeated finds what ended, and is not made again.
	for i := range many {
		client.must(t, 200, "POST", "/v1/topics/ended/timers", add("ended", i))
	}
	var past struct {
		Entries []struct {
			timer
			Log []attempt `json:"attempt_log"`
		} `json:"entries"`
	}
	client.must(t, 200, "GET", "/v1/topics/ended/history?limit=1000", "").decode(t, &past)
	if len(past.Entries) != many {
		t.Errorf("the history has %d timers", len(past.Entries))
	}
	for i := range past.Entries {
		e := &past.Entries[i]
		if e.UID != before["ended"+e.ID].UID || len(e.Log) != 1 {
			t.Errorf("the history has %+v with %d attempts, and it was %+v", e.timer, len(e.Log), before["ended"+e.ID])
		}
	}
	client.must(t, 200, "GET", "/v1/topics/ended/history?id=t7", "").decode(t, &past)
	if len(past.Entries) != 1 {
		t.Errorf("the history of t7 has %d entries", len(past.Entries))
	}
	// Leases are prolonged and acknowledged.
	var receipts []string
	for _, tm := range pulled.Timers {
		receipts = append(receipts, fmt.Sprintf("%q", tm.Receipt))
	}
	list := strings.Join(receipts, ",")
	for _, call := range []string{`/v1/extend {"receipts":[%s],"lease":"6m"}`, `/v1/ack {"receipts":[%s]}`} {
		path, body, _ := strings.Cut(call, " ")
		a := client.must(t, 200, "POST", path, fmt.Sprintf(body, list))
		if n := strings.Count(string(a.body), `"status":200`); n != many {
			t.Errorf("%s: %d of %d: %s", path, n, many, a.body)
		}
	}
	// Dead letters are found by uid and by filter.
	var uids []string
	for i := range many / 2 {
		uids = append(uids, fmt.Sprintf("%q", before[fmt.Sprint("deadt", i)].UID))
	}
	changed := func(want int, path, body string) {
		t.Helper()
		a := client.must(t, 200, "POST", path, body)
		if !strings.Contains(string(a.body), fmt.Sprintf(`"changed":%d,`, want)) {
			t.Errorf("%s: %s, want %d changed", path, a.body, want)
		}
	}
	changed(many/2, "/v1/topics/dead/dead/purge", `{"uids":[`+strings.Join(uids, ",")+`]}`)
	changed(many/2, "/v1/topics/dead/dead/purge", `{"all":true}`)
	// A version matches, and filters find every timer once.
	client.must(t, 200, "PATCH", timerPath("waits", "t3"), `{"priority":9}`, "If-Match", `"1"`)
	client.must(t, 412, "PATCH", timerPath("waits", "t3"), `{"priority":8}`, "If-Match", `"1"`)
	changed(many/2, "/v1/topics/waits/reschedule", `{"filter":{"label":"l1"},"shift":"1h"}`)
	changed(many, "/v1/topics/waits/cancel", `{"all":true}`)
	if n := rcv.count(); n != calls {
		t.Errorf("%d calls were made since", n-calls)
	}
}

// TestClusterReshardingWithoutANode: shards double while a node is away. It comes back, gets its
// replicas of the new shards from their leaders, and is as good as the others: the cluster then
// does without another one.
func TestClusterReshardingWithoutANode(t *testing.T) {
	t.Parallel()
	c := foundOf(t, reshardFrom, 3, loopbackMembers(t, 3))
	away, other := c.all()[0], c.all()[1]
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	away.process().kill()
	c.eventually(t, "POST", "/v1/cluster/shards", `{"shards":8}`)
	poll(t, reshardLimit, "two nodes have divided all shards", func() bool {
		g, ok := c.grows()
		return ok && g.Resharding == nil && g.Total == 8
	})
	for id, due := range c.keepTimers(t, "kept", reshardKept, reshardKept) {
		kept[id] = due
	}
	c.shards = 8
	c.start(t, away)
	c.awaitHealthy(t)
	c.checkAgreed(t, c.all())
	other.process().kill()
	for id, due := range c.keepTimers(t, "kept", 2*reshardKept, reshardKept) {
		kept[id] = due
	}
	c.checkKept(t, "kept", kept)
}

// TestConsoleGrowsShards: the cluster page shows what more shards need, lets their number grow, and
// then has them.
func TestConsoleGrowsShards(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir(), "--shards", "4")
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/cluster")
	b.click("More shards")
	b.sees("More shards?", "There are 4 shards.", "The number of shards cannot be reduced later.")
	b.choose("8")
	b.click("Preview")
	b.sees("This writes and sends about", "Afterwards, ")
	b.click("Grow")
	b.sees("The number of shards grows to 8.")
	b.awaitTrue("the new shards are there", `document.querySelectorAll('table')[1].rows.length === 9`)
	b.awaitTrue("nothing grows any more", `!/The cluster grows from/.test(document.body.innerText)`)
	b.content()
}

// TestClusterReshardingAsNodesComeAndGo: while shards double twice a node joins, and another is
// drained. Both are done, and the new shards are spread over the nodes that stay.
func TestClusterReshardingAsNodesComeAndGo(t *testing.T) {
	needTime(t)
	members := loopbackMembers(t, 4)
	c := foundOf(t, reshardFrom, 3, members[:3])
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	lists := c.watchListing(t, "kept", len(kept))
	c.eventually(t, "POST", "/v1/cluster/shards", fmt.Sprintf(`{"shards":%d}`, 4*reshardFrom))
	c.shards = 4 * reshardFrom
	c.joinWithin(t, members[3], reshardLimit)
	c.eventually(t, "POST", "/v1/cluster/nodes/"+members[0].name+"/drain", "{}")
	var why string
	if !holdsWithinBy(lookEvery, reshardLimit, func() bool {
		v, err := members[3].view()
		if err != nil {
			return false
		}
		if why = v.settledOn(members[1:], 3); why == "" && v.stateOf(members[0].name) != "drained" {
			why = members[0].name + " is not drained"
		}
		g, ok := c.grows()
		return why == "" && ok && g.Resharding == nil
	}) {
		t.Fatal(why)
	}
	lists.end(t)
	c.checkKept(t, "kept", kept)
}
