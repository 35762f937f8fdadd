package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toolLimit is far more than a backup or a restore of a million timers takes.
const toolLimit = 10 * time.Minute

// tool runs the binary until it exits, with the wanted exit code, and returns its output.
func tool(t testing.TB, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = cleanEnv()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(toolLimit, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	_ = cmd.Wait() // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Fatalf("carillon %s: exit %d, want %d: %s", strings.Join(args, " "), code, want, errOut.String())
	}
	return out.String(), errOut.String()
}

// drill is the backup of a cluster that is then lost, and the timers that were in it.
type drill struct {
	t        *testing.T
	receiver *receiver
	file     string
	kept     map[string]int64 // timers of topic kept, due in ten hours
	topic    string           // of the timers in between
	between  map[string]int64 // timers that fired after the backup was taken
	done     time.Time        // when the timer of topic done has fired, before the backup
}

// TestRestoreDrill: a cluster of three is killed and its directories are deleted, after timers have
// fired that are still scheduled in the backup. Restored from the backup and grown to three nodes
// again, it has every timer.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	needCluster(t)
	d := &drill{t: t, receiver: newReceiver(t, nil), file: filepath.Join(t.TempDir(), "carillon.backup")}
	d.lose()
	d.refusesDamage()
	d.holds()
	d.firesOrDrops("fire")
	d.firesOrDrops("drop")
}

// lose runs a cluster, backs it up, kills all nodes and deletes their directories.
func (d *drill) lose() {
	t := d.t
	c := newCluster(t, 3)
	timers := 20_000
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		timers = 1_000_000
	}
	client := clientAt("http://"+c.running()[0].http, 30*time.Second)
	client.topic(t, "done", d.receiver.url(), "")
	d.kept = map[string]int64{}
	for n := 0; n < timers; n += 10_000 {
		maps.Copy(d.kept, c.keepTimers(t, "kept", n, 10_000))
	}
	client.must(t, 201, "POST", "/v1/topics/done/timers", `{"id":"before","delay":"0s"}`)
	poll(t, patience, "the timer before the backup has fired", func() bool { return d.receiver.count() == 1 })
	poll(t, patience, "… and has ended", func() bool {
		return client.must(t, 200, "GET", "/v1/topics/done/timers/before", "").timer(t).State == "done"
	})
	d.done = time.Now()
	d.backUp(c, client)
	for _, m := range c.all() {
		m.process().kill()
	}
	for _, m := range c.all() {
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
}

// backUp takes the backup before some timers are due and waits until they have fired. If the backup
// finished too late it tries again with another topic and later timers.
func (d *drill) backUp(c *cluster, client *client) {
	t := d.t
	for ahead := 10 * time.Second; ; ahead *= 3 {
		d.topic = fmt.Sprintf("between%d", int(ahead.Seconds()))
		client.topic(t, d.topic, d.receiver.url(), "")
		due := time.Now().Add(ahead).UnixMilli()
		d.between = map[string]int64{}
		var ops []string
		for i := range 200 {
			id := fmt.Sprintf("b%d", i)
			d.between[id] = due + int64(i)
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":%q,"at_ms":%d,"payload":%d}`, id, d.between[id], i))
		}
		for i, status := range client.batch(t, d.topic, ops) {
			if status != 201 {
				t.Fatalf("%s: status %d", ops[i], status)
			}
		}
		begin := time.Now()
		_, said := tool(t, 0, "ctl", "--url", "http://"+c.running()[2].http, "backup", d.file)
		t.Logf("%s in %v", strings.TrimSpace(said), time.Since(begin))
		inTime := time.Now().UnixMilli() < due
		pollEach(t, 6*time.Minute, "what is due after the backup has fired", func() bool { return d.ended(client, "done") })
		if inTime {
			return
		}
		if ahead > 5*time.Minute {
			t.Fatalf("a backup takes more than %v", ahead)
		}
	}
}

// ended tells whether all timers in between are in a state.
func (d *drill) ended(client *client, state string) bool {
	n := 0
	for _, tm := range client.all(d.t, d.topic) {
		if tm.State == state {
			n++
		}
	}
	return n == len(d.between)
}

// pollEach is poll with 200 ms between tries, because each try is work for the nodes.
func pollEach(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	if !holdsWithinBy(200*time.Millisecond, limit, condition) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

// refusesDamage: restore refuses a damaged file and writes nothing.
func (d *drill) refusesDamage() {
	t := d.t
	whole, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	damaged, dir := filepath.Join(t.TempDir(), "damaged"), filepath.Join(t.TempDir(), "data")
	refuse := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, said := tool(t, 1, "restore", "--from", damaged, "--data", dir)
		if _, err := os.Stat(dir); err == nil || !strings.Contains(said, "damaged at byte") {
			t.Errorf("%s: %v, %s", what, err, said)
		}
	}
	refuse("a cut file", whole[:len(whole)*2/3])
	whole[len(whole)*2/3] ^= 1
	refuse("a flipped bit", whole)
}

// holds restores with the default options and grows to three nodes. Timers that were due after the
// backup do not fire until their topic is resumed.
func (d *drill) holds() {
	t := d.t
	members := loopbackMembers(t, 3)
	out, _ := tool(t, 0, "restore", "--from", d.file, "--data", members[0].dir, "--name", members[0].name)
	if !strings.Contains(out, fmt.Sprintf("overdue %d: ", len(d.between))) || !strings.Contains(out, "TOPIC: "+d.topic+"\n") {
		t.Errorf("restore said: %s", out)
	}
	fired := d.callsByID()
	c := &cluster{members: members[:1:1]}
	c.start(t, members[0])
	c.awaitHealthy(t)
	// Copying a million timers takes a while on a busy machine.
	begin, limit := time.Now(), formLimit
	if len(d.kept) > 100_000 {
		limit = toolLimit
	}
	c.joinWithin(t, members[1], limit)
	c.joinWithin(t, members[2], limit)
	c.awaitSettled(t, members, 3)
	t.Logf("grown from one node to three in %v", time.Since(begin))
	client := clientAt("http://"+members[2].http, 30*time.Second)
	d.checkKept(client)
	c.checkKept(t, d.topic, d.between)
	if a := client.do("GET", "/v1/topics/done/timers/before", ""); time.Since(d.done) < 8*time.Minute && (a.status != 200 || a.timer(t).State != "done") {
		t.Errorf("the timer that had fired before the backup: %d %s", a.status, a.body)
	}
	if now := d.callsByID(); !maps.EqualFunc(now, fired, func(a, b []arrival) bool { return len(a) == len(b) }) {
		t.Error("something was called before it was resumed")
	}
	client.must(t, 200, "POST", "/v1/topics/"+d.topic+"/resume", "")
	d.firedAgain(fired, "hold, and resume")
	for _, m := range members {
		m.process().kill()
	}
}

// checkKept checks the number of kept timers and reads each of them. Of more than 100,000 it reads
// each thousandth, because each page of a listing scans all timers.
func (d *drill) checkKept(client *client) {
	t := d.t
	t.Helper()
	var topic struct {
		Counts map[string]int `json:"counts"`
	}
	client.must(t, 200, "GET", "/v1/topics/kept", "").decode(t, &topic)
	if n := topic.Counts; n["scheduled"] != len(d.kept) || n["leased"]+n["done"]+n["dead"] != 0 {
		t.Errorf("%d timers were kept, there are %v", len(d.kept), n)
	}
	if len(d.kept) > 100_000 {
		for n := 0; n < len(d.kept); n += 1000 {
			id := fmt.Sprint("kept", n)
			if tm := client.must(t, 200, "GET", "/v1/topics/kept/timers/"+id, "").timer(t); tm.State != "scheduled" || tm.DueMs != d.kept[id] {
				t.Errorf("%s is %s, due at %d, want %d", id, tm.State, tm.DueMs, d.kept[id])
			}
		}
		return
	}
	there := map[string]int64{}
	for _, tm := range client.all(t, "kept") {
		there[tm.ID] = tm.DueMs
	}
	if !maps.Equal(there, d.kept) {
		t.Errorf("%d timers were kept, %d are there, and they are not the same", len(d.kept), len(there))
	}
}

// callsByID returns the calls so far for the timers in between.
func (d *drill) callsByID() map[string][]arrival {
	calls := map[string][]arrival{}
	for _, a := range d.receiver.arrivals() {
		if a.topic == d.topic {
			calls[a.timer] = append(calls[a.timer], a)
		}
	}
	return calls
}

// firedAgain waits for one more call of each timer. It must carry the same webhook id and payload
// as the first call, and a fence newer than any that the lost cluster gave.
func (d *drill) firedAgain(before map[string][]arrival, what string) {
	t := d.t
	t.Helper()
	var now map[string][]arrival
	pollEach(t, 60*time.Second, what+": each has fired", func() bool {
		now = d.callsByID()
		for id := range d.between {
			if len(now[id]) <= len(before[id]) {
				return false
			}
		}
		return true
	})
	for id := range d.between {
		first, last := now[id][0], now[id][len(now[id])-1]
		if len(now[id]) != len(before[id])+1 || last.webhook != first.webhook || last.sum != first.sum || last.fence <= first.fence+1<<31 || last.early() {
			t.Fatalf("%s: %s has %d calls, the first %+v, the last %+v", what, id, len(now[id]), first, last)
		}
	}
}

// firesOrDrops restores to a single node with --fired fire or --fired drop.
func (d *drill) firesOrDrops(fired string) {
	t := d.t
	dir := filepath.Join(t.TempDir(), fired)
	tool(t, 0, "restore", "--from", d.file, "--data", dir, "--fired", fired)
	before := d.callsByID()
	node := serve(t, dir)
	c := newClient(node)
	if fired == "fire" {
		d.firedAgain(before, fired)
	}
	d.checkKept(c)
	want := map[string]string{"fire": "done", "drop": "cancelled"}[fired]
	pollEach(t, 60*time.Second, fired+": every timer between is "+want, func() bool { return d.ended(c, want) })
	var topic struct {
		Paused bool `json:"paused"`
	}
	if err := json.Unmarshal(c.must(t, 200, "GET", "/v1/topics/"+d.topic, "").body, &topic); err != nil || topic.Paused {
		t.Errorf("%s: paused %t, %v", fired, topic.Paused, err)
	}
	if now := d.callsByID(); fired == "drop" && !maps.EqualFunc(now, before, func(a, b []arrival) bool { return len(a) == len(b) }) {
		t.Error("something that was dropped was called")
	}
	node.stop(t)
}
