package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// manyReceivers is how many receivers the tests have.
func manyReceivers(t testing.TB) int {
	t.Helper()
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		return setting(t, "CARILLON_E2E_RECEIVERS", 100_000)
	}
	return setting(t, "CARILLON_E2E_RECEIVERS", 5_000)
}

const (
	// quietSlack is by how much the timers of one instant may make another topic's p99 lateness worse
	// on a machine that does nothing else, as CARILLON_E2E_LONG promises. The goal, which is logged, is
	// a tenth of it. busySlack is for a machine that runs other tests meanwhile: no shard stands still.
	quietSlack = 50 * time.Millisecond
	busySlack  = time.Second

	// herdTries is how often a herd is let loose at most: other programs on the machine may spoil
	// the lateness of one.
	herdTries = 3
)

// herd is what a run of the load tester with many receivers found.
type herd struct {
	Fired     int64 `json:"fired"`
	Added     int64 `json:"added"`
	Lost      int64 `json:"lost"`
	Early     int64 `json:"early"`
	Duplicate int64 `json:"duplicate"`
	Many      struct {
		DrainedSeconds float64 `json:"drained_seconds"`
		Undrained      int64   `json:"undrained"`
	} `json:"many_receivers"`
	Started time.Time `json:"started"`
}

// herdDelay is how long after its start a herd's instant is: time to add it, and some of quiet.
func herdDelay(n int) time.Duration {
	return 4*time.Second + time.Duration(n)*100*time.Microsecond
}

// others is another topic, whose timers are due at even distances and go to a receiver in the test's
// own process: in that of the load tester, which takes all the herd's calls, they would wait for
// each other.
type others struct {
	rcv   *receiver
	topic string
	from  time.Time
	n     int
}

const (
	othersApart = 10 * time.Millisecond
	othersFor   = 90 * time.Second // more than a herd may take
	othersGrace = 15 * time.Second

	// herdFelt is how long before its instant a herd may be felt: leases are taken ahead.
	herdFelt = 500 * time.Millisecond
)

func addOthers(t testing.TB, c *client, rcv *receiver, topic string, n int) *others {
	t.Helper()
	o := &others{rcv: rcv, topic: topic, from: time.UnixMilli(time.Now().Add(2 * time.Second).UnixMilli()), n: int((herdDelay(n) + othersFor) / othersApart)}
	c.topic(t, topic, rcv.url(), "")
	ops := make([]string, o.n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"o%d","at_ms":%d}`, i, o.due(i).UnixMilli())
	}
	for i, status := range c.batch(t, topic, ops) {
		if status != 201 {
			t.Fatalf("add %d of the other topic: %d", i, status)
		}
	}
	return o
}

func (o *others) due(i int) time.Time { return o.from.Add(time.Duration(i) * othersApart) }

// lateness is that of the timers due in a span of time, and how many of these did not arrive.
func (o *others) lateness(from, to time.Time) (s spread, missing int) {
	var late []time.Duration
	for _, a := range o.rcv.arrivals() {
		if due := time.UnixMilli(a.dueMs); a.topic == o.topic && !due.Before(from) && due.Before(to) {
			late = append(late, a.lateness())
		}
	}
	due := 0
	for i := range o.n {
		if at := o.due(i); !at.Before(from) && at.Before(to) {
			due++
		}
	}
	return spreadOf(late), due - len(late)
}

// letLoose runs the load tester: n timers of one instant to as many receivers, which do what is
// said.
func letLoose(t testing.TB, urls []string, n int, do, topic string) herd {
	t.Helper()
	delay := herdDelay(n)
	args := []string{"loadtest", "fire", "--receivers", strconv.Itoa(n), "--receivers-do", do, "--same-instant", "--topic", topic, "--json", "-", "-q", "--delay", delay.String()}
	for _, url := range urls {
		args = append(args, "--url", url)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = cleanEnv()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // The report has what was wrong.
	var h herd
	if err := json.Unmarshal(out.Bytes(), &h); err != nil {
		t.Fatalf("%v: no report: %v\n%s", cmd.Args, err, errOut.String())
	}
	return h
}

// faults are what a herd must not do, whatever the machine does.
func (h herd) faults(n int, do string, dead int64) (list []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	inVain := map[string]int{"refuse": n, "hang": n, "half": deadOfHalf(n)}[do]
	check(h.Added == int64(n), "%d timers were added, want %d", h.Added, n)
	check(h.Fired >= int64(n-inVain), "%d timers arrived, want %d that are answered", h.Fired, n-inVain)
	check(h.Lost+h.Early+h.Duplicate == 0, "lost %d, early %d, duplicate %d", h.Lost, h.Early, h.Duplicate)
	check(h.Many.Undrained == 0, "%d timers were still due after %.0f s", h.Many.Undrained, h.Many.DrainedSeconds)
	check(dead == int64(inVain), "%d dead letters, want %d", dead, inVain)
	return list
}

// deadOfHalf is how many of n receivers refuse or hang where every second one answers, and the
// others refuse, hang and answer slowly in turn.
func deadOfHalf(n int) (dead int) {
	for i := range n {
		if i%2 == 1 && i/2%3 < 2 {
			dead++
		}
	}
	return dead
}

// elections is how many elections the nodes have won so far; NaN: a node does not answer.
func elections(clients []*client) (sum float64) {
	for _, c := range clients {
		a := c.do("GET", "/metrics", "")
		_, rest, found := strings.Cut(string(a.body), "\ncarillon_raft_elections_total ")
		text, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if a.status != 200 || !found || err != nil {
			return math.NaN()
		}
		sum += n
	}
	return sum
}

// deadLetters is how many dead letters a topic has, −1: it is not known.
func deadLetters(c *client, topic string) int64 {
	var page struct{ Counts struct{ Dead int64 } }
	a := c.do("GET", "/v1/topics/"+topic, "")
	if a.status != 200 || json.Unmarshal(a.body, &page) != nil {
		return -1
	}
	return page.Counts.Dead
}

// checkHerd lets n timers of one instant loose on as many receivers. All are called, no shard loses
// its leader, and another topic stays on time.
func checkHerd(t *testing.T, clients []*client, n int, do string) {
	var urls []string
	for _, c := range clients {
		urls = append(urls, *c.base.Load())
	}
	rcv := newReceiver(t, nil)
	for try := 1; ; try++ {
		topic := fmt.Sprintf("herd-%s-%d", do, try)
		other := addOthers(t, clients[0], rcv, "other-"+topic, n)
		electedBefore := elections(clients)
		h := letLoose(t, urls, n, do, topic)
		end := time.Now()
		won := elections(clients) - electedBefore
		instant := h.Started.Add(herdDelay(n))
		calm, missingBefore := other.lateness(instant.Add(-3*time.Second), instant.Add(-herdFelt))
		var busy spread
		var missing int
		holdsWithin(othersGrace, func() bool {
			busy, missing = other.lateness(instant.Add(-herdFelt), end)
			return missing == 0
		})
		clients[0].do("DELETE", "/v1/topics/"+other.topic+"?force=true", "")
		t.Logf("%d receivers, %s: called within %.1f s; another topic before: %v; meanwhile: %v; elections %v", n, do, h.Many.DrainedSeconds, calm, busy, won)
		for _, fault := range h.faults(n, do, deadLetters(clients[0], topic)) {
			t.Errorf("%s: %s", do, fault)
		}
		if missing+missingBefore > 0 {
			t.Errorf("%s: %d timers of the other topic did not arrive", do, missing+missingBefore)
		}
		if won != 0 {
			t.Errorf("%s: %v elections were won meanwhile, want none", do, won)
		}
		slack := busySlack
		if os.Getenv("CARILLON_E2E_LONG") != "" {
			slack = quietSlack
		}
		if t.Failed() || busy.p99 <= calm.p99+slack {
			return
		}
		if try == herdTries {
			t.Errorf("%s: another topic's lateness p99 went from %v to %v, want at most %v more", do, calm.p99, busy.p99, slack)
			return
		}
	}
}

var everyDoing = []string{"answer", "refuse", "hang", "slow", "half"}

// TestManyReceivers: timers of one instant to as many receivers, on one node.
func TestManyReceivers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := manyReceivers(t)
	doings := []string{"answer", "half"} // half has some of all
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		doings = everyDoing
	}
	for _, do := range doings {
		t.Run(do, func(t *testing.T) {
			node := serve(t, t.TempDir())
			checkHerd(t, []*client{newClient(node)}, n, do)
			node.kill()
		})
	}
}

// TestClusterManyReceivers: the same on three nodes with four shards.
func TestClusterManyReceivers(t *testing.T) {
	needCluster(t)
	n := manyReceivers(t)
	doings := []string{"half"}
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		doings = everyDoing
	}
	for _, do := range doings {
		t.Run(do, func(t *testing.T) {
			c := &cluster{members: loopbackMembers(t, 3)}
			var clients []*client
			for _, m := range c.all() {
				c.start(t, m, "--shards", "4", "--replicas", "3", "--bootstrap-expect", "3")
				clients = append(clients, m.client)
			}
			poll(t, formLimit, "all four shards are led, as each node sees it", func() bool {
				return !slices.ContainsFunc(c.all(), func(m *member) bool {
					v, err := m.view()
					return err != nil || !v.Healthy || len(v.Shards) != 4 || m.client.do("GET", "/readyz", "").status != 200
				})
			})
			awaitNoElections(t, clients)
			checkHerd(t, clients, n, do)
			for _, m := range c.all() {
				m.process().kill()
			}
		})
	}
}

// awaitNoElections waits until the leaderships of a young cluster are where they shall be.
func awaitNoElections(t *testing.T, clients []*client) {
	t.Helper()
	last, since := math.NaN(), time.Now()
	calm := holdsWithinBy(lookEvery, formLimit, func() bool {
		now := elections(clients)
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
	if !calm {
		t.Fatalf("leaderships still move after %v", formLimit)
	}
}

// TestCancelOfManyReceivers: one cancel by filter of timers to as many receivers, waiting for their
// time, due while the receivers hang, and due while they refuse.
func TestCancelOfManyReceivers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := manyReceivers(t)
	limit := max(time.Second, 3*time.Second*time.Duration(n)/100_000)
	hanging := hangOnEveryAddress(t)
	cancelAll := func(what string, due time.Time, port int) {
		node := serve(t, t.TempDir())
		defer node.kill()
		c := newClient(node)
		c.http.Timeout = 2 * time.Minute
		ops := make([]string, n)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"add","id":"c%d","at_ms":%d,"callback":{"url":"http://127.%d.%d.%d:%d/","timeout":"1m"}}`,
				i, due.UnixMilli(), 16+i>>16, i>>8&255, i&255, port)
		}
		c.batch(t, "cancelled", ops)
		if time.Until(due) < time.Minute {
			poll(t, time.Minute, "calls have begun", func() bool {
				var page struct{ Counts struct{ Leased int64 } }
				c.must(t, 200, "GET", "/v1/topics/cancelled", "").decode(t, &page)
				return page.Counts.Leased > 0
			})
		}
		begin := time.Now()
		a := c.do("POST", "/v1/topics/cancelled/cancel", `{"filter":{"id_prefix":"c"}}`)
		took := time.Since(begin)
		if a.status != 200 {
			t.Fatalf("%s: cancel: %d %s %v after %v", what, a.status, a.body, a.err, took)
		}
		var got struct{ Matched, Changed, Skipped int64 }
		a.decode(t, &got)
		t.Logf("%s: cancel of %d timers to as many receivers: %v %+v", what, n, took, got)
		if got.Changed+got.Skipped < int64(n) || got.Skipped > 2*2048 {
			t.Errorf("%s: %+v, want %d cancelled but for those whose calls run", what, got, n)
		}
		if took > limit {
			t.Errorf("%s: took %v, want at most %v", what, took, limit)
		}
	}
	soon := func() time.Time { return time.Now().Add(2*time.Second + time.Duration(n)*100*time.Microsecond) }
	cancelAll("waiting", time.Now().Add(time.Hour), hanging)
	cancelAll("due, the receivers hang", soon(), hanging)
	cancelAll("due, the receivers refuse", soon(), discardPort)
}

const discardPort = 9 // where nobody listens

// hangOnEveryAddress takes connections at a port of every address of the machine and never answers.
func hangOnEveryAddress(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			readers.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		readers.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}
