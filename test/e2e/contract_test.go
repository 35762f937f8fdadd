package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestContract checks the contract of the HTTP API on one node. The checks run in parallel, each
// with its own topic. Bounds of fields are in the tables of contract_fields_test.go.
func TestContract(t *testing.T) {
	t.Parallel()
	c := newClient(serve(t, t.TempDir()))
	for _, section := range []struct {
		name   string
		checks []contractCheck
	}{
		{"2fields", contractFields}, {"2calls", contractCalls}, {"2lists", contractLists}, {"2merge", contractMerge}, {"2delivery", contractDelivery},
		{"3topics", contractTopics}, {"4pull", contractPull}, {"5dead", contractDead},
	} {
		for _, check := range section.checks {
			name := section.name + "." + check.name
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check.run(&talk{T: t, c: c, topic: name})
			})
		}
	}
}

type contractCheck struct {
	name string
	run  func(k *talk)
}

// talk sends requests about one topic.
type talk struct {
	*testing.T
	c     *client
	topic string
}

// said is an answer with its request.
type said struct {
	*talk
	answer
	asked string
}

// ask sends a request. A path that does not begin with /v1 is relative to the topic's.
func (k *talk) ask(method, path, body string, header ...string) *said {
	k.Helper()
	if !strings.HasPrefix(path, "/v1") {
		path = "/v1/topics/" + k.topic + path
	}
	a := k.c.do(method, path, body, header...)
	if a.err != nil {
		k.Fatalf("%s %s: %v", method, path, a.err)
	}
	if len(body) > 300 {
		body = body[:300] + "…"
	}
	return &said{k, a, method + " " + path + " " + body + " " + strings.Join(header, ": ")}
}

// add adds a timer to the topic.
func (k *talk) add(body string) *said { k.Helper(); return k.ask("POST", "/timers", body) }

func (k *talk) get(id string) *said { k.Helper(); return k.ask("GET", "/timers/"+id, "") }

// policy creates the topic with this policy.
func (k *talk) policy(body string) { k.Helper(); k.ask("PUT", "", body).is(201) }

func (s *said) is(status int) *said {
	s.Helper()
	if s.status != status {
		s.Fatalf("%s\n got %d %s\nwant %d", s.asked, s.status, s.body, status)
	}
	return s
}

// refused demands a problem document with this status and code.
func (s *said) refused(status int, code string) *said {
	s.Helper()
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
		Retryable                 *bool
	}
	_ = json.Unmarshal(s.body, &p) // not a problem document: no code
	later := status == 429 || status == 503
	switch {
	case s.status != status || p.Code != code:
		s.Errorf("%s\n got %d %s\nwant %d %s", s.asked, s.status, s.body, status, code)
	case p.Status != status || p.Type == "" || p.Title == "" || p.Detail == "" || p.Retryable == nil || s.header.Get("Content-Type") != "application/problem+json":
		s.Errorf("%s\nno good problem document: %q %s", s.asked, s.header.Get("Content-Type"), s.body)
	case later != (s.header.Get("Retry-After") != "") || later && !*p.Retryable:
		s.Errorf("%s\n%d with Retry-After %q: %s", s.asked, status, s.header.Get("Retry-After"), s.body)
	}
	return s
}

// has takes pairs of a path in the answer and the JSON demanded there, "" for none and "*" for any.
func (s *said) has(pairs ...string) *said {
	s.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got, want := s.field(pairs[i]), pairs[i+1]; got != want && (want != "*" || got == "") {
			s.Fatalf("%s\n%s is %q, want %q: %s", s.asked, pairs[i], got, want, s.body)
		}
	}
	return s
}

// field is the JSON at a path of names and indices separated by slashes, "" if there is none.
func (s *said) field(path string) string {
	var v any
	if err := json.Unmarshal(s.body, &v); err != nil {
		return ""
	}
	for name := range strings.SplitSeq(path, "/") {
		switch node := v.(type) {
		case map[string]any:
			inner, ok := node[name]
			if !ok {
				return ""
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(node) {
				return ""
			}
			v = node[i]
		default:
			return ""
		}
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func (s *said) number(path string) int64 {
	s.Helper()
	n, err := strconv.ParseInt(s.field(path), 10, 64)
	if err != nil {
		s.Fatalf("%s\n%s is %q: %s", s.asked, path, s.field(path), s.body)
	}
	return n
}

func (s *said) text(path string) (text string) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.field(path)), &text); err != nil {
		s.Fatalf("%s\n%s is %q: %s", s.asked, path, s.field(path), s.body)
	}
	return text
}

// ids are the ids in a list of timers or history entries, separated by spaces.
func (s *said) ids() string {
	s.Helper()
	var page struct{ Timers, Entries []struct{ ID string } }
	s.is(200).decode(s, &page)
	var ids []string
	for _, x := range append(page.Timers, page.Entries...) {
		ids = append(ids, x.ID)
	}
	return strings.Join(ids, " ")
}

func (s *said) lists(want string) *said {
	s.Helper()
	if got := s.ids(); got != want {
		s.Errorf("%s\n lists %q, want %q", s.asked, got, want)
	}
	return s
}

// until reads the timer until the field has this value.
func (k *talk) until(id, path, want string) *said {
	k.Helper()
	var s *said
	if !holdsWithinBy(5*time.Millisecond, patience, func() bool { s = k.get(id); return s.field(path) == want }) {
		k.Fatalf("%s: %s is not %s: %s", id, path, want, s.body)
	}
	return s
}

// call is a request that a callee received.
type call struct {
	at           time.Time
	method, body string
	header       http.Header
}

func (c call) attempt() string { return c.header.Get("Carillon-Attempt") }

func (c call) fence() int64 {
	n, _ := strconv.ParseInt(c.header.Get("Carillon-Fence"), 10, 64)
	return n
}

// callee is a receiver that records its calls. It answers each with the next status and repeats the
// last one; the default is 200.
type callee struct {
	k   *talk
	url string

	mu       sync.Mutex
	calls    []call
	statuses []int
	release  chan struct{} // if not nil, calls wait until it is closed
}

func (k *talk) callee(statuses ...int) *callee {
	r := &callee{k: k, statuses: statuses}
	server := httptest.NewServer(r)
	k.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	r.url = server.URL
	return r
}

// holding returns a callee whose calls stay open until letGo.
func (k *talk) holding(statuses ...int) *callee {
	r := k.callee(statuses...)
	r.release = make(chan struct{})
	k.Cleanup(func() { r.letGo() })
	return r
}

func (r *callee) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.release != nil {
		close(r.release)
		r.release = nil
	}
}

func (r *callee) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	body, _ := io.ReadAll(req.Body)
	header := req.Header.Clone()
	header.Set("Host", req.Host)
	r.mu.Lock()
	r.calls = append(r.calls, call{at, req.Method, string(body), header})
	release, status := r.release, 200
	if len(r.statuses) > 0 {
		status = r.statuses[0]
		if len(r.statuses) > 1 {
			r.statuses = r.statuses[1:]
		}
	}
	r.mu.Unlock()
	if release != nil {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
	if status/100 == 3 {
		w.Header().Set("Location", r.url+"/elsewhere")
	}
	w.WriteHeader(status)
}

func (r *callee) all() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// await waits for the n-th call.
func (r *callee) await(n int) call {
	r.k.Helper()
	if !holdsWithinBy(2*time.Millisecond, patience, func() bool { return len(r.all()) >= n }) {
		r.k.Fatalf("there were %d calls, not %d", len(r.all()), n)
	}
	return r.all()[n-1]
}

// nobody is a callback to a port where nothing listens, for timers that are not called.
const nobody = `"callback":{"url":"http://127.0.0.1:9/"}`
