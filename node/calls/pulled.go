package calls

import (
	"time"

	"carillon/internal/tracing"
	"carillon/timer"
)

// PulledAttempt is what the node that a consumer reports to has to know for the attempt's span: it
// need not be the node that gave the lease.
type PulledAttempt struct {
	Trace   [16]byte
	Add     [8]byte // span of the add
	Number  uint64  // 1, 2, …
	BegunMs uint64  // Unix time
	ID      string  // of the timer
}

// span is the span of a traced attempt, which its consumer is given as the parent of its own.
func (r *Receipt) span() [8]byte { return spanOf(string(r.Attempt.Trace[:])+r.Attempt.ID, r.Fence) }

// Begin has the receipt carry the attempt of a timer whose trace is reported. The consumer is given
// the attempt's span, as a receiver is.
func (r *Receipt) Begin(t *timer.Timer, now time.Time, tracer *tracing.Tracer) {
	if !tracer.Traces(t.Trace) {
		return
	}
	r.Attempt = PulledAttempt{Trace: t.Trace.ID, Add: t.Trace.Span, Number: uint64(t.Attempts), BegunMs: uint64(now.UnixMilli()), ID: t.ID}
	own := *t.Trace
	own.Span = r.span()
	t.Trace = &own
}

// End reports an attempt whose consumer acked or nacked it, in time or not (held). One whose
// consumer reports nothing has no span.
func (r *Receipt) End(topic string, by timer.Kind, held bool, now time.Time, tracer *tracing.Tracer) {
	a := &r.Attempt
	if *a == (PulledAttempt{}) || by == timer.ExtendLease || tracer == nil {
		return
	}
	why := ""
	switch {
	case !held:
		why = "the lease was over"
	case by == timer.NackLease:
		why = "nack"
	}
	begun := time.UnixMilli(int64(a.BegunMs))
	tracer.Attempt(&tracing.Attempt{
		Trace: &timer.Trace{ID: a.Trace, Span: a.Add, Flags: tracing.Sampled}, Span: r.span(), Number: int(a.Number), Pulled: true,
		Topic: topic, Timer: a.ID, Err: why, Begun: begun, Took: max(0, now.Sub(begun)),
	})
}
