package api

import (
	"strings"

	"carillon/timer"
)

// readTrace is the context that a request came with; nil when it has none, or none that can be
// read.
func (rq *request) readTrace() *timer.Trace {
	h := &rq.ctx.Request.Header
	parents := h.PeekAll("Traceparent")
	if len(parents) != 1 {
		return nil
	}
	parent := string(parents[0])
	var states []string
	for _, line := range h.PeekAll("Tracestate") {
		states = append(states, string(line))
	}
	return timer.ParseTrace(parent, strings.Join(states, ","))
}

// appendTrace writes a timer's trace as it came, a comma first.
func appendTrace(b []byte, t *timer.Trace) []byte {
	b = append(append(append(b, `,"traceparent":"`...), t.Parent(t.Span)...), '"')
	if t.State != "" {
		b = appendString(append(b, `,"tracestate":`...), t.State)
	}
	return b
}
