package timer

import (
	"encoding/hex"
	"strings"
)

// Trace is the W3C Trace Context of an add: the calls of its timer continue the same trace. It is
// kept unchanged.
type Trace struct {
	ID    [16]byte
	Span  [8]byte // of the request that added the timer
	Flags byte
	State string // tracestate: at most MaxTraceState printable bytes; "" is none
}

// MaxTraceState bounds a tracestate in bytes, as the specification has it. A longer one is dropped.
const MaxTraceState = 512

// traceFlags are the flags that version 00 defines: sampled, and random id.
const traceFlags = 0x03

// ParseTrace reads a traceparent and a tracestate. It returns nil for an invalid traceparent, as
// the specification requires: a trace is no reason to refuse a request.
func ParseTrace(parent, state string) *Trace {
	t := new(Trace)
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || strings.ToLower(parent) != parent {
		return nil
	}
	var version, flags [1]byte
	for _, part := range []struct {
		dst []byte
		src string
	}{{version[:], parent[:2]}, {t.ID[:], parent[3:35]}, {t.Span[:], parent[36:52]}, {flags[:], parent[53:55]}} {
		if _, err := hex.Decode(part.dst, []byte(part.src)); err != nil {
			return nil
		}
	}
	longer := len(parent) > 55
	if version[0] == 0xff || version[0] == 0 && longer || longer && parent[55] != '-' || t.ID == [16]byte{} || t.Span == [8]byte{} {
		return nil
	}
	t.Flags = flags[0] & traceFlags
	if len(state) <= MaxTraceState && !strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.State = state
	}
	return t
}

// Parent is the traceparent of a span in the trace.
func (t *Trace) Parent(span [8]byte) string {
	b := append(make([]byte, 0, 55), "00-"...)
	b = append(hex.AppendEncode(b, t.ID[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	return string(hex.AppendEncode(b, []byte{t.Flags}))
}
