package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// gapSlack is how late a retry may be on a busy machine.
const gapSlack = 400 * time.Millisecond

// TestRetryTiming checks the waits between attempts against the policy and Retry-After headers.
func TestRetryTiming(t *testing.T) {
	second := func(status int, retryAfter func() string) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", retryAfter())
				w.WriteHeader(status)
			}
		}
	}
	inSeconds := func(n int) func() string { return func() string { return strconv.Itoa(n) } }
	date := func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) }
	for _, tc := range []struct {
		name   string
		handle func(http.ResponseWriter, *http.Request, int)
		least  []time.Duration // at least
		slack  time.Duration
	}{
		{"backoff doubles", func(w http.ResponseWriter, _ *http.Request, n int) {
			if n <= 3 {
				w.WriteHeader(500)
			}
		}, []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}, 0},
		{"429 with seconds", second(429, inSeconds(2)), []time.Duration{2 * time.Second}, 0},
		{"503 with seconds", second(503, inSeconds(1)), []time.Duration{time.Second}, 0},
		{"429 with a date", second(429, date), []time.Duration{2 * time.Second}, time.Second}, // dates have whole seconds
		{"503 with 0 is clamped to 1", second(503, inSeconds(0)), []time.Duration{time.Second}, 0},
		{"500 ignores it", second(500, inSeconds(30)), []time.Duration{200 * time.Millisecond}, 0},
		{"nonsense falls back", second(429, func() string { return "soon" }), []time.Duration{200 * time.Millisecond}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rcv := newReceiver(t, tc.handle)
			c := newClient(serve(t, t.TempDir()))
			c.topic(t, "retry", rcv.url(), `,"retry":{"min_backoff":"200ms","max_backoff":"10s","multiplier":2,"jitter":0}`)
			calls := len(tc.least) + 1
			for try, late := 0, time.Hour; late > gapSlack; try++ { // the best of five: the machine may be busy
				id := fmt.Sprint("x", try)
				c.must(t, 201, "POST", "/v1/topics/retry/timers", fmt.Sprintf(`{"id":%q,"delay_ms":0,"payload":"p"}`, id))
				poll(t, patience, "the timer is done", func() bool { return c.read(t, "retry", id).State == "done" })
				log := rcv.of("retry", id)
				if got := c.read(t, "retry", id); len(log) != calls || got.Attempts != calls || got.LastStatus != 200 || got.LastError != "" {
					t.Fatalf("%d calls, want %d; %+v", len(log), calls, got)
				}
				late = 0
				for i, least := range tc.least {
					gap := log[i+1].at.Sub(log[i].done)
					// done is when the handler returned; the node may have had the answer slightly
					// earlier.
					late = max(late, gap-least-tc.slack)
					if gap < least-20*time.Millisecond || late > gapSlack && try == 4 {
						t.Fatalf("gap %d is %v, want %v", i+1, gap, least)
					}
					if log[i+1].attempt != log[i].attempt+1 || log[i+1].fence <= log[i].fence || log[i+1].webhook != log[i].webhook {
						t.Errorf("%+v\n%+v", log[i], log[i+1])
					}
				}
			}
		})
	}
}

// TestBreakerParks: a dead receiver's breaker opens. Timers that come due meanwhile wait and lose
// no attempts, except for probes. All are delivered once the receiver is back.
func TestBreakerParks(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	var dead atomic.Bool
	dead.Store(true)
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if dead.Load() {
			w.WriteHeader(500)
		}
	})
	node := serve(t, t.TempDir())
	c := newClient(node)
	c.topic(t, "parked", rcv.url(), `,"breaker":{"failures":3,"window":"10s","open":"1s","probes":1},
		"retry":{"max_attempts":3,"min_backoff":"50ms","max_backoff":"50ms","multiplier":1,"jitter":0}`)
	healthy := beginHealthy(t, c)
	state := fmt.Sprintf("carillon_breaker_state{destination=%q}", rcv.server.URL)
	// Its third attempt opens the breaker, and no other call is on its way then.
	c.must(t, 201, "POST", "/v1/topics/parked/timers", `{"id":"opens","delay_ms":0}`)
	poll(t, patience, "the breaker opens", func() bool { return node.gauge(t, state) == "2" })
	before, opened := rcv.count(), time.Now()
	const parked = 200
	for i := range parked {
		c.must(t, 201, "POST", "/v1/topics/parked/timers", fmt.Sprintf(`{"id":"p%d","delay_ms":0,"payload":%d}`, i, i))
	}
	poll(t, patience, "two probes have failed", func() bool { return rcv.count() >= before+2 })
	// Each probe uses an attempt of one timer. Nothing else uses any.
	burnt := 0
	for _, tm := range c.all(t, "parked") {
		if tm.ID[0] == 'p' {
			burnt += tm.Attempts
		}
	}
	probes, elapsed := rcv.count()-before, time.Since(opened)
	if burnt > probes {
		t.Errorf("%d attempts were burnt by %d probes", burnt, probes)
	}
	if most := int(elapsed/time.Second) + 1; probes > most {
		t.Errorf("%d probes within %v of a breaker that opens for 1s", probes, elapsed)
	}
	dead.Store(false)
	back := time.Now()
	done := func() bool {
		for i := range parked {
			if c.read(t, "parked", fmt.Sprintf("p%d", i)).State != "done" {
				return false
			}
		}
		return true
	}
	poll(t, patience, "all are delivered once the receiver is back", done)
	t.Logf("%d parked, %d probes within %v, all delivered %v after the receiver was back", parked, probes, elapsed, time.Since(back))
	late := healthy.end(t)
	t.Logf("healthy beside an open breaker: %d timers, lateness %v", len(late), spreadOf(late))
	for i := range parked {
		if tm := c.read(t, "parked", fmt.Sprintf("p%d", i)); tm.State != "done" || tm.Attempts != len(rcv.of("parked", tm.ID)) {
			t.Fatalf("%+v, %d calls", tm, len(rcv.of("parked", tm.ID)))
		}
	}
}

// TestDeadLetters: dead letters have a reason, survive a kill, are redriven with the same
// webhook-id, and are purged.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	dead.Store(true)
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if dead.Load() {
			w.WriteHeader(500)
		}
	})
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.must(t, 201, "PUT", "/v1/topics/dl", fmt.Sprintf(impatient, rcv.url()))
	for _, id := range []string{"a", "b", "c"} {
		c.must(t, 201, "POST", "/v1/topics/dl/timers", fmt.Sprintf(`{"id":%q,"delay_ms":0,"payload":%q}`, id, id))
	}
	c.must(t, 201, "POST", "/v1/topics/dl/timers", `{"id":"late","delay_ms":0,"expires_after":"100ms"}`)
	letters := func(query string) (ids []string) {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/dl/dead"+query, "").decode(t, &page)
		for _, tm := range page.Timers {
			ids = append(ids, tm.ID)
		}
		slices.Sort(ids)
		return ids
	}
	poll(t, patience, "all are dead letters", func() bool { return len(letters("")) == 4 })
	if got := letters("?reason=max_attempts"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("max_attempts: %v", got)
	}
	if got := letters("?reason=expired"); !slices.Equal(got, []string{"late"}) {
		t.Errorf("expired: %v", got)
	}
	node.kill()
	node = serve(t, dir)
	c.use(node)
	if got := letters(""); len(got) != 4 {
		t.Errorf("after kill -9: %v", got)
	}

	dead.Store(false)
	a := c.must(t, 200, "POST", "/v1/topics/dl/dead/redrive", `{"ids":["a","nobody"]}`)
	t.Logf("redrive: %s", a.body)
	poll(t, patience, "the redriven one is done", func() bool { return c.read(t, "dl", "a").State == "done" })
	calls := rcv.of("dl", "a")
	if len(calls) != 3 {
		t.Fatalf("%d calls: %+v", len(calls), calls)
	}
	last, redriven := calls[1], calls[2]
	if redriven.attempt != 1 || redriven.fence <= last.fence || redriven.webhook != last.webhook || redriven.sum != last.sum {
		t.Errorf("before  %+v\nredriven %+v", last, redriven)
	}
	c.must(t, 200, "POST", "/v1/topics/dl/dead/purge", `{"ids":["b"]}`)
	if got := letters(""); !slices.Equal(got, []string{"c", "late"}) {
		t.Errorf("after the purge of b: %v", got)
	}
	c.must(t, 200, "POST", "/v1/topics/dl/dead/redrive", `{"all":true}`)
	poll(t, patience, "the rest is done", func() bool {
		return c.read(t, "dl", "c").State == "done" && c.read(t, "dl", "late").State == "done"
	})
	if got := letters(""); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
