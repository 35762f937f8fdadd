package e2e

import (
	"context"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// arrival is a call as the receiver saw it.
type arrival struct {
	at, done time.Time // done is zero while the call is open
	reached  time.Time // when its bytes had reached this machine, to some milliseconds; before at on a busy one
	peer     string    // address of the sender
	topic    string
	timer    string
	webhook  string
	attempt  int
	fence    uint64
	dueMs    int64
	askedMs  int64  // 0: nobody fired it by hand
	sum      uint64 // of the body
	status   int    // 0 while open, or without an answer
}

// early reports whether the call came before its due time, and before somebody asked for it (I4).
func (a arrival) early() bool {
	return a.at.UnixMilli() < a.dueMs && (a.askedMs == 0 || a.at.UnixMilli() < a.askedMs)
}

func (a arrival) lateness() time.Duration { return a.at.Sub(time.UnixMilli(a.dueMs)) }

func (a arrival) succeeded() bool { return a.status >= 200 && a.status < 300 }

// waited tells how long ago the last bytes of a connection had come when it is asked. Where the
// system does not tell it is 0.
var waited = func(net.Conn) time.Duration { return 0 }

// connOf is the key of a request's connection.
type connOf struct{}

// receiver logs every call. The test decides how it answers.
type receiver struct {
	server *httptest.Server
	handle func(w http.ResponseWriter, r *http.Request, n int) // n counts the timer's calls from 1

	mu    sync.Mutex
	log   []arrival
	calls map[string]int // by topic/timer
	open  atomic.Int64
}

// newReceiver starts a receiver that answers 200 unless handle answers otherwise.
func newReceiver(t testing.TB, handle func(w http.ResponseWriter, r *http.Request, n int)) *receiver {
	t.Helper()
	return newReceiverAt(t, "127.0.0.1:0", handle)
}

func newReceiverAt(t testing.TB, address string, handle func(w http.ResponseWriter, r *http.Request, n int)) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{handle: handle, calls: map[string]int{}}
	r.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: r, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connOf{}, c)
	}}}
	r.server.Start()
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

func (r *receiver) url() string { return r.server.URL + "/hook" }

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	reached := at.Add(-waited(req.Context().Value(connOf{}).(net.Conn)))
	r.open.Add(1)
	defer r.open.Add(-1)
	sum := fnv.New64a()
	_, _ = io.Copy(sum, req.Body) // a cut body shows by its sum
	h := req.Header
	a := arrival{at: at, reached: reached, peer: req.RemoteAddr, topic: h.Get("Carillon-Topic"), timer: h.Get("Carillon-Timer"), webhook: h.Get("Webhook-Id"), sum: sum.Sum64()}
	a.attempt, _ = strconv.Atoi(h.Get("Carillon-Attempt"))
	a.fence, _ = strconv.ParseUint(h.Get("Carillon-Fence"), 10, 64)
	a.dueMs, _ = strconv.ParseInt(h.Get("Carillon-Due"), 10, 64)
	a.askedMs, _ = strconv.ParseInt(h.Get("Carillon-Asked"), 10, 64)
	r.mu.Lock()
	key := a.topic + "/" + a.timer
	r.calls[key]++
	n, place := r.calls[key], len(r.log)
	r.log = append(r.log, a)
	r.mu.Unlock()
	noted := &statusWriter{ResponseWriter: w}
	defer func() {
		r.mu.Lock()
		if place < len(r.log) { // the log may have been emptied
			r.log[place].done, r.log[place].status = time.Now(), noted.status
		}
		r.mu.Unlock()
	}()
	if r.handle == nil {
		noted.WriteHeader(200)
		return
	}
	r.handle(noted, req, n)
	if noted.status == 0 {
		noted.WriteHeader(200)
	}
}

// statusWriter records the status. Unwrap allows hijacking.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// arrivals returns a copy of the log, in order.
func (r *receiver) arrivals() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// openBetween counts the calls that were open at any time between from and to.
func (r *receiver) openBetween(from, to time.Time) (n int64) {
	for _, a := range r.arrivals() {
		if a.at.Before(to) && (a.done.IsZero() || a.done.After(from)) {
			n++
		}
	}
	return n
}

// forget empties the log after its check.
func (r *receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log, r.calls = nil, map[string]int{}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

// called counts the calls of one timer, open ones included.
func (r *receiver) called(topic, id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[topic+"/"+id]
}

// answered counts the calls whose handler has returned.
func (r *receiver) answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for i := range r.log {
		if !r.log[i].done.IsZero() {
			n++
		}
	}
	return n
}

// of returns the calls of one timer.
func (r *receiver) of(topic, id string) []arrival {
	var out []arrival
	for _, a := range r.arrivals() {
		if a.topic == topic && a.timer == id {
			out = append(out, a)
		}
	}
	return out
}

func sumOf(body string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, body)
	return h.Sum64()
}

// spread has the figures that tests log and bound.
type spread struct{ p50, p99, max time.Duration }

func spreadOf(d []time.Duration) spread {
	if len(d) == 0 {
		return spread{}
	}
	d = slices.Sorted(slices.Values(d))
	return spread{d[len(d)/2], d[min(len(d)-1, len(d)*99/100)], d[len(d)-1]}
}

func (s spread) String() string {
	ms := func(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) }
	return "p50 " + ms(s.p50) + " p99 " + ms(s.p99) + " max " + ms(s.max) + " ms"
}
