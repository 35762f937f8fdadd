package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/node/member"
	"carillon/test/testkit"
	"carillon/transport/api/backend"
)

var testBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func withTestClock(c *Config) { c.TestClock = testBegin }

// moved is the answer of POST /v1/clock.
type moved struct {
	Now     string `json:"now"`
	NowMs   int64  `json:"now_ms"`
	Calls   int    `json:"calls"`
	Left    int    `json:"left"`
	Stopped bool   `json:"stopped"`
}

func (r *running) move(body string) (m moved) {
	r.t.Helper()
	code, text := r.call("POST", "/v1/clock", body)
	if err := json.Unmarshal([]byte(text), &m); err != nil || code != 200 {
		r.t.Fatalf("%d %s", code, text)
	}
	return m
}

// moves is move with what it has to count.
func (r *running) moves(body string, calls, left int) {
	r.t.Helper()
	if m := r.move(body); m.Calls != calls || m.Left != left {
		r.t.Errorf("%s: %+v, want %d calls and %d left", body, m, calls, left)
	}
}

// ask is call for an answer that is a success.
func (r *running) ask(method, path, body string) string {
	r.t.Helper()
	code, text := r.call(method, path, body)
	if code < 200 || code > 299 {
		r.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

// called are the calls that a receiver got, each "timer test-clock", in order.
type called struct {
	*httptest.Server
	mu     sync.Mutex
	list   []string
	answer func(w http.ResponseWriter, r *http.Request)
}

func newCalled(t *testing.T) *called {
	c := &called{answer: func(http.ResponseWriter, *http.Request) {}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.list = append(c.list, r.Header.Get("Carillon-Timer")+" "+r.Header.Get("Carillon-Test-Clock"))
		c.mu.Unlock()
		c.answer(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *called) take() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, c.list = c.list, nil
	return list
}

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestClockStandsStill: without a move nothing becomes due, and with one what is due comes in
// order.
func TestClockStandsStill(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/a/timers/second", `{"delay":"2h"}`)
	r.ask("PUT", "/v1/topics/a/timers/first", `{"delay":"1h"}`)
	r.ask("PUT", "/v1/topics/a/timers/third", `{"at":"2026-01-01T02:00:00.001Z"}`)
	if got := r.ask("GET", "/v1/clock", ""); got != `{"now":"2026-01-01T00:00:00.000Z","now_ms":1767225600000}` {
		t.Error(got)
	}
	if m := r.move(`{"advance":"59m59s999ms"}`); m.Calls != 0 || m.Left != 0 || m.Now != "2026-01-01T00:59:59.999Z" {
		t.Errorf("%+v", m)
	}
	m := r.move(`{"advance":"24h"}`)
	if m.Calls != 3 || m.Left != 0 || m.Stopped {
		t.Errorf("%+v", m)
	}
	wantCalls(t, receiver.take(), "first 2026-01-01T01:00:00Z", "second 2026-01-01T02:00:00Z", "third 2026-01-01T02:00:00.001Z")
	if got := r.ask("GET", "/v1/cluster", ""); !strings.Contains(got, `"test_clock":true`) {
		t.Error(got)
	}
	for body, want := range map[string]string{
		`{"to":"2026-01-02T00:59:59Z"}`:                `409 "code":"clock_past"`,
		`{"advance":"-1h"}`:                            `400 "code":"bad_time"`,
		`{"advance":"1h","to":"2027-01-01T00:00:00Z"}`: `400 "code":"bad_time"`,
		`{}`:                            `400 "code":"bad_time"`,
		`{"to":"tomorrow"}`:             `400 "code":"bad_time"`,
		`{"to":"9999-12-31T23:59:59Z"}`: `400 "code":"bad_time"`,
		`{"forward":"1h"}`:              `400 "code":"unknown_field"`,
	} {
		code, text := r.call("POST", "/v1/clock", body)
		if status, part, _ := strings.Cut(want, " "); fmt.Sprint(code) != status || !strings.Contains(text, part) {
			t.Errorf("%s: %d %s, want %s", body, code, text, want)
		}
	}
}

// TestClockGoesNoFurtherThanALeaseCanTell: the time that leases are measured by is a Duration since
// the process's start. Beyond it nothing would settle, and no request would be answered.
func TestClockGoesNoFurtherThanALeaseCanTell(t *testing.T) {
	r := start(t, t.TempDir(), withTestClock)
	for _, body := range []string{`{"to":"2400-01-01T00:00:00Z"}`, `{"to":"9999-12-31T00:00:00Z"}`, `{"advance":"2562048h"}`} {
		if code, text := r.call("POST", "/v1/clock", body); code != 400 || !strings.Contains(text, `"code":"bad_time"`) {
			t.Fatalf("%s: %d %s", body, code, text)
		}
	}
	r.move(`{"to":"2200-01-01T00:00:00Z"}`)
	for _, body := range []string{`{"to":"2319-01-01T00:00:00Z"}`, `{"advance":"1051200h"}`} {
		if code, text := r.call("POST", "/v1/clock", body); code != 400 || !strings.Contains(text, "292 years") {
			t.Fatalf("%s: %d %s", body, code, text)
		}
	}
	receiver := newCalled(t)
	r.move(`{"to":"2318-01-01T00:00:00Z"}`)
	r.ask("PUT", "/v1/topics/a/timers/late", fmt.Sprintf(`{"delay":"1h","callback":{"url":%q}}`, receiver.URL))
	r.move(`{"advance":"1h"}`)
	wantCalls(t, receiver.take(), "late 2318-01-01T01:00:00Z")
}

// TestRetriesByTestClock: backoff, breaker and the end of all attempts are in the clock's time.
func TestRetriesByTestClock(t *testing.T) {
	receiver := newCalled(t)
	receiver.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/pay", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"max_attempts":4,"min_backoff":"24h","max_backoff":"24h","jitter":0}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/pay/timers/x", `{"delay":"1h"}`)
	began := time.Now()
	r.moves(`{"advance":"72h"}`, 3, 0)
	r.moves(`{"advance":"24h"}`, 1, 0)
	t.Logf("took %v", time.Since(began))
	wantCalls(t, receiver.take(), "x 2026-01-01T01:00:00Z", "x 2026-01-02T01:00:00Z", "x 2026-01-03T01:00:00Z", "x 2026-01-04T01:00:00Z")
	if got := r.ask("GET", "/v1/topics/pay/dead", ""); !strings.Contains(got, `"max_attempts"`) {
		t.Error(got)
	}
	r.move(`{"advance":"9000h"}`) // past its retention
	if got := r.ask("GET", "/v1/topics/pay/dead", ""); !strings.Contains(got, `"timers":[]`) && !strings.Contains(got, `"dead":[]`) {
		t.Error(got)
	}
}

// TestBreakerByTestClock: a breaker opens and lets a probe through in the clock's time.
func TestBreakerByTestClock(t *testing.T) {
	receiver := newCalled(t)
	receiver.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"max_attempts":50,"min_backoff":"1s","max_backoff":"1s","jitter":0},"breaker":{"failures":2,"open":"1h"}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/a/timers/x", `{"delay":"1m"}`)
	r.moves(`{"advance":"30m"}`, 2, 1)
	if got := r.ask("GET", "/v1/topics/a/timers/x", ""); !strings.Contains(got, `"waits_for":"breaker"`) {
		t.Error(got)
	}
	receiver.answer = func(http.ResponseWriter, *http.Request) {}
	r.moves(`{"advance":"30m"}`, 0, 1)
	r.moves(`{"advance":"2m"}`, 1, 0)
}

// TestLeftWaitsForSomebody: what is paused, is for a consumer, or waits for a report does not hold
// the clock up; leases end in its time.
func TestLeftWaitsForSomebody(t *testing.T) {
	receiver := newCalled(t)
	receiver.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/paused", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	r.ask("POST", "/v1/topics/paused/pause", "")
	r.ask("PUT", "/v1/topics/pulled", `{"delivery":"pull","lease":"10m"}`)
	r.ask("PUT", "/v1/topics/reported", fmt.Sprintf(`{"callback":{"url":%q},"ack":"report","lease":"1h","retry":{"min_backoff":"1h","max_backoff":"1h","jitter":0}}`, receiver.URL))
	for _, topic := range []string{"paused", "pulled", "reported"} {
		r.ask("PUT", "/v1/topics/"+topic+"/timers/x", `{"delay":"1h"}`)
	}
	r.moves(`{"advance":"61m"}`, 1, 3)
	if got := r.ask("POST", "/v1/topics/pulled/pull", `{}`); !strings.Contains(got, `"id":"x"`) {
		t.Error(got)
	}
	if got := r.ask("POST", "/v1/topics/pulled/pull", `{}`); strings.Contains(got, `"id":"x"`) {
		t.Error(got)
	}
	if m := r.move(`{"advance":"10m"}`); m.Left != 3 {
		t.Errorf("%+v", m)
	}
	if got := r.ask("POST", "/v1/topics/pulled/pull", `{}`); !strings.Contains(got, `"id":"x"`) {
		t.Error("the lease did not end: " + got)
	}
	r.ask("DELETE", "/v1/topics/paused/timers/x", "")
	if m := r.move(`{"advance":"49m"}`); m.Left != 1 || m.Calls != 0 { // the lease of the report ended; it is in backoff
		t.Errorf("%+v", m)
	}
	if m := r.move(`{"advance":"1h"}`); m.Calls != 1 {
		t.Errorf("%+v", m)
	}
}

// TestLimitsByTestClock: a rate's tokens come in the clock's time, and a concurrency of one holds.
func TestLimitsByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/rate", fmt.Sprintf(`{"callback":{"url":%q},"rate":{"per_second":0.001,"burst":1}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/one", fmt.Sprintf(`{"callback":{"url":%q},"concurrency":1}`, receiver.URL))
	r.ask("PUT", "/v1/topics/serial", fmt.Sprintf(`{"callback":{"url":%q},"serial":true}`, receiver.URL))
	for i := range 8 {
		for _, topic := range []string{"rate", "one", "serial"} {
			r.ask("PUT", fmt.Sprintf("/v1/topics/%s/timers/%d", topic, i), `{"delay":"1h"}`)
		}
	}
	r.moves(`{"advance":"1h"}`, 17, 7)
	r.moves(`{"advance":"3001s"}`, 3, 4)
	r.moves(`{"advance":"1h"}`, 3+0, 1)
}

// TestRatesByTestClock: nothing is late by a clock that stands still, so a burst of one costs
// nothing of the rate. 400 a second come every 2 and 3 ms in turn.
func TestRatesByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	const timers = 21
	for _, perSecond := range []int{1, 3, 100, 400, 700, 1000, 3000} {
		for _, policy := range []string{`"rate":%s`, `"per_key":{"rate":%s}`} {
			topic := fmt.Sprintf("r%d-%d", perSecond, len(policy))
			limit := fmt.Sprintf(policy, fmt.Sprintf(`{"per_second":%d,"burst":1}`, perSecond))
			r.ask("PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q},%s}`, receiver.URL, limit))
			for i := range timers {
				r.ask("PUT", fmt.Sprintf("/v1/topics/%s/timers/%%7Bk%%7D%d", topic, i), `{"delay":"10s"}`)
			}
			if m := r.move(`{"advance":"1m"}`); m.Left != 0 {
				t.Errorf("%s: %+v", topic, m)
			}
			var fired []int64
			for i := range timers {
				var shown struct {
					FiredMs int64 `json:"fired_ms"`
				}
				testkit.Must(t, json.Unmarshal([]byte(r.ask("GET", fmt.Sprintf("/v1/topics/%s/timers/%%7Bk%%7D%d", topic, i), "")), &shown))
				fired = append(fired, shown.FiredMs)
			}
			slices.Sort(fired)
			for i, at := range fired {
				if want := int64(i * 1000 / perSecond); at-fired[0] != want {
					t.Fatalf("%s: call %d comes %d ms after the first, not %d", topic, i, at-fired[0], want)
				}
			}
		}
	}
}

// TestYearByTestClock: a year of renewals with reminders takes less than a second. The best of five
// years counts: the machine may be busy.
func TestYearByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/a/timers/renewal", `{"at":"2026-01-28T08:00:00Z","repeat":{"cron":"0 9 28 * *","zone":"Europe/Berlin"}}`)
	r.ask("PUT", "/v1/topics/a/timers/reminder", `{"at":"2026-01-21T08:00:00Z","repeat":{"cron":"0 9 21 * *","zone":"Europe/Berlin"}}`)
	took := time.Hour
	for year := 2027; year < 2032 && took > time.Second; year++ {
		began := time.Now()
		m := r.move(fmt.Sprintf(`{"to":"%d-01-01T00:00:00Z"}`, year))
		took = min(took, time.Since(began))
		if calls := receiver.take(); m.Calls != 24 {
			t.Errorf("%+v: %s", m, strings.Join(calls, "\n"))
		}
	}
	t.Logf("a year in %v", took)
	if took > time.Second {
		t.Errorf("a year took %v", took)
	}
}

// TestMoveIsBounded: after too many calls the clock stops where it is, and goes on when asked
// again.
func TestMoveIsBounded(t *testing.T) {
	defer func(n int64) { moveCalls = n }(moveCalls)
	moveCalls = 10
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	for i := range 25 {
		r.ask("PUT", fmt.Sprintf("/v1/topics/a/timers/%d", i), fmt.Sprintf(`{"delay":"%dh"}`, 1+i))
	}
	calls := 0
	for range 3 {
		m := r.move(`{"to":"2026-02-01T00:00:00Z"}`)
		if calls += m.Calls; !m.Stopped {
			break
		}
		if m.Now >= "2026-01-02T02" {
			t.Errorf("%+v", m)
		}
	}
	if calls != 25 || len(receiver.take()) != 25 {
		t.Errorf("%d calls", calls)
	}
}

// TestMoveEndsItsLastCalls: a move that stops leaves what the next one does, not calls that run and
// are counted already.
func TestMoveEndsItsLastCalls(t *testing.T) {
	defer func(n int64) { moveCalls = n }(moveCalls)
	moveCalls = 10
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	for i := range 11 {
		r.ask("PUT", fmt.Sprintf("/v1/topics/a/timers/%d", i), `{"delay":"1h"}`)
	}
	r.ask("PUT", "/v1/topics/a/timers/later", `{"delay":"2h"}`)
	if m := r.move(`{"advance":"3h"}`); m.Calls != 11 || m.Left != 0 || !m.Stopped || m.Now != "2026-01-01T01:00:00.000Z" {
		t.Errorf("%+v", m)
	}
	if m := r.move(`{"advance":"0s"}`); m.Calls != 0 || m.Left != 0 || m.Stopped {
		t.Errorf("%+v", m)
	}
	if m := r.move(`{"advance":"2h"}`); m.Calls != 1 || m.Left != 0 || m.Stopped {
		t.Errorf("%+v", m)
	}
}

// TestRetentionByTestClock: what is past its retention by the clock is gone when the move answers:
// finished timers, the files of the history, and topics that an add made.
func TestRetentionByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/kept", fmt.Sprintf(`{"callback":{"url":%q},"history":"1h"}`, receiver.URL))
	r.ask("PUT", "/v1/topics/kept/timers/x", `{"delay":"1h"}`)
	r.ask("PUT", "/v1/topics/made/timers/x", fmt.Sprintf(`{"delay":"1h","callback":{"url":%q}}`, receiver.URL))
	if m := r.move(`{"advance":"61m"}`); m.Calls != 2 {
		t.Errorf("%+v", m)
	}
	if got := r.ask("GET", "/v1/topics/kept/timers/x", ""); !strings.Contains(got, `"state":"done"`) {
		t.Error(got)
	}
	if m := r.move(`{"advance":"30m"}`); m.Left != 0 { // from memory it is gone, in the history it is
		t.Errorf("%+v", m)
	}
	if got := r.ask("GET", "/v1/topics/kept/timers?state=done", ""); got != `{"timers":[]}` {
		t.Error(got)
	}
	if got := r.ask("GET", "/v1/topics/kept/history", ""); !strings.Contains(got, `"id":"x"`) {
		t.Error(got)
	}
	r.ask("GET", "/v1/topics/made", "")
	r.move(`{"advance":"200h"}`)
	if code, got := r.call("GET", "/v1/topics/kept/timers/x", ""); code != 404 {
		t.Errorf("%d %s", code, got)
	}
	if code, got := r.call("GET", "/v1/topics/made", ""); code != 404 {
		t.Errorf("a topic that an add made, and that is empty for %s: %d %s", "200h", code, got)
	}
	if got := r.ask("GET", "/v1/topics/kept/history", ""); got != `{"entries":[]}` {
		t.Error(got)
	}
	history := r.node.run.Load().core.Load().history
	if s := history.store.Stats(); s.Files > 0 {
		t.Errorf("the history has %+v", s)
	}
}

// TestMoveThatWaits: neither a move that waits for another nor one of a node that does not get
// ready waits longer than a move may take, and both give the reason.
func TestMoveThatWaits(t *testing.T) {
	defer func(d time.Duration) { moveTime = d }(moveTime)
	moveTime = 50 * time.Millisecond
	self := &member.Self{}
	self.Wait("the other nodes are awaited")
	clock := &testClock{
		Manual: clocks.NewManual(nil, testBegin.UnixMilli()), turn: make(chan struct{}, 1),
		core: &core{p: &process{self: self}},
	}
	fails := func(want string) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			_, err := clock.Move(t.Context(), backend.ClockMove{By: true, ByMs: 1})
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, backend.ErrClockWaits) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		case <-time.After(patience):
			t.Errorf("it waits without a limit: %s", want)
		}
	}
	clock.turn <- struct{}{}
	fails("another move")
	<-clock.turn
	fails("the other nodes are awaited")
}

// TestDirectoryOfTestClock: a directory belongs to one kind of clock, and the clock goes on where
// it stood.
func TestDirectoryOfTestClock(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, withTestClock)
	r.ask("PUT", "/v1/topics/a/timers/x", `{"delay":"2h","callback":{"url":"http://127.0.0.1:1/"}}`)
	r.move(`{"advance":"1h"}`)
	testkit.Must(t, r.stop())
	if err := runOnce(t, dir, func(*Config) {}); !errors.Is(err, ErrStayDown) || !strings.Contains(err.Error(), "--test-clock=now") {
		t.Errorf("without a test clock: %v", err)
	}
	r = start(t, dir, func(c *Config) { c.TestClock = time.Now() })
	if got := r.ask("GET", "/v1/clock", ""); !strings.Contains(got, `"2026-01-01T01:00:00.000Z"`) {
		t.Error(got)
	}
	if m := r.move(`{"advance":"1h"}`); m.Calls != 1 {
		t.Errorf("%+v", m)
	}
	other := t.TempDir()
	plain := start(t, other)
	for _, method := range []string{"GET", "POST"} {
		body := ""
		if method == "POST" {
			body = `{"advance":"1h"}`
		}
		if code, text := plain.call(method, "/v1/clock", body); code != 404 || !strings.Contains(text, `"code":"no_test_clock"`) {
			t.Errorf("%d %s", code, text)
		}
	}
	if got := plain.ask("GET", "/v1/cluster", ""); strings.Contains(got, "test_clock") {
		t.Error(got)
	}
	testkit.Must(t, plain.stop())
	if err := runOnce(t, other, withTestClock); !errors.Is(err, ErrStayDown) || !strings.Contains(err.Error(), "another --data") {
		t.Errorf("with a test clock: %v", err)
	}
	if _, err := New(Config{DataDir: dir, Alone: Alone{TestClock: testBegin}, BootstrapExpect: 3}); err == nil || !strings.Contains(err.Error(), "test-clock") {
		t.Errorf("with others: %v", err)
	}
}

// runOnce runs a node that is expected to end by itself.
func runOnce(t *testing.T, dir string, change func(*Config)) error {
	t.Helper()
	cfg := Config{DataDir: dir, HTTP: "127.0.0.1:0"}
	change(&cfg)
	n, err := New(cfg)
	testkit.Must(t, err)
	return n.Run(t.Context())
}

// TestManyKindsByTestClock: whatever keeps a timer back, it is called at its instant, and in order.
func TestManyKindsByTestClock(t *testing.T) {
	receiver := newCalled(t)
	failed := map[string]int{}
	var mu sync.Mutex
	receiver.answer = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if id := r.Header.Get("Carillon-Timer"); strings.HasPrefix(id, "{k}first") && failed[id] < 2 {
			failed[id]++
			w.WriteHeader(503)
		}
	}
	r := start(t, t.TempDir(), withTestClock, func(c *Config) { c.Workers = 3 })
	topic := func(name, policy string) {
		r.ask("PUT", "/v1/topics/"+name, fmt.Sprintf(`{"callback":{"url":%q}%s}`, receiver.URL, policy))
	}
	topic("plain", "")
	topic("burst", `,"destination_concurrency":3`)
	topic("window", `,"window":{"zone":"UTC","days":"mon","from":"08:00","to":"09:00"}`)
	topic("spread", `,"spread":"10m"`)
	topic("serial", `,"serial":true,"retry":{"min_backoff":"10m","max_backoff":"10m","jitter":0}`)
	topic("late", "")
	r.ask("PUT", "/v1/topics/plain/timers/now", `{"delay":"0s"}`)
	until(t, "a timer that is due now is called without a move", func() bool { return len(receiver.take()) == 1 })
	for i := range 300 {
		r.ask("PUT", fmt.Sprintf("/v1/topics/burst/timers/b%d", i), `{"delay":"1h"}`)
	}
	r.ask("PUT", "/v1/topics/window/timers/w", `{"delay":"1h"}`)
	for i := range 20 {
		r.ask("PUT", fmt.Sprintf("/v1/topics/spread/timers/s%d", i), `{"delay":"1h"}`)
	}
	r.ask("PUT", "/v1/topics/serial/timers/%7Bk%7Dfirst", `{"delay":"1h"}`)
	r.ask("PUT", "/v1/topics/serial/timers/%7Bk%7Dsecond", `{"delay":"61m"}`)
	r.ask("PUT", "/v1/topics/plain/timers/series", `{"delay":"90m","repeat":{"every":"1h","count":3}}`)
	r.ask("PUT", "/v1/topics/plain/timers/overlap", `{"delay":"90m","repeat":{"every":"1h","count":3,"overlap":true}}`)
	r.ask("POST", "/v1/topics/late/pause", "")
	r.ask("PUT", "/v1/topics/late/timers/expires", `{"delay":"1h","expires_after":"1h"}`)
	m := r.move(`{"advance":"168h"}`)
	if m.Calls != 300+1+20+4+3+3 || m.Left != 0 || m.Stopped {
		t.Errorf("%+v", m)
	}
	list := receiver.take()
	last, at := "", map[string]string{}
	for _, call := range list {
		id, clock, _ := strings.Cut(call, " ")
		if parsed, err := time.Parse(time.RFC3339, clock); err != nil || parsed.UTC().Format("2006-01-02T15:04:05.000") < last {
			t.Errorf("%s comes after %s", call, last)
		} else {
			last = parsed.UTC().Format("2006-01-02T15:04:05.000")
		}
		at[id] = clock
		if strings.HasPrefix(id, "b") && clock != "2026-01-01T01:00:00Z" || strings.HasPrefix(id, "s") && id != "series" && (clock < "2026-01-01T01:00" || clock > "2026-01-01T01:11") {
			t.Error(call)
		}
	}
	for id, want := range map[string]string{
		"w": "2026-01-05T08:00:00Z", "{k}first": "2026-01-01T01:20:00Z", "{k}second": "2026-01-01T01:20:00Z",
		"series": "2026-01-01T03:30:00Z", "overlap": "2026-01-01T03:30:00Z",
	} {
		if at[id] != want {
			t.Errorf("%s was called last at %s, want %s", id, at[id], want)
		}
	}
	if got := r.ask("GET", "/v1/topics/late/dead", ""); !strings.Contains(got, `"expired"`) {
		t.Error(got)
	}
	if got := r.ask("GET", "/v1/topics/serial/history", ""); !strings.Contains(got, `"timers":[]`) && !strings.Contains(got, `"entries":[]`) {
		t.Errorf("the history is kept for 72h: %s", got)
	}
}

// TestFewSlotsByTestClock: calls that wait for slots of the node, at many receivers, hold no move
// up, and adds may come meanwhile.
func TestFewSlotsByTestClock(t *testing.T) {
	r := start(t, t.TempDir(), withTestClock, func(c *Config) { c.MaxCalls = 16 })
	var receivers []*called
	for i := range 40 {
		receivers = append(receivers, newCalled(t))
		r.ask("PUT", fmt.Sprintf("/v1/topics/t%d", i), fmt.Sprintf(`{"callback":{"url":%q}}`, receivers[i].URL))
		for j := range 5 {
			r.ask("PUT", fmt.Sprintf("/v1/topics/t%d/timers/x%d", i, j), `{"delay":"1h"}`)
		}
	}
	added := make(chan struct{})
	go func() {
		defer close(added)
		for i := range 50 {
			r.call("PUT", fmt.Sprintf("/v1/topics/t1/timers/y%d", i), `{"delay":"10m"}`)
		}
	}()
	m := r.move(`{"advance":"2h"}`)
	<-added
	calls, received := m.Calls, 0
	m = r.move(`{"advance":"1h"}`)
	for _, receiver := range receivers {
		received += len(receiver.take())
	}
	// An add that was under way as the clock moved on is due before the end of a move that did not
	// see it, and is called after that.
	if m.Left != 0 || m.Stopped || received != 250 || calls+m.Calls < 249 || calls+m.Calls > 250 {
		t.Errorf("%d calls, then %+v; %d received", calls, m, received)
	}
}

// TestOutcomesByTestClock: what an end makes is due at once, and so of the same instant.
func TestOutcomesByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/events", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/jobs", fmt.Sprintf(`{"callback":{"url":%q},"on_done":{"topic":"events"}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/jobs/timers/x", `{"delay":"1h"}`)
	r.moves(`{"advance":"1h"}`, 2, 0)
	for _, call := range receiver.take() {
		if !strings.HasSuffix(call, " 2026-01-01T01:00:00Z") {
			t.Error(call)
		}
	}
}

// TestBatchByTestClock: a call of many goes when it is full, or its wait is over by the clock.
func TestBatchByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock, func(c *Config) { c.Shards = 1 })
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q},"batch":{"max":4,"wait":"30s"}}`, receiver.URL))
	for i := range 6 {
		r.ask("PUT", fmt.Sprintf("/v1/topics/a/timers/x%d", i), fmt.Sprintf(`{"delay":"1h%ds"}`, i))
	}
	r.moves(`{"advance":"3602s"}`, 0, 3)
	r.moves(`{"advance":"31s"}`, 1, 2)
	r.moves(`{"advance":"1m"}`, 1, 0)
	wantCalls(t, receiver.take(), " 2026-01-01T01:00:03Z", " 2026-01-01T01:00:34Z")
}

// TestPerKeyByTestClock: a key's tokens come in the clock's time, and so many of it are called at
// once; in calls of many, too.
func TestPerKeyByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	policies := map[string]string{
		"rate":  `"per_key":{"rate":{"per_second":0.001,"burst":1}}`,
		"one":   `"per_key":{"concurrency":1}`,
		"batch": `"per_key":{"concurrency":2,"rate":{"per_second":0.001,"burst":2}},"batch":{"max":10,"wait":"10s"}`,
	}
	for topic, policy := range policies {
		r.ask("PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q},%s}`, receiver.URL, policy))
		for i := range 5 {
			r.ask("PUT", fmt.Sprintf("/v1/topics/%s/timers/%%7Bk%%7D%d", topic, i), `{"delay":"1h"}`)
		}
	}
	// A leader's buckets begin empty: rate has its first token by then, batch two.
	r.moves(`{"advance":"3611s"}`, 1+5+1, 4+3)
	r.moves(`{"advance":"3000s"}`, 3+3, 1)
	r.moves(`{"advance":"1000s"}`, 1, 0)
}

// TestCollectByTestClock: a window ends by the clock, with and without max_wait, and what waits
// behind a failed array comes after it.
func TestCollectByTestClock(t *testing.T) {
	receiver := newCalled(t)
	var bodies []string
	receiver.answer = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			w.WriteHeader(500)
		}
	}
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"10m","max_backoff":"10m","jitter":0}}`, receiver.URL))
	add := func(payload, more string) {
		r.ask("POST", "/v1/topics/a/timers", fmt.Sprintf(`{"id":"c","delay":"1m","merge":"collect","payload":%s%s}`, payload, more))
	}
	add("1", "")
	r.moves(`{"advance":"30s"}`, 0, 0)
	add("2", `,"collect_max":2`) // full: due now
	r.move(`{"advance":"1s"}`)
	add("3", "")
	add("4", `,"collect_max":2`)
	if m := r.move(`{"advance":"5m"}`); m.Calls != 0 || m.Left != 0 { // its id is in backoff
		t.Errorf("%+v", m)
	}
	r.moves(`{"advance":"6m"}`, 2, 0)
	wantCalls(t, receiver.take(), "c 2026-01-01T00:00:30Z", "c 2026-01-01T00:10:30Z", "c 2026-01-01T00:10:30Z")
	wantCalls(t, bodies, "[1,2]", "[1,2]", "[3,4]")
	add("5", `,"max_wait":"90s"`)
	r.move(`{"advance":"40s"}`)
	add("6", `,"max_wait":"90s"`) // at most 90 s after the first
	r.moves(`{"advance":"10m"}`, 1, 0)
	wantCalls(t, receiver.take(), "c 2026-01-01T00:13:01Z")
	wantCalls(t, bodies[3:], "[5,6]")
}

// TestHeldByTestClock: a timer that a client has paused holds no move up, and is counted as left
// once it is due.
func TestHeldByTestClock(t *testing.T) {
	receiver := newCalled(t)
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/a", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	for _, id := range []string{"due", "later", "expires"} {
		delay := map[string]string{"due": `"1h"`, "later": `"3h"`, "expires": `"1h","expires_after":"30m"`}[id]
		r.ask("PUT", "/v1/topics/a/timers/"+id, `{"delay":`+delay+`}`)
		r.ask("POST", "/v1/topics/a/timers/"+id+"/pause", "")
	}
	if m := r.move(`{"advance":"1h"}`); m.Calls != 0 || m.Left != 2 || m.Stopped {
		t.Errorf("%+v", m)
	}
	r.moves(`{"advance":"1h"}`, 0, 1)
	r.ask("POST", "/v1/topics/a/timers/due/resume", "")
	if m := r.move(`{"advance":"1s"}`); m.Left != 0 {
		t.Errorf("%+v", m)
	}
	wantCalls(t, receiver.take(), "due 2026-01-01T02:00:00Z")
}
