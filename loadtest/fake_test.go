package loadtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/client"
	"carillon/test/testkit"
)

// fault makes the fake server break one promise for the timers it is asked
// about.
type fault int

const (
	faultNone            fault = iota
	faultDrop                  // acknowledges, never fires
	faultEarly                 // fires 200 ms before the due time, and says so
	faultEarlyLie              // the same, with a due time in the header that hides it
	faultDouble                // fires twice
	faultFireCancelled         // answers prevented, fires all the same
	faultErrorButFires         // answers 503, yet takes the timer
	faultErrorAndForgets       // answers 503 and forgets
	faultErrorFiresTwice       // answers 503 and fires twice
	faultRefuseButFires        // answers 429, yet takes the timer
	faultHangButFires          // never answers the add, yet takes the timer
	faultVanish                // acknowledges, then knows nothing of it
	faultOldVersion            // acknowledges a patch, fires the old version
	faultTorn                  // after a patch, fires the old payload at the new time
	faultCorrupt               // fires with another body
	faultRetry                 // fires as a second attempt
	// Closes the connection instead of an answer, yet takes the timer.
	faultCutConnection
	faultCancelUnanswered // answers a cancel with 503, having done it
	faultDead             // a cancel finds a dead letter
	faultNoAttempt        // fires without saying which attempt it is
	faultNoWebhookID      // fires without a webhook-id
	faultAlias            // fires once more, under an id that nobody gave
	faultOldTime          // acknowledges a patch, fires its payload at the old time
	// Acknowledges a patch of a timer that has fired, and does nothing.
	faultPatchAfterFire
	faultPatchRefusedButDone // answers a patch with 409, having done it
	faultPatchUnanswered     // answers a patch with 503, having done it
	faultOtherAnswer         // answers as if it had been asked for another timer
	faultTwoAnswers          // gives two answers at once
	// Gives a second answer a little later: is it the next request's?
	faultLateAnswer
	faultHalfBody    // ends the connection in the middle of an answer
	faultGarbage     // answers bytes that are no HTTP
	faultRedirect    // answers 307
	faultLoris       // answers a byte at a time
	faultStaleRead   // reads show the version before the last change
	faultWrongResult // a batch's result names another timer
	faultInFlight    // says to the first cancel that a call is under way
	faultDeaf        // answers a cancel with 503, and does not cancel
	faultBusy        // answers 503 and forgets, with Retry-After: 2
	faultPaused      // its topic is paused now, and the timer waits
)

// fake is a small, single-node, forgetful implementation of the HTTP API whose
// faults can be chosen timer by timer.
type fake struct {
	paused atomic.Bool // the topic loadtest
	pipes  *pipes
	server *http.Server
	// its listeners' goroutines
	serving sync.WaitGroup
	url     string
	others  []string                      // URLs of more servers of the same cluster; see also
	stall   atomic.Pointer[chan struct{}] // answers wait while there is one and it is open
	client  *http.Client
	faults  func(number int64) fault
	failed  atomic.Int64   // deliveries without an answer
	looks   atomic.Int64   // at the metrics
	passed  atomic.Int64   // requests on single timers that another server decides; see also
	calls   sync.WaitGroup // deliveries scheduled or under way
	stop    chan struct{}  // closed at the end: hanging answers give up

	mu     sync.Mutex
	timers map[string]*fakeTimer
}

type fakeTimer struct {
	topic, id, callback string
	due                 int64
	payload, first      []byte
	state               string // scheduled, done, cancelled
	fence               int
	alarm               *time.Timer
	fault               fault
}

// fakeOp is the part of an operation that the fake understands.
type fakeOp struct {
	Op       string          `json:"op"`
	ID       string          `json:"id"`
	AtMs     int64           `json:"at_ms"`
	Payload  json.RawMessage `json:"payload"`
	Callback struct {
		URL string `json:"url"`
	} `json:"callback"`
}

func newFake(t *testing.T, faults func(int64) fault) *fake {
	return newFakeOn(t, newPipes(), faults)
}

func newFakeOn(t *testing.T, on *pipes, faults func(int64) fault) *fake {
	f := &fake{pipes: on, faults: faults, timers: map[string]*fakeTimer{}, stop: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{DialContext: on.dial, MaxIdleConnsPerHost: 32, MaxConnsPerHost: 32}}}
	if faults == nil {
		f.faults = func(int64) fault { return faultNone }
	}
	listener, err := on.listen("", "")
	testkit.Must(t, err)
	f.server, f.url = &http.Server{Handler: f}, "http://"+listener.Addr().String()
	f.serving.Go(func() { _ = f.server.Serve(listener) }) // ends with ErrServerClosed
	t.Cleanup(func() {
		close(f.stop)
		f.mu.Lock()
		for _, timer := range f.timers {
			f.halt(timer)
		}
		f.mu.Unlock()
		f.calls.Wait()
		f.server.Close()
		f.serving.Wait()
		f.client.CloseIdleConnections()
	})
	return f
}

const fakeShards = 8

// also makes the fake listen as one more server of the same cluster. Shards are led by its servers
// in turn.
func (f *fake) also(t *testing.T) {
	listener, err := f.pipes.listen("", "")
	testkit.Must(t, err)
	f.others = append(f.others, "http://"+listener.Addr().String())
	f.serving.Go(func() { _ = f.server.Serve(listener) })
}

// nameLeader names the server that leads the timer's shard, where that is another.
func (f *fake) nameLeader(w http.ResponseWriter, asked, topic, id string) {
	if f.others == nil {
		return
	}
	servers := append([]string{f.url}, f.others...)
	shard := client.ShardOf(topic, id, fakeShards)
	if leader := strings.TrimPrefix(servers[shard%len(servers)], "http://"); leader != asked && leader != asked+":80" {
		f.passed.Add(1)
		w.Header().Set(client.LeaderHeader, fmt.Sprintf(`"%s";shard=%d;shards=%d`, leader, shard, fakeShards))
	}
}

// every gives the fault to each nth timer.
func every(n int64, what fault) func(int64) fault {
	return func(number int64) fault {
		if number%n == 0 {
			return what
		}
		return faultNone
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		_, _ = io.WriteString(w, `{"status":"ok","version":"v-fake"}`)
		return
	case "/v1/topics":
		_, _ = fmt.Fprintf(w, `{"topics":[{"topic":"other","paused":true},{"topic":"loadtest","paused":%t}]}`, f.paused.Load())
		return
	case "/metrics": // 4 more fsyncs at each look, all between 1 and 2 ms
		n := 4 * f.looks.Add(1)
		_, _ = fmt.Fprintf(w, "# TYPE carillon_wal_fsync_seconds histogram\ncarillon_wal_fsync_seconds_bucket{le=\"0.001\"} 7\ncarillon_wal_fsync_seconds_bucket{le=\"0.002\"} %d\n"+
			"carillon_wal_fsync_seconds_bucket{le=\"+Inf\"} %d\ncarillon_wal_fsync_seconds_sum 1\n", 7+n, 7+n)
		return
	}
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/topics/"), "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if part[1] == "batch" {
		f.serveBatch(w, part[0], body)
		return
	}
	op := fakeOp{}
	if len(body) > 0 && json.Unmarshal(body, &op) != nil {
		w.WriteHeader(400)
		return
	}
	if stall := f.stall.Load(); stall != nil {
		<-*stall
	}
	op.Op = "add"
	if number := numberOf(op.ID); len(part) == 2 && f.misanswer(w, part[0], op, f.faults(number)) {
		return
	}
	op.Op = map[string]string{"POST": "add", "PATCH": "patch", "DELETE": "cancel", "GET": "get"}[r.Method]
	if len(part) == 3 {
		op.ID = part[2]
	}
	f.nameLeader(w, r.Host, part[0], op.ID)
	status, outcome := f.apply(part[0], op)
	switch status {
	case statusHang:
		select {
		case <-r.Context().Done():
		case <-f.stop:
		}
		return
	case statusCut:
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if f.faults(numberOf(op.ID)) == faultBusy {
		w.Header().Set("Retry-After", "2")
	}
	w.WriteHeader(status)
	if f.faults(numberOf(op.ID)) == faultOtherAnswer && op.Op == "add" {
		op.ID += "0"
	}
	if op.Op == "get" && status == 200 {
		f.writeTimer(w, part[0], op.ID)
		return
	}
	writeFakeResult(w, status, op.ID, outcome)
}

// writeTimer is the answer to a read.
func (f *fake) writeTimer(w io.Writer, topic, id string) {
	f.mu.Lock()
	timer := f.timers[topic+"/"+id]
	payload := timer.payload
	if timer.fault == faultStaleRead {
		payload = timer.first
	}
	f.mu.Unlock()
	io.WriteString(w, `{"id":"`+id+`","payload":`+string(payload)+`}`)
}

func (f *fake) serveBatch(w http.ResponseWriter, topic string, body []byte) {
	var batch struct{ Ops []fakeOp }
	if json.Unmarshal(body, &batch) != nil {
		w.WriteHeader(400)
		return
	}
	var out bytes.Buffer
	out.WriteString(`{"results":[`)
	for i, op := range batch.Ops {
		if i > 0 {
			out.WriteString(", ")
		}
		status, outcome := f.apply(topic, op)
		if f.faults(numberOf(op.ID)) == faultWrongResult {
			op.ID += "0"
		}
		writeFakeResult(&out, status, op.ID, outcome)
	}
	out.WriteString(`]}`)
	w.Write(out.Bytes())
}

func writeFakeResult(w io.Writer, status int, id, outcome string) {
	switch {
	case status >= 400:
		problem := `{"type":"about:blank","status":999,"title":"\"status\":201","outcome":"` + outcome + `"}`
		io.WriteString(w, `{"status":`+strconv.Itoa(status)+`,"error":`+problem+`}`)
	case outcome != "":
		io.WriteString(w, `{"outcome":"`+outcome+`","status":`+strconv.Itoa(status)+`}`)
	default:
		io.WriteString(w, `{"status":`+strconv.Itoa(status)+`,"id":"`+id+`"}`)
	}
}

// numberOf is the number at the end of an id, -1 if there is none.
func numberOf(id string) int64 {
	number, err := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return number
}

// Answers that are no HTTP status.
const (
	statusHang = -1
	statusCut  = -2
)

func (f *fake) apply(topic string, op fakeOp) (status int, outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := topic + "/" + op.ID
	timer := f.timers[key]
	if op.Op == "add" {
		if timer != nil {
			return 409, ""
		}
		return f.add(key, topic, op)
	}
	if timer == nil {
		return 404, ""
	}
	switch op.Op {
	case "patch":
		return f.patch(timer, op)
	case "cancel":
		return f.cancel(timer)
	}
	return 200, ""
}

func (f *fake) add(key, topic string, op fakeOp) (int, string) {
	number := numberOf(op.ID)
	if number < 0 {
		return 400, ""
	}
	timer := &fakeTimer{topic: topic, id: op.ID, callback: op.Callback.URL, due: op.AtMs,
		payload: op.Payload, first: op.Payload, state: "scheduled", fault: f.faults(number)}
	if timer.fault == faultErrorAndForgets || timer.fault == faultBusy {
		return 503, ""
	}
	if timer.fault != faultVanish {
		f.timers[key] = timer
		f.arm(timer)
	}
	switch timer.fault {
	case faultErrorButFires, faultErrorFiresTwice:
		return 503, ""
	case faultRefuseButFires:
		return 429, ""
	case faultHangButFires:
		return statusHang, ""
	case faultCutConnection:
		return statusCut, ""
	}
	return 201, ""
}

func (f *fake) patch(timer *fakeTimer, op fakeOp) (int, string) {
	if timer.state != "scheduled" || !f.halt(timer) {
		if timer.fault == faultPatchAfterFire {
			return 200, ""
		}
		return 410, ""
	}
	switch timer.fault {
	case faultOldVersion:
	case faultOldTime:
		timer.payload = op.Payload
	case faultTorn:
		timer.due = op.AtMs
	default:
		timer.due, timer.payload = op.AtMs, op.Payload
	}
	f.arm(timer)
	switch timer.fault {
	case faultPatchRefusedButDone:
		return 409, ""
	case faultPatchUnanswered:
		return 503, ""
	}
	return 200, ""
}

func (f *fake) cancel(timer *fakeTimer) (int, string) {
	switch {
	case timer.fault == faultInFlight:
		timer.fault = faultNone
		return 202, "in_flight"
	case timer.fault == faultDeaf:
		return 503, ""
	case timer.state == "cancelled":
		return 200, "prevented"
	case timer.fault == faultDead:
		return 410, "dead"
	case timer.state != "scheduled":
		return 410, "already_fired"
	case timer.fault == faultFireCancelled:
		return 200, "prevented"
	case !f.halt(timer):
		return 202, "in_flight"
	}
	timer.state = "cancelled"
	if timer.fault == faultCancelUnanswered {
		return 503, ""
	}
	return 200, "prevented"
}

// arm plans the delivery, with the timer's fault.
func (f *fake) arm(timer *fakeTimer) {
	wait := time.Until(time.UnixMilli(timer.due))
	switch timer.fault {
	case faultDrop, faultDead:
		return
	case faultPaused:
		f.paused.Store(true)
		return
	case faultEarly, faultEarlyLie:
		wait -= 200 * time.Millisecond
	}
	f.calls.Add(1)
	timer.alarm = time.AfterFunc(wait, func() {
		defer f.calls.Done()
		f.fire(timer)
	})
}

// halt takes a planned delivery back, false if it is too late.
func (f *fake) halt(timer *fakeTimer) bool {
	if timer.alarm == nil {
		return true
	}
	if !timer.alarm.Stop() {
		return false
	}
	timer.alarm = nil
	f.calls.Done()
	return true
}

func (f *fake) fire(timer *fakeTimer) {
	f.mu.Lock()
	timer.state = "done"
	fault, due, payload, attempt, times := timer.fault, timer.due, timer.payload, 1, 1
	f.mu.Unlock()
	switch fault {
	case faultEarlyLie:
		due -= 200
	case faultDouble, faultErrorFiresTwice:
		times = 2
	case faultCorrupt:
		payload = append([]byte(" "), payload...)
	case faultRetry:
		attempt = 2
	}
	id, webhook := timer.id, timer.id
	switch fault {
	case faultNoAttempt:
		attempt = 0
	case faultNoWebhookID:
		webhook = ""
	case faultAlias:
		times = 2
	}
	for range times {
		timer.fence++
		request, err := http.NewRequest("POST", timer.callback, bytes.NewReader(payload))
		if err != nil {
			return
		}
		for name, value := range map[string]string{
			"Carillon-Topic": timer.topic, "Carillon-Timer": id, "Carillon-Due": strconv.FormatInt(due, 10),
			"Carillon-Attempt": strconv.Itoa(attempt), "Carillon-Fence": strconv.Itoa(timer.fence), "webhook-id": webhook,
		} {
			request.Header.Set(name, value)
		}
		response, err := f.client.Do(request)
		if err != nil {
			f.failed.Add(1)
			continue
		}
		response.Body.Close()
		if fault == faultAlias {
			id += "-again"
		}
	}
}
