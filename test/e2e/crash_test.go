package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKillDuringStart kills the node at random moments of its first and later starts. The directory
// stays usable.
func TestKillDuringStart(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	random := seeded(t)
	for range 3 { // directories
		dir := t.TempDir()
		for range 8 {
			p := launch(t, nil, dir)
			wait(time.Duration(random.IntN(120)) * time.Millisecond)
			p.kill()
		}
		node := serve(t, dir)
		c := newClient(node)
		c.topic(t, "start", "http://127.0.0.1:9/", "")
		c.must(t, 201, "POST", "/v1/topics/start/timers", `{"id":"x","delay":"1h"}`)
		node.kill()
		for range 8 {
			p := launch(t, nil, dir)
			wait(time.Duration(random.IntN(120)) * time.Millisecond)
			p.kill()
		}
		node = serve(t, dir)
		c.use(node)
		if got := c.read(t, "start", "x"); got.State != "scheduled" || got.Version != 1 {
			t.Errorf("%+v", got)
		}
		node.stop(t)
	}
}

// TestSuspend: after a process was stopped for two seconds it fires the timers that came due
// meanwhile at once, and none early or twice.
func TestSuspend(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	const timers = 300
	rcv := newReceiver(t, nil)
	node := serve(t, t.TempDir())
	c := newClient(node)
	c.topic(t, "nap", rcv.url(), "")
	book := newLedger()
	begin := time.Now().UnixMilli()
	for i := range timers {
		id, payload, due := fmt.Sprintf("z%d", i), fmt.Sprint(i), begin+500+int64(i)*10
		e := book.add(id, 0)
		a := c.must(t, 201, "POST", "/v1/topics/nap/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, id, due, payload))
		book.wrote(e, payload, due, a)
	}
	poll(t, patience, "some have fired", func() bool { return rcv.count() > 20 })
	node.signal(t, syscall.SIGSTOP)
	wait(2 * time.Second)
	node.signal(t, syscall.SIGCONT)
	woken := time.Now()
	poll(t, patience, "all have fired", func() bool { return rcv.answered() >= timers })
	poll(t, patience, "all are done", func() bool {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/nap/timers?limit=1", "").decode(t, &page)
		return len(page.Timers) == 0
	})
	v := &verdict{ledger: book, log: rcv.arrivals()}
	v.check(t)
	var after []time.Duration
	for _, a := range v.log {
		if a.at.After(woken) {
			after = append(after, a.at.Sub(later(woken, time.UnixMilli(a.dueMs))))
		}
	}
	t.Logf("after two seconds of suspension: %d calls, behind wake-up or due time by %v", len(after), spreadOf(after))
	// The yardstick is how long the tester alone takes for as many calls: the machine may be busy.
	if s, direct := spreadOf(after), rcv.alone(t, timers); s.p99 > time.Second+10*direct {
		t.Errorf("waking up took long: %v; the tester alone makes as many calls in %v", s, direct)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestLargestPayload: a payload of 256 KiB survives a kill and reaches the receiver unchanged; one
// byte more is refused.
func TestLargestPayload(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	const limit = 256 << 10
	rcv := newReceiver(t, nil)
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "large", rcv.url(), "")
	payload := `"` + strings.Repeat("L", limit-2) + `"`
	due := time.Now().Add(2 * time.Second).UnixMilli()
	c.must(t, 201, "POST", "/v1/topics/large/timers", fmt.Sprintf(`{"id":"x","at_ms":%d,"payload":%s}`, due, payload))
	c.must(t, 413, "POST", "/v1/topics/large/timers", fmt.Sprintf(`{"id":"y","at_ms":%d,"payload":"L%s}`, due, payload[1:]))
	node.kill()
	c.use(serve(t, dir))
	poll(t, patience, "it arrives", func() bool { return rcv.count() > 0 })
	if a := rcv.of("large", "x"); len(a) != 1 || a[0].sum != sumOf(payload) || a[0].early() {
		t.Errorf("%+v", a)
	}
}
