package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// batchTimer is a timer in the body of a call of many.
type batchTimer struct {
	Topic, ID, Key string
	WebhookID      string `json:"webhook_id"`
	DueMs          int64  `json:"due_ms"`
	Attempt        int
	Fence          uint64
	Payload        json.RawMessage
	PayloadBase64  string `json:"payload_base64"`
	ContentType    string `json:"content_type"`
}

// batchReceiver takes calls of many timers, and the retries that come alone.
type batchReceiver struct {
	*httptest.Server
	fails func(id string) bool // at its first attempt
	takes time.Duration

	mu     sync.Mutex
	calls  [][]batchTimer // of many
	ids    []string       // webhook-ids of these calls
	alone  []batchTimer
	ok     map[string]int // attempts that succeeded, by id
	failed map[string]bool
	header []http.Header
}

func newBatchReceiver(t testing.TB, fails func(id string) bool) *batchReceiver {
	t.Helper()
	r := &batchReceiver{fails: fails, ok: map[string]int{}, failed: map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the node was killed
		}
		wait(r.takes)
		r.mu.Lock()
		defer r.mu.Unlock()
		if id := req.Header.Get("Carillon-Timer"); id != "" {
			var attempt int
			_, _ = fmt.Sscan(req.Header.Get("Carillon-Attempt"), &attempt)
			r.alone = append(r.alone, batchTimer{ID: id, WebhookID: req.Header.Get("Webhook-Id"), Attempt: attempt, Payload: body})
			r.ok[id]++
			return
		}
		var call struct{ Timers []batchTimer }
		if err := json.Unmarshal(body, &call); err != nil {
			t.Errorf("a call of many timers: %v: %.200s", err, body)
		}
		var answer struct {
			Failed []map[string]string `json:"failed"`
		}
		for _, one := range call.Timers {
			if r.fails(one.ID) {
				r.failed[one.ID] = true
				answer.Failed = append(answer.Failed, map[string]string{"webhook_id": one.WebhookID, "error": "no " + one.ID})
			} else {
				r.ok[one.ID]++
			}
		}
		r.calls, r.ids, r.header = append(r.calls, call.Timers), append(r.ids, req.Header.Get("Webhook-Id")), append(r.header, req.Header)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(r.Close)
	return r
}

// TestManyTimersInOneCall: what a call of many timers has, and that those which the answer names
// are retried alone.
func TestManyTimersInOneCall(t *testing.T) {
	t.Parallel()
	r := newBatchReceiver(t, func(id string) bool { return id == "{k}b" || id == "c" })
	node := serve(t, t.TempDir())
	c := newClient(node)
	c.must(t, 201, "PUT", "/v1/topics/many", fmt.Sprintf(`{"callback":{"url":%q,"headers":{"X-Own":"1"}},"batch":{"max":50,"wait":"1s"},"retry":{"min_backoff":"100ms"},"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`, r.URL))
	due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond).UTC()
	at := fmt.Sprintf(`"at":%q`, due.Format("2006-01-02T15:04:05.000Z"))
	c.must(t, 200, "POST", "/v1/topics/many/batch", `{"ops":[
		{"op":"add","id":"{k}a","payload":{"n": 1},`+at+`},
		{"op":"add","id":"{k}b","payload_base64":"`+base64.StdEncoding.EncodeToString([]byte("bytes"))+`","content_type":"text/plain",`+at+`},
		{"op":"add","id":"{k}empty",`+at+`},
		{"op":"add","id":"{k}own","callback":{"headers":{"X-Other":"2"}},`+at+`}]}`)
	c.must(t, 422, "POST", "/v1/topics/many/timers", `{"callback":{"method":"DELETE"},"delay":"1s"}`)
	poll(t, patience, "all are done", func() bool {
		return strings.Contains(string(c.must(t, 200, "GET", "/v1/topics/many", "").body), `"done":4`)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) != 1 || len(r.calls[0]) != 3 {
		t.Fatalf("calls of many: %+v, want one of three timers", r.calls)
	}
	call := r.calls[0]
	slices.SortFunc(call, func(a, b batchTimer) int { return strings.Compare(a.ID, b.ID) })
	for i, want := range []batchTimer{
		{ID: "{k}a", Payload: json.RawMessage(`{"n": 1}`)}, {ID: "{k}b", PayloadBase64: "Ynl0ZXM=", ContentType: "text/plain"}, {ID: "{k}empty"},
	} {
		got := call[i]
		if got.ID != want.ID || got.Topic != "many" || got.Key != "k" || got.DueMs != due.UnixMilli() || got.Attempt != 1 || got.Fence == 0 ||
			!strings.HasPrefix(got.WebhookID, "msg_") || string(got.Payload) != string(want.Payload) || got.PayloadBase64 != want.PayloadBase64 || got.ContentType != want.ContentType {
			t.Errorf("timer %d is %+v, want %+v", i, got, want)
		}
	}
	h := r.header[0]
	if h.Get("X-Own") != "1" || h.Get("Content-Type") != "application/json" || h.Get("Webhook-Signature") == "" || h.Get("Carillon-Signature") == "" || h.Get("Carillon-Topic") != "many" {
		t.Errorf("headers %v", h)
	}
	if len(r.alone) != 2 || r.ids[0] == call[1].WebhookID {
		t.Fatalf("calls for one: %+v, want the retry and the timer with headers of its own", r.alone)
	}
	for _, one := range r.alone {
		if one.ID == "{k}b" && (one.Attempt != 2 || one.WebhookID != call[1].WebhookID || string(one.Payload) != "bytes") {
			t.Errorf("the retry is %+v", one)
		}
	}
	log := string(c.must(t, 200, "GET", "/v1/topics/many/timers/%7Bk%7Db", "").body)
	if !strings.Contains(log, `"failed: no {k}b"`) {
		t.Errorf("the failed attempt is not told: %s", log)
	}
	if got := node.gauge(t, "carillon_batch_calls_total") + " " + node.gauge(t, "carillon_batch_timers_total"); got != "1 3" {
		t.Errorf("metrics count %s calls and timers", got)
	}
}

// TestManyTimersInOneCallUnderKill: a node is killed while calls of many timers run, again and
// again. Each timer ends done, and only those of a call without a stored answer are called once
// more.
func TestManyTimersInOneCallUnderKill(t *testing.T) {
	t.Parallel()
	timers, kills := 3000, 4
	if testing.Short() {
		timers, kills = 600, 2
	}
	r := newBatchReceiver(t, func(id string) bool { return strings.HasSuffix(id, "7") })
	r.takes = 20 * time.Millisecond // so that calls run when the node is killed
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.must(t, 201, "PUT", "/v1/topics/many", fmt.Sprintf(`{"callback":{"url":%q},"batch":{"max":20,"wait":"50ms"},"retry":{"min_backoff":"50ms"},"destination_concurrency":4}`, r.URL))
	var ops []string
	for i := range timers {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%d","delay":"%dms","payload":%d}`, i, 500+i*1500/timers, i))
		if len(ops) == 1000 || i == timers-1 {
			c.must(t, 200, "POST", "/v1/topics/many/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
			ops = nil
		}
	}
	for range kills {
		wait(400 * time.Millisecond)
		node.kill()
		_ = node.awaitExit(t, 10*time.Second)
		node = serve(t, dir)
		c = newClient(node)
	}
	poll(t, 60*time.Second, "all are done", func() bool {
		return strings.Contains(string(c.must(t, 200, "GET", "/v1/topics/many", "").body), fmt.Sprintf(`"done":%d`, timers))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	twice := 0
	for i := range timers {
		id := fmt.Sprint("t", i)
		if r.ok[id] == 0 {
			t.Errorf("%s is done, and never succeeded", id)
		}
		twice += max(r.ok[id]-1, 0)
	}
	// Of each kill, the calls that ran: 4 of at most 20 timers, and those whose outcome was not
	// stored.
	if most := kills * 2 * 4 * 20; twice > most {
		t.Errorf("%d timers were called again after a success, at most %d can be", twice, most)
	}
	for i, call := range r.calls {
		if len(call) > 20 {
			t.Errorf("call %d has %d timers", i, len(call))
		}
	}
	t.Logf("%d timers in %d calls of many and %d alone, %d called again", timers, len(r.calls), len(r.alone), twice)
}

// herdRate has n timers due in one instant called, and returns how many a second arrive.
func herdRate(t testing.TB, c *client, topic, policy string, takes time.Duration, n int) float64 {
	t.Helper()
	var mu sync.Mutex
	var first, last time.Time
	seen := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		body, _ := io.ReadAll(r.Body)
		timers := 1
		if r.Header.Get("Carillon-Timer") == "" {
			timers = strings.Count(string(body), `"webhook_id":`)
		}
		if takes > 0 {
			wait(takes)
		}
		mu.Lock()
		defer mu.Unlock()
		if seen += timers; first.IsZero() {
			first = arrived
		}
		last = time.Now()
	}))
	defer server.Close()
	c.must(t, 201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q},"destination_concurrency":16,"history":"0s"%s}`, server.URL, policy))
	at := time.Now().Add(time.Duration(n)*50*time.Microsecond + 2*time.Second).UnixMilli()
	payload := strings.Repeat("x", 100)
	var ops []string
	for i := range n {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%d","at_ms":%d,"payload":%q}`, i, at, payload))
		if len(ops) == 1000 || i == n-1 {
			c.must(t, 200, "POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
			ops = nil
		}
	}
	poll(t, 120*time.Second, "all have arrived", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen >= n
	})
	mu.Lock()
	defer mu.Unlock()
	if seen != n {
		t.Errorf("%s: %d timers arrived, want %d", topic, seen, n)
	}
	return float64(n) / last.Sub(first).Seconds()
}

// TestManyTimersInOneCallAreFaster: with 16 calls at once, calls of 100 timers bring at least 4
// times as many timers to a receiver that takes 2 ms as single ones, and twice as many to one that
// takes none.
func TestManyTimersInOneCallAreFaster(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n, rounds := 16_000, 3
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		n = 40_000
	}
	c := newClient(serve(t, t.TempDir()))
	for _, f := range []struct {
		name  string
		takes time.Duration
		least float64
	}{{"2ms", 2 * time.Millisecond, 4}, {"0ms", 0, 2}} {
		best := 0.0
		for round := 0; best < f.least && round < rounds; round++ { // other programs on the machine may spoil one
			single := herdRate(t, c, fmt.Sprintf("single.%s.%d", f.name, round), "", f.takes, n)
			many := herdRate(t, c, fmt.Sprintf("many.%s.%d", f.name, round), `,"batch":{"max":100}`, f.takes, n)
			t.Logf("a receiver that takes %s: single calls %.0f timers/s, calls of 100 %.0f: %.1f times", f.name, single, many, many/single)
			best = max(best, many/single)
		}
		if best < f.least {
			t.Errorf("a receiver that takes %s gets %.1f times as many timers a second, want %.0f", f.name, best, f.least)
		}
	}
}
