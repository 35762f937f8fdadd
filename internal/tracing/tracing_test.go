package tracing

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"carillon/test/testkit"
	"carillon/timer"
)

// fakeCollector keeps the spans that it is sent.
type fakeCollector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*otlp.Span
	resource string
	header   http.Header
}

func newCollector(t *testing.T) *fakeCollector {
	c := &fakeCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.header = r.Header
		for _, of := range request.GetResourceSpans() {
			c.resource = of.GetResource().String()
			for _, s := range of.GetScopeSpans() {
				c.spans = append(c.spans, s.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// run runs a tracer while do does something, and until all of it is exported.
func run(t *testing.T, cfg Config, do func(*Tracer)) *Tracer {
	t.Helper()
	return runWith(t, cfg, slog.New(slog.DiscardHandler), do)
}

func runWith(t *testing.T, cfg Config, log *slog.Logger, do func(*Tracer)) *Tracer {
	t.Helper()
	cfg.Rand = rand.Uint64
	tracer := New(cfg, log)
	tracer.patience = time.Minute
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracer.Run(ctx) }()
	for tracer.tracer.Load() == nil {
		<-time.After(time.Millisecond)
	}
	do(tracer)
	stop()
	testkit.Must(t, <-ended)
	return tracer
}

func all() *float64 { one := 1.0; return &one }

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestSpans: an add that comes with a trace continues it; the first attempt is the add's child, the
// second is linked to it, too. They have the ids that the timer and its receiver know, and neither
// the URL's path nor what the receiver answered.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
	begun := time.UnixMilli(1_800_000_000_000)
	var made *timer.Trace
	tracer := run(t, Config{Endpoint: c.URL, Version: "v1", Node: "n1"}, func(tracer *Tracer) {
		s := tracer.Begin(timer.ParseTrace(caller, "congo=x"))
		made = s.Trace
		tracer.End(s, &Change{Method: "POST", Path: "/v1/topics/{topic}/timers", Topic: "orders", Status: 201, Begun: begun, Took: time.Millisecond})
		a := Attempt{Trace: made, Span: [8]byte{1}, Number: 1, Method: "POST", URL: "http://shop.example:8080/secret?token=x", Topic: "orders", Timer: "a", WebhookID: "msg_1", Status: 500, Err: "status 500: card declined", Begun: begun, Took: time.Second}
		tracer.Attempt(&a)
		a.Span, a.Number, a.Status, a.Err = [8]byte{2}, 2, 200, ""
		tracer.Attempt(&a)
	})
	if tracer.Exported() != 3 || tracer.Lost() != 0 || len(c.spans) != 3 {
		t.Fatalf("%d exported, %d lost, %d came", tracer.Exported(), tracer.Lost(), len(c.spans))
	}
	add, first, second := c.spans[0], c.spans[1], c.spans[2]
	from := timer.ParseTrace(caller, "")
	for i, s := range c.spans {
		if [16]byte(s.GetTraceId()) != from.ID || s.GetTraceState() != "congo=x" || s.GetStartTimeUnixNano() != uint64(begun.UnixNano()) {
			t.Errorf("span %d: %v", i, s)
		}
		if text := s.String(); strings.Contains(text, "secret") || strings.Contains(text, "token") || strings.Contains(text, "declined") {
			t.Errorf("span %d shows too much: %s", i, text)
		}
	}
	if [8]byte(add.GetParentSpanId()) != from.Span || [8]byte(add.GetSpanId()) != made.Span || made.Span == from.Span || add.GetKind() != otlp.Span_SPAN_KIND_SERVER ||
		add.GetName() != "POST /v1/topics/{topic}/timers" || add.GetStatus().GetCode() != otlp.Status_STATUS_CODE_UNSET || add.GetEndTimeUnixNano()-add.GetStartTimeUnixNano() != 1e6 {
		t.Errorf("the add: %v", add)
	}
	if [8]byte(first.GetParentSpanId()) != made.Span || [8]byte(first.GetSpanId()) != [8]byte{1} || len(first.GetLinks()) != 0 || first.GetKind() != otlp.Span_SPAN_KIND_CLIENT ||
		first.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || first.GetStatus().GetMessage() != "status 500" {
		t.Errorf("the first attempt: %v", first)
	}
	if [8]byte(second.GetSpanId()) != [8]byte{2} || len(second.GetLinks()) != 1 || [8]byte(second.GetLinks()[0].GetSpanId()) != made.Span || second.GetStatus().GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("the second attempt: %v", second)
	}
	for _, want := range []string{`"carillon"`, `"v1"`, `"n1"`, `"prod"`} {
		if !strings.Contains(c.resource, want) {
			t.Errorf("the resource lacks %s: %s", want, c.resource)
		}
	}
	if c.header.Get("Authorization") != "Bearer x" {
		t.Errorf("headers: %v", c.header)
	}
}

// TestSampling: a caller decides for its own traces; of the other changes a part is traced, each in
// a trace of its own.
func TestSampling(t *testing.T) {
	tracer := func(sample float64) *Tracer {
		return New(Config{Endpoint: "http://127.0.0.1:1", Sample: &sample, Rand: rand.Uint64}, nil)
	}
	traced := timer.ParseTrace(caller, "")
	not := timer.ParseTrace(caller[:len(caller)-1]+"0", "")
	for _, sample := range []float64{0, 1} {
		if tracer(sample).Begin(not) != nil || tracer(sample).Begin(traced) == nil {
			t.Errorf("sample %v overrules the caller", sample)
		}
	}
	for sample, want := range map[float64][2]int{0: {0, 0}, 0.01: {700, 1300}, 1: {100_000, 100_000}} {
		of, n, seen := tracer(sample), 0, map[[16]byte]bool{}
		for range 100_000 {
			if s := of.Begin(nil); s != nil {
				n++
				if seen[s.Trace.ID] || s.Trace.Span == [8]byte{} || s.parent != [8]byte{} || !of.Traces(s.Trace) || timer.ParseTrace(s.Trace.Parent(s.Trace.Span), "") == nil {
					t.Fatalf("%+v", s)
				}
				seen[s.Trace.ID] = true
			}
		}
		if n < want[0] || n > want[1] {
			t.Errorf("sample %v: %d of 100000", sample, n)
		}
	}
	var off *Tracer
	if off.Begin(traced) != nil || off.Traces(traced) || off.Lost()+off.Exported() != 0 {
		t.Error("no tracer traces")
	}
}

// TestCollectorThatIsDown: spans for a collector that refuses, or that hangs, are dropped and
// counted; reporting one takes no time.
func TestCollectorThatIsDown(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer hangs.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000") // more than anybody waits for
	for name, address := range map[string]string{"refuses": "127.0.0.1:1", "hangs": hangs.Addr().String()} {
		const spans = 10 * maxQueue
		tracer := run(t, Config{Endpoint: "http://" + address, Sample: all()}, func(tracer *Tracer) {
			begin := time.Now()
			for range spans {
				s := tracer.Begin(nil)
				tracer.End(s, &Change{Method: "PUT", Path: "/", Begun: begin, Status: 200})
			}
			if queued := tracer.queued.Load(); queued > maxQueue || time.Since(begin) > time.Minute {
				t.Errorf("%s: %d spans wait, after %v", name, queued, time.Since(begin))
			}
			tracer.patience = 300 * time.Millisecond
		})
		if tracer.Exported() != 0 || tracer.Lost() < spans-maxQueue {
			t.Errorf("%s: %d exported, %d lost", name, tracer.Exported(), tracer.Lost())
		}
	}
}

// TestConfig: tracing is off unless a collector is named, and the variables of OpenTelemetry count.
func TestConfig(t *testing.T) {
	half, two := 0.5, 2.0
	for name, tt := range map[string]struct {
		cfg    Config
		env    map[string]string
		on     bool
		sample float64
		fault  string
	}{
		"nothing":         {sample: DefaultSample},
		"a flag":          {cfg: Config{Endpoint: "http://c:4318"}, on: true, sample: DefaultSample},
		"a variable":      {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, on: true, sample: DefaultSample},
		"that of traces":  {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/x"}, on: true, sample: DefaultSample},
		"turned off":      {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_SDK_DISABLED": "true"}, sample: DefaultSample},
		"no exporter":     {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_TRACES_EXPORTER": "none"}, sample: DefaultSample},
		"a part":          {cfg: Config{Endpoint: "http://c:4318", Sample: &half}, env: map[string]string{"OTEL_TRACES_SAMPLER_ARG": "0.2"}, on: true, sample: 0.5},
		"variable's part": {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.2"}, on: true, sample: 0.2},
		"always":          {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, on: true, sample: 1},
		"never":           {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, on: true},
		"too much":        {cfg: Config{Endpoint: "http://c:4318", Sample: &two}, on: true, sample: 2, fault: "trace-sample: "},
		"no number":       {env: map[string]string{"OTEL_TRACES_SAMPLER_ARG": "x"}, fault: "trace-sample: "},
		"no URL":          {cfg: Config{Endpoint: "c:4318"}, on: true, sample: DefaultSample, fault: "otlp-endpoint: "},
		"a password":      {cfg: Config{Endpoint: "http://u:pw@c"}, on: true, sample: DefaultSample, fault: "otlp-endpoint: "},

		"variable's password": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:pw@c"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_ENDPOINT: "},
		"variable is no URL":  {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://u:pw@c:%zz"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "},
		"the flag counts":     {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317"}, on: true, sample: DefaultSample},
		"blank":               {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, sample: DefaultSample},
		"headers":             {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": " a=Bearer%20pw , b=c==,"}, on: true, sample: DefaultSample},
		"a comma in a header": {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=b,pw"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_HEADERS: "},
		"a header's name":     {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a b=pw"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_HEADERS: "},
		"a header's value":    {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=pw%zz"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_HEADERS: "},
		"a header's two lines": {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=pw%0Ab"}, on: true, sample: DefaultSample,
			fault: "OTEL_EXPORTER_OTLP_TRACES_HEADERS: "},
		"a timeout with a unit": {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "pw5s"}, on: true, sample: DefaultSample, fault: "OTEL_EXPORTER_OTLP_TIMEOUT: "},
		"a batch's number":      {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "1e3"}, on: true, sample: DefaultSample, fault: "OTEL_BSP_MAX_QUEUE_SIZE: "},
		"a negative delay":      {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "-1"}, on: true, sample: DefaultSample, fault: "OTEL_BSP_SCHEDULE_DELAY: "},
		"numbers":               {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "500", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "900"}, on: true, sample: DefaultSample},
		"another sampler":       {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_TRACES_SAMPLER": "pw"}, on: true, sample: DefaultSample, fault: "OTEL_TRACES_SAMPLER: "},
		"an attribute":          {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=b,pw"}, on: true, sample: DefaultSample, fault: "OTEL_RESOURCE_ATTRIBUTES: "},
		"an attribute's value":  {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=pw%zz"}, on: true, sample: DefaultSample, fault: "OTEL_RESOURCE_ATTRIBUTES: "},
		"attributes":            {cfg: Config{Endpoint: "http://c:4318"}, env: map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=b%20c,d="}, on: true, sample: DefaultSample},
		"headers of nothing":    {env: map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "pw"}, sample: DefaultSample},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range tt.env {
				t.Setenv(variable, value)
			}
			errs := tt.cfg.Validate()
			if (len(errs) == 0) != (tt.fault == "") || len(errs) > 0 && (!strings.HasPrefix(errs[0].Error(), tt.fault) || strings.Contains(errs[0].Error(), "pw")) {
				t.Errorf("faults: %v", errs)
			}
			if got, _ := tt.cfg.sample(); tt.cfg.on() != tt.on || got != tt.sample {
				t.Errorf("on %v, sample %v", tt.cfg.on(), got)
			}
		})
	}
}

// TestSettingsAreNotShown: OpenTelemetry writes settings that it cannot read to stderr, and they
// may be credentials. There is nothing but the node's log, and that has none of them.
func TestSettingsAreNotShown(t *testing.T) {
	const child = "CARILLON_TEST_OF_SETTINGS"
	if os.Getenv(child) != "" {
		runWith(t, Config{Endpoint: "http://127.0.0.1:1"}, slog.New(slog.NewJSONHandler(os.Stderr, nil)), func(*Tracer) {})
		return
	}
	program, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%zzsecret,secret", "OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret@c:%zz",
		"OTEL_EXPORTER_OTLP_TIMEOUT=secret", "OTEL_RESOURCE_ATTRIBUTES=password:secret,x=%zzsecret")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "secret") {
			t.Error(line)
		}
	}
	if strings.Count(stderr.String(), otelFault) != 1 {
		t.Errorf("the log: %s", stderr.String())
	}
}

// BenchmarkChange is what tracing costs a change: of one that is not chosen, and of one that is.
func BenchmarkChange(b *testing.B) {
	for name, sample := range map[string]float64{"none": 0, "one in 100": 0.01, "all": 1} {
		b.Run(name, func(b *testing.B) {
			drain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			defer drain.Close()
			tracer := New(Config{Endpoint: drain.URL, Sample: &sample, Rand: rand.Uint64}, slog.New(slog.DiscardHandler))
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- tracer.Run(ctx) }()
			for tracer.tracer.Load() == nil {
				<-time.After(time.Millisecond)
			}
			b.ReportAllocs()
			for b.Loop() {
				if s := tracer.Begin(nil); s != nil {
					tracer.End(s, &Change{Method: "PUT", Path: "/v1/topics/{topic}/timers/{id}", Topic: "orders", Timer: "a", Status: 200, Begun: time.Now()})
				}
			}
			stop()
			<-ended
		})
	}
}
