package shard

import (
	"encoding/binary"
	"math"

	"carillon/timer"
)

// Bounds of what is read, far above what the API lets in: they protect memory, not policy.
const (
	maxID       = 255
	maxText     = 64 << 10 // a URL, a header's name or value, a label, a content type
	maxList     = 256      // headers, labels
	maxCallback = 1 << 20
	maxHandle   = 1<<28 - 1 // highest slot; far above what fits into memory
	maxErr      = 1 << 10   // bytes of an attempt's error; longer ones are cut
	maxAttempt  = 1<<16 - 1 // number of an attempt
)

// The fields of a callback, in this order, each at most once.
const (
	callbackURL = 1 + iota
	callbackMethod
	callbackHeaders
	callbackTimeout
	callbackOrigin
)

// The fields of a spec after due time and callback, in this order, each at most once. The payload is last and
// has no length: it takes the rest.
const (
	fieldPriority = 1 + iota
	fieldLabels
	fieldExpiry
	fieldContentType
	fieldMaxAttempts
	fieldMinBackoff
	fieldMaxBackoff
	fieldMultiplier
	fieldJitter
	fieldTrace   // LevelConventions
	fieldRepeat  = 20
	fieldPayload = 0x40 // | PayloadKind
)

// appendSpec writes due time, callback and the rest; a reader must know where it ends.
func appendSpec(dst []byte, s *timer.Spec) []byte {
	dst = binary.AppendVarint(dst, s.DueMs)
	var room [512]byte
	callback := appendCallback(room[:0], &s.Callback)
	dst = binary.AppendUvarint(dst, uint64(len(callback)))
	dst = append(dst, callback...)
	return appendRest(dst, s)
}

func appendCallback(dst []byte, c *timer.Callback) []byte {
	if c.URL != "" {
		dst = appendBlock(append(dst, callbackURL), c.URL)
	}
	if c.Method != "" {
		dst = appendBlock(append(dst, callbackMethod), c.Method)
	}
	if c.HasHeaders {
		dst = binary.AppendUvarint(append(dst, callbackHeaders), uint64(len(c.Headers)))
		for i := range c.Headers {
			dst = appendBlock(dst, c.Headers[i].Name)
			dst = appendBlock(dst, c.Headers[i].Value)
		}
	}
	if c.TimeoutMs != 0 {
		dst = binary.AppendVarint(append(dst, callbackTimeout), c.TimeoutMs)
	}
	if c.Origin != "" {
		dst = appendBlock(append(dst, callbackOrigin), c.Origin)
	}
	return dst
}

func decodeCallback(b []byte) (timer.Callback, error) {
	r := reader{b: b}
	var c timer.Callback
	for last := byte(0); len(r.b) > 0; {
		field := r.byte()
		if field <= last {
			r.fail("callback fields out of order")
		}
		last = field
		switch field {
		case callbackURL:
			c.URL = string(r.block(maxText, "URL"))
		case callbackMethod:
			c.Method = string(r.block(maxText, "method"))
		case callbackHeaders:
			c.HasHeaders = true
			for n := r.number(maxList, "headers"); n > 0 && r.fault == ""; n-- {
				name := string(r.block(maxText, "header"))
				c.Headers = append(c.Headers, timer.Header{Name: name, Value: string(r.block(maxText, "header"))})
			}
		case callbackTimeout:
			c.TimeoutMs = r.varint()
		case callbackOrigin:
			c.Origin = string(r.block(maxText, "origin"))
		default:
			r.fail("unknown callback field")
		}
	}
	return c, r.err()
}

func appendRest(dst []byte, s *timer.Spec) []byte {
	if s.Priority != 0 {
		dst = append(dst, fieldPriority, s.Priority)
	}
	if len(s.Labels) > 0 {
		dst = binary.AppendUvarint(append(dst, fieldLabels), uint64(len(s.Labels)))
		for _, label := range s.Labels {
			dst = appendBlock(dst, label)
		}
	}
	if s.HasExpiry {
		dst = binary.AppendVarint(append(dst, fieldExpiry), s.ExpiresAfterMs)
	}
	if s.ContentType != "" {
		dst = appendBlock(append(dst, fieldContentType), s.ContentType)
	}
	dst = appendRetry(dst, &s.Retry)
	if s.Trace != nil {
		dst = appendTrace(append(dst, fieldTrace), s.Trace)
	}
	if s.Repeat != nil {
		dst = appendRepeat(append(dst, fieldRepeat), s.Repeat)
	}
	if s.PayloadKind != timer.NoPayload || len(s.Payload) > 0 {
		dst = append(append(dst, fieldPayload|byte(s.PayloadKind)), s.Payload...)
	}
	return dst
}

func appendRetry(dst []byte, p *timer.Retry) []byte {
	if p.MaxAttempts != 0 {
		dst = binary.AppendVarint(append(dst, fieldMaxAttempts), int64(p.MaxAttempts))
	}
	if p.MinBackoffMs != 0 {
		dst = binary.AppendVarint(append(dst, fieldMinBackoff), p.MinBackoffMs)
	}
	if p.MaxBackoffMs != 0 {
		dst = binary.AppendVarint(append(dst, fieldMaxBackoff), p.MaxBackoffMs)
	}
	if p.Multiplier != 0 {
		dst = binary.LittleEndian.AppendUint64(append(dst, fieldMultiplier), math.Float64bits(p.Multiplier))
	}
	if p.HasJitter {
		dst = binary.LittleEndian.AppendUint64(append(dst, fieldJitter), math.Float64bits(p.Jitter))
	}
	return dst
}

// traceLen is the length of a trace without its state.
const traceLen = 16 + 8 + 1

func appendTrace(dst []byte, t *timer.Trace) []byte {
	dst = binary.AppendUvarint(dst, uint64(traceLen+len(t.State)))
	dst = append(append(dst, t.ID[:]...), t.Span[:]...)
	return append(append(dst, t.Flags), t.State...)
}

// decodeTrace reads what restField has checked.
func decodeTrace(b []byte) *timer.Trace {
	return &timer.Trace{ID: [16]byte(b), Span: [8]byte(b[16:]), Flags: b[24], State: string(b[traceLen:])}
}

// restField reads one field of a spec's rest. Texts stay in the block; labels are passed over but for their bytes.
type restField struct {
	field  byte
	bytes  []byte // text, labels (count and texts), payload
	number int64
	float  float64
}

// next reads the next field; false at the end, and when r.fault says that it is not one.
func (f *restField) next(r *reader) bool {
	if len(r.b) == 0 {
		return false
	}
	last := f.field
	f.field = r.byte()
	if f.field <= last {
		r.fail("spec fields out of order")
		return false
	}
	switch f.field {
	case fieldPriority:
		f.number = int64(r.byte())
	case fieldLabels:
		from := r.b
		for n := r.number(maxList, "labels"); n > 0 && r.fault == ""; n-- {
			r.block(maxText, "label")
		}
		f.bytes = from[:len(from)-len(r.b)]
	case fieldContentType:
		f.bytes = r.block(maxText, "content type")
	case fieldExpiry, fieldMaxAttempts, fieldMinBackoff, fieldMaxBackoff:
		f.number = r.varint()
	case fieldRepeat:
		f.bytes = r.block(maxRepeat, "repeat")
		if err := decodeRepeat(new(timer.Repeat), f.bytes); err != nil {
			r.fail("repeat cannot be read")
		}
	case fieldTrace:
		if f.bytes = r.block(traceLen+timer.MaxTraceState, "trace"); len(f.bytes) < traceLen {
			r.fail("trace is too short")
		}
	case fieldMultiplier, fieldJitter:
		f.float = math.Float64frombits(r.u64())
	case fieldPayload | byte(timer.NoPayload), fieldPayload | byte(timer.JSONPayload), fieldPayload | byte(timer.BinaryPayload):
		f.bytes = r.take(len(r.b))
	default:
		r.fail("unknown spec field")
	}
	return r.fault == ""
}

// specSummary are what the table itself reads in a spec's rest.
type specSummary struct {
	priority  uint8
	expiryMs  int64
	hasExpiry bool
	repeats   bool
}

// restFacts checks all of a spec's rest.
func restFacts(rest []byte) (specSummary, error) {
	var v specSummary
	r := reader{b: rest}
	for f := (restField{}); f.next(&r); {
		switch f.field {
		case fieldPriority:
			v.priority = uint8(f.number)
		case fieldExpiry:
			v.expiryMs, v.hasExpiry = f.number, true
		case fieldRepeat:
			v.repeats = true
		}
	}
	return v, r.err()
}

// restExpiry finds the expiry alone; the rest has been checked.
func restExpiry(rest []byte) (ms int64, ok bool) {
	r := reader{b: rest}
	for f := (restField{}); len(r.b) > 0 && r.b[0] <= fieldExpiry && f.next(&r); {
		if f.field == fieldExpiry {
			return f.number, true
		}
	}
	return 0, false
}

// decodeRest fills the fields of s that a rest carries, without the callback and the due time. Everything is copied.
func decodeRest(s *timer.Spec, rest []byte, payload bool) error {
	r := reader{b: rest}
	for f := (restField{}); f.next(&r); {
		switch f.field {
		case fieldPriority:
			s.Priority = uint8(f.number)
		case fieldLabels:
			s.Labels = decodeLabels(f.bytes)
		case fieldExpiry:
			s.ExpiresAfterMs, s.HasExpiry = f.number, true
		case fieldContentType:
			s.ContentType = string(f.bytes)
		case fieldMaxAttempts:
			s.Retry.MaxAttempts = int(f.number)
		case fieldMinBackoff:
			s.Retry.MinBackoffMs = f.number
		case fieldMaxBackoff:
			s.Retry.MaxBackoffMs = f.number
		case fieldMultiplier:
			s.Retry.Multiplier = f.float
		case fieldJitter:
			s.Retry.Jitter, s.Retry.HasJitter = f.float, true
		case fieldTrace:
			s.Trace = decodeTrace(f.bytes)
		case fieldRepeat:
			s.Repeat = new(timer.Repeat)
			_ = decodeRepeat(s.Repeat, f.bytes) // checked by next
		default:
			s.PayloadKind = timer.PayloadKind(f.field &^ fieldPayload)
			if payload && len(f.bytes) > 0 {
				s.Payload = append([]byte(nil), f.bytes...)
			}
		}
	}
	return r.err()
}

// payloadIn is the payload's bytes within an encoded rest, which has been checked.
func payloadIn(rest []byte) []byte {
	r := reader{b: rest}
	for f := (restField{}); f.next(&r); {
		if f.field >= fieldPayload {
			return f.bytes
		}
	}
	return nil
}

// decodeLabels reads what restField has checked.
func decodeLabels(b []byte) []string {
	r := reader{b: b}
	n := r.uvarint()
	labels := make([]string, 0, n)
	for range n {
		labels = append(labels, string(r.block(maxText, "label")))
	}
	return labels
}

// checkCallback checks an encoded callback without copying it.
func checkCallback(b []byte) error {
	r := reader{b: b}
	for last := byte(0); len(r.b) > 0; {
		field := r.byte()
		if field <= last {
			r.fail("callback fields out of order")
		}
		last = field
		switch field {
		case callbackURL, callbackMethod, callbackOrigin:
			r.block(maxText, "callback text")
		case callbackHeaders:
			for n := r.number(maxList, "headers"); n > 0 && r.fault == ""; n-- {
				r.block(maxText, "header")
				r.block(maxText, "header")
			}
		case callbackTimeout:
			r.varint()
		default:
			r.fail("unknown callback field")
		}
	}
	return r.err()
}
