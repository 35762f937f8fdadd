package node

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"carillon/test/testkit"
	"carillon/timer"
)

// spanStore is a collector that keeps the spans that it is sent.
type spanStore struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
}

func newSpanStore(t *testing.T) *spanStore {
	c := &spanStore{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range request.GetResourceSpans() {
			for _, s := range of.GetScopeSpans() {
				c.spans = append(c.spans, s.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans of a name, the oldest first.
func (s *spanStore) named(name string) (all []*otlp.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if span.GetName() == name {
			all = append(all, span)
		}
	}
	return all
}

// TestTraces: an add, its failed attempt and its retry are spans of one trace; the receiver is told
// the attempt's span; lateness has the trace as its exemplar for who asks in OpenMetrics. Reads,
// and changes whose caller does not trace, have none.
func TestTraces(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	to := newSpanStore(t)
	every := 1.0
	n := start(t, t.TempDir(), func(c *Config) { c.OTLPEndpoint, c.TraceSample = to.URL, &every })
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		if a.attempt == 1 && a.timer == "a" {
			w.WriteHeader(500)
		}
	})
	n.must(201, "PUT", "/v1/topics/orders", `{"callback":{"url":"`+rec.URL+`"},"retry":{"min_backoff":"10ms","jitter":0}}`)
	add := func(id, traceparent string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", n.base+"/v1/topics/orders/timers", strings.NewReader(`{"id":"`+id+`","delay":"0s"}`))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		if traceparent != "" {
			req.Header.Set("traceparent", traceparent)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	add("quiet", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	add("a", "")
	n.eventually("orders", "a", "done")
	n.eventually("orders", "quiet", "done")
	until(t, "the spans are there", func() bool {
		return len(to.named("callback")) >= 2 && len(to.named("POST /v1/topics/{topic}/timers")) >= 1
	})
	adds, calls := to.named("POST /v1/topics/{topic}/timers"), to.named("callback")
	if len(adds) != 1 || len(calls) != 2 || len(to.named("PUT /v1/topics/{topic}")) != 1 || len(to.named("GET /v1/topics/{topic}/timers/{id}")) != 0 {
		t.Fatalf("%d adds, %d calls", len(adds), len(calls))
	}
	made := [8]byte(adds[0].GetSpanId())
	for i, s := range calls {
		if string(s.GetTraceId()) != string(adds[0].GetTraceId()) || [8]byte(s.GetParentSpanId()) != made || len(s.GetLinks()) != i {
			t.Errorf("call %d: %v", i, s)
		}
	}
	given := map[[8]byte]bool{}
	for _, a := range rec.await(t, 3) {
		tr := timer.ParseTrace(a.header.Get("traceparent"), "")
		if tr == nil {
			t.Fatalf("%s has no trace", a.timer)
		}
		if a.timer == "a" {
			given[tr.Span] = true
		} else if tr.Flags&1 != 0 {
			t.Errorf("%s is traced", a.timer)
		}
	}
	if !given[[8]byte(calls[0].GetSpanId())] || !given[[8]byte(calls[1].GetSpanId())] {
		t.Errorf("the receiver was given other spans: %v", given)
	}

	req, err := http.NewRequestWithContext(t.Context(), "GET", n.base+"/metrics", nil)
	testkit.Must(t, err)
	exemplar := `# {trace_id="` + hex.EncodeToString(adds[0].GetTraceId()) + `"}`
	until(t, "the exemplar is there", func() bool {
		req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		resp, err := http.DefaultClient.Do(req)
		testkit.Must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(string(body), "# EOF\n") {
			t.Fatalf("%v: %v", err, resp.Header)
		}
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "carillon_lateness_seconds_bucket{") && strings.Contains(line, exemplar) {
				return true
			}
		}
		return false
	})
	if plain := n.must(200, "GET", "/metrics", ""); strings.Contains(plain, "trace_id") || !strings.Contains(plain, "\ncarillon_spans_lost_total 0\n") {
		t.Error("the plain format has exemplars, or spans were lost")
	}
}

// TestTracesOfBatches: each traced timer of a call of many has a span of that attempt in its own
// trace, which failed if the call's answer names the timer.
func TestTracesOfBatches(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	to, never := newSpanStore(t), 0.0
	receiver := newTogetherReceiver(t, func(id string) string { return map[string]string{"bad": "no"}[id] })
	n := start(t, t.TempDir(), func(c *Config) { c.OTLPEndpoint, c.TraceSample, c.Shards = to.URL, &never, 1 })
	n.must(201, "PUT", "/v1/topics/many", `{"callback":{"url":"`+receiver.URL+`"},"batch":{"max":3,"wait":"60s"},"retry":{"max_attempts":1}}`)
	for id, trace := range map[string]string{
		"good": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "bad": "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "quiet": "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", n.base+"/v1/topics/many/timers", strings.NewReader(`{"id":"`+id+`","delay":"0s"}`))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("traceparent", trace)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	n.eventually("many", "quiet", "done")
	until(t, "the spans are there", func() bool { return len(to.named("callback")) >= 2 })
	got := map[string]string{}
	for _, s := range to.named("callback") {
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "carillon.timer" {
				got[a.GetValue().GetStringValue()] = hex.EncodeToString(s.GetTraceId()[:1]) + " " + s.GetStatus().GetMessage()
			}
		}
	}
	if len(got) != 2 || got["good"] != "0a " || got["bad"] != "1a failed" {
		t.Errorf("spans are %v", got)
	}
}

// TestTracesOfPulled: an attempt that a consumer acks or nacks, at any node, is a span of the add's
// trace, and the consumer is given that span; one whose lease was over failed.
func TestTracesOfPulled(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	to, every := newSpanStore(t), 1.0
	n := start(t, t.TempDir(), func(c *Config) { c.OTLPEndpoint, c.TraceSample = to.URL, &every })
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull","retry":{"min_backoff":"1ms"}}`)
	n.must(201, "POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s"}`)
	given := map[[8]byte]bool{}
	pull := func(lease string) string {
		t.Helper()
		var got struct {
			Timers []struct{ Receipt, Traceparent string }
		}
		if err := json.Unmarshal([]byte(n.must(200, "POST", "/v1/topics/jobs/pull", `{"wait":"60s","lease":"`+lease+`"}`)), &got); err != nil || len(got.Timers) != 1 {
			t.Fatal(got, err)
		}
		trace := timer.ParseTrace(got.Timers[0].Traceparent, "")
		if trace == nil {
			t.Fatal("the consumer is given no trace")
		}
		given[trace.Span] = true
		return got.Timers[0].Receipt
	}
	if got := n.claim("nack", pull("30s"), `,"delay":"0s","reason":"no colours left"`); got != 200 {
		t.Fatalf("nack: %d", got)
	}
	late := pull("1s")
	last := pull("30s") // once that lease is over
	if got := n.claim("ack", late, ""); got != 410 {
		t.Fatalf("a late ack: %d", got)
	}
	if got := n.claim("extend", last, ""); got != 200 {
		t.Fatalf("extend: %d", got)
	}
	if got := n.claim("ack", last, ""); got != 200 {
		t.Fatalf("ack: %d", got)
	}
	until(t, "the spans are there", func() bool { return len(to.named("pull")) >= 3 })
	spans, add := to.named("pull"), to.named("POST /v1/topics/{topic}/timers")
	if len(spans) != 3 || len(add) != 1 || len(given) != 3 {
		t.Fatalf("%d spans, %d adds, %d were given", len(spans), len(add), len(given))
	}
	for i, want := range []string{"nack", "the lease was over", ""} {
		s := spans[i]
		if string(s.GetTraceId()) != string(add[0].GetTraceId()) || string(s.GetParentSpanId()) != string(add[0].GetSpanId()) || len(s.GetLinks()) != min(i, 1) ||
			s.GetStatus().GetMessage() != want || !given[[8]byte(s.GetSpanId())] || s.GetKind() != otlp.Span_SPAN_KIND_CONSUMER || strings.Contains(s.String(), "colours") {
			t.Errorf("attempt %d: %v", i+1, s)
		}
		if !strings.Contains(s.String(), `"a"`) || !strings.Contains(s.String(), `"jobs"`) {
			t.Errorf("attempt %d lacks timer or topic: %v", i+1, s)
		}
	}
}
