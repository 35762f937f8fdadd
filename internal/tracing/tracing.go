// Package tracing reports to an OpenTelemetry collector what a node does for others: a span for
// each traced change through the API, and one for each attempt.
//
// A change is traced if its caller's trace is, or by chance. A timer carries the trace of the
// change that made it (timer.Trace), so whichever node calls its receiver knows whether to report
// that, and under which trace. Nothing else is stored, and no other package knows of spans.
//
// A span is recorded when it is over. It waits in a queue of maxQueue spans for the exporter; when
// that is full, as when the collector is down, it is counted and dropped. Nothing waits for it.
package tracing

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"carillon/timer"
)

const (
	maxQueue    = 2048            // spans that wait to be exported
	stopTime    = 5 * time.Second // for those that wait when the node stops
	logInterval = time.Minute     // of failures to export, and of faults
)

// otelFault is logged instead of what OpenTelemetry reports: that has values of settings.
const otelFault = "OpenTelemetry reports a fault: its text may have credentials, and is left out"

// Sampled is the flag of a trace that is reported, random that its id is.
const (
	Sampled = 1
	random  = 2
)

// Tracer reports spans. nil reports none: all its methods may be called.
type Tracer struct {
	cfg    Config
	sample float64
	log    *slog.Logger
	tracer atomic.Pointer[trace.Tracer] // nil while it does not run

	queued         atomic.Int64 // handed to the SDK, and not exported yet
	exported, lost atomic.Int64
	logged         atomic.Int64  // Unix ns of the last failure to export that was logged
	faulted        atomic.Int64  // and of OpenTelemetry's last fault that was
	patience       time.Duration // stopTime, except in tests
}

// New makes a tracer; nil if nothing is to be traced. The configuration has been validated.
func New(cfg Config, log *slog.Logger) *Tracer {
	if !cfg.on() {
		return nil
	}
	sample, _ := cfg.sample()
	return &Tracer{cfg: cfg, sample: sample, log: log, patience: stopTime}
}

// Run exports spans until the context ends, and then those that wait.
func (t *Tracer) Run(ctx context.Context) error {
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {
		if isDue(&t.faulted) {
			t.log.Warn(otelFault)
		}
	}))
	var options []otlptracehttp.Option
	if t.cfg.Endpoint != "" {
		u, err := url.Parse(t.cfg.Endpoint)
		if err != nil {
			return err
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.JoinPath("v1", "traces").String()))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return err
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "carillon"), attribute.String("service.version", t.cfg.Version), attribute.String("service.instance.id", t.cfg.Node),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if about == nil {
		return errors.Join(err, exporter.Shutdown(ctx))
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(counted{exporter, t}, sdk.WithMaxQueueSize(maxQueue)),
		sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(given{}),
	)
	tracer := provider.Tracer("carillon")
	t.tracer.Store(&tracer)
	<-ctx.Done()
	t.tracer.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.patience)
	defer cancel()
	if err := provider.Shutdown(ctx); err != nil {
		t.log.Warn("not all spans could be exported", "error", err)
	}
	return nil
}

// Exported and Lost count spans.
func (t *Tracer) Exported() int64 {
	if t == nil {
		return 0
	}
	return t.exported.Load()
}

// Lost counts the spans that the collector did not take, or for which there was no room.
func (t *Tracer) Lost() int64 {
	if t == nil {
		return 0
	}
	return t.lost.Load()
}

// Span is a change that is traced.
type Span struct {
	Trace  *timer.Trace // of what the change does: the span is its parent
	parent [8]byte      // zero: there is none
}

// Begin decides whether a change is traced. from is the trace that it came with, nil for none. nil:
// it is not traced, and what it does continues the trace that it came with.
func (t *Tracer) Begin(from *timer.Trace) *Span {
	switch {
	case t == nil || from != nil && from.Flags&Sampled == 0:
		return nil
	case from != nil:
		own := *from
		own.Span = t.newSpan()
		return &Span{&own, from.Span}
	case float64(t.cfg.Rand()>>11)/(1<<53) >= t.sample:
		return nil
	}
	own := timer.Trace{Span: t.newSpan(), Flags: Sampled | random}
	binary.BigEndian.PutUint64(own.ID[:], max(t.cfg.Rand(), 1))
	binary.BigEndian.PutUint64(own.ID[8:], t.cfg.Rand())
	return &Span{Trace: &own}
}

func (t *Tracer) newSpan() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], max(t.cfg.Rand(), 1))
	return id
}

// Change is a request of the API that is over.
type Change struct {
	Method, Path string // of the route
	Topic, Timer string // "": none in the path
	Status       int
	Begun        time.Time
	Took         time.Duration
}

// End reports the change of a span.
func (t *Tracer) End(s *Span, c *Change) {
	about := []attribute.KeyValue{
		attribute.String("http.request.method", c.Method), attribute.String("http.route", c.Path), attribute.Int("http.response.status_code", c.Status),
	}
	about = appendNames(about, c.Topic, c.Timer)
	t.record(&record{
		name: c.Method + " " + c.Path, kind: trace.SpanKindServer, trace: s.Trace, span: s.Trace.Span, parent: s.parent,
		begun: c.Begun, took: c.Took, about: about, failed: c.Status >= 500,
	})
}

// Traces reports whether the attempts of a timer with that trace are reported.
func (t *Tracer) Traces(of *timer.Trace) bool { return t != nil && of != nil && of.Flags&Sampled != 0 }

// Attempt is a call of a receiver that has ended, or a consumer's lease. What only calls have is
// left out then: method, URL, id and status.
type Attempt struct {
	Pulled       bool         // by a consumer
	Trace        *timer.Trace // of the timer
	Span         [8]byte      // that the receiver was given as its parent
	Number       int          // 1, 2, …
	Method, URL  string
	Topic, Timer string
	WebhookID    string
	Status       int    // 0: no answer
	Err          string // "": it was taken
	Begun        time.Time
	Took         time.Duration
}

// Attempt reports an attempt. The first is the child of the add that made the timer; the others are
// linked to that, too.
func (t *Tracer) Attempt(a *Attempt) {
	name, kind := "callback", trace.SpanKindClient
	about := []attribute.KeyValue{
		attribute.String("http.request.method", a.Method), attribute.Int("http.request.resend_count", a.Number-1), attribute.String("carillon.webhook_id", a.WebhookID),
	}
	if a.Pulled {
		name, kind, about = "pull", trace.SpanKindConsumer, []attribute.KeyValue{attribute.Int("carillon.attempt", a.Number)}
	}
	about = appendNames(about, a.Topic, a.Timer)
	if u, err := url.Parse(a.URL); err == nil && !a.Pulled { // path and query may have secrets
		about = append(about, attribute.String("server.address", u.Hostname()))
	}
	if a.Status != 0 {
		about = append(about, attribute.Int("http.response.status_code", a.Status))
	}
	why, _, _ := strings.Cut(a.Err, ": ") // what follows may come from the receiver
	if a.Err != "" {
		about = append(about, attribute.String("error.type", why))
	}
	t.record(&record{
		name: name, kind: kind, trace: a.Trace, span: a.Span, parent: a.Trace.Span, linked: a.Number > 1,
		begun: a.Begun, took: a.Took, about: about, failed: a.Err != "", why: why,
	})
}

func appendNames(to []attribute.KeyValue, topic, id string) []attribute.KeyValue {
	if topic != "" {
		to = append(to, attribute.String("carillon.topic", topic))
	}
	if id != "" {
		to = append(to, attribute.String("carillon.timer", id))
	}
	return to
}

// record is a span that is over.
type record struct {
	name   string
	kind   trace.SpanKind
	trace  *timer.Trace
	span   [8]byte
	parent [8]byte // zero: none
	linked bool    // to its parent
	begun  time.Time
	took   time.Duration
	about  []attribute.KeyValue
	failed bool
	why    string
}

func (t *Tracer) record(r *record) {
	tracer := t.tracer.Load()
	if t.queued.Add(1) > maxQueue || tracer == nil {
		t.queued.Add(-1)
		t.lost.Add(1)
		return
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: r.trace.ID, SpanID: r.parent, TraceFlags: Sampled, Remote: true})
	if state, err := trace.ParseTraceState(r.trace.State); err == nil {
		parent = parent.WithTraceState(state)
	}
	ctx := context.WithValue(trace.ContextWithSpanContext(context.Background(), parent), ids{}, r)
	options := []trace.SpanStartOption{trace.WithSpanKind(r.kind), trace.WithTimestamp(r.begun), trace.WithAttributes(r.about...)}
	if r.linked {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	_, span := (*tracer).Start(ctx, r.name, options...)
	if r.failed {
		span.SetStatus(codes.Error, r.why)
	}
	span.End(trace.WithTimestamp(r.begun.Add(r.took)))
}

// ids is the key of a context's record.
type ids struct{}

// given is an sdk.IDGenerator: it has spans take the ids that they were given: others know them
// already.
type given struct{}

func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	r := ctx.Value(ids{}).(*record)
	return r.trace.ID, r.span
}

func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(ids{}).(*record).span
}

// counted is an exporter whose spans are counted. Its failures go to the node's log, not so often.
type counted struct {
	sdk.SpanExporter
	t *Tracer
}

func (c counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	n := int64(len(spans))
	c.t.queued.Add(-n)
	if err == nil {
		c.t.exported.Add(n)
		return nil
	}
	c.t.lost.Add(n)
	if isDue(&c.t.logged) {
		c.t.log.Warn("spans could not be exported", "error", err, "lost", c.t.lost.Load())
	}
	return nil
}

// isDue reports whether logInterval has passed since it last did.
func isDue(logged *atomic.Int64) bool {
	at, last := now().UnixNano(), logged.Load()
	return at-last >= logInterval.Nanoseconds() && logged.CompareAndSwap(last, at)
}
