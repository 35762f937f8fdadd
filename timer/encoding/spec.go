package encoding

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"

	"carillon/timer"
)

// Bounds of decoded values, far above the API's: they protect memory, not policy.
const (
	MaxID       = 255
	MaxText     = 64 << 10 // a URL, a header's name or value, a label, a content type
	MaxList     = 256      // headers, labels
	MaxCallback = 1 << 20
	MaxHandle   = 1<<28 - 1 // highest slot; far above the capacity of a machine's memory
	MaxErr      = 1 << 10   // bytes of an attempt's error; longer ones are cut
	MaxAttempt  = 1<<16 - 1 // number of an attempt
)

// The fields of a callback, in this order, each at most once.
const (
	CallbackURL = 1 + iota
	CallbackMethod
	CallbackHeaders
	callbackTimeout
	callbackOrigin
)

// The fields of a spec after due time and callback, in this order, each at most once. The payload
// is last and has no length: it extends to the end.
const (
	fieldPriority = 1 + iota
	FieldLabels
	fieldExpiry
	fieldContentType
	fieldMaxAttempts
	fieldMinBackoff
	fieldMaxBackoff
	fieldMultiplier
	fieldJitter
	fieldTrace
	fieldOnDone
	fieldOnDead
	fieldWeight
	// of adds that collect; a table keeps neither
	fieldCollectMax = 14
	fieldPart       = 15
	FieldRepeat     = 20
	fieldPayload    = 0x40 // | PayloadKind
	// FieldJSONPayload is the last field of a rest with a JSON payload, which goes to the end.
	FieldJSONPayload = fieldPayload | byte(timer.JSONPayload)
)

// AppendSpec writes due time, callback and the rest; the reader must know where it ends.
func AppendSpec(dst []byte, s *timer.Spec) []byte {
	dst = append(binary.AppendVarint(dst, s.DueMs), 0)
	at := len(dst)
	dst = AppendCallback(dst, &s.Callback)
	n := len(dst) - at
	if more := UvarintLen(uint64(n)) - 1; more > 0 { // it is longer than its length has room for
		dst = slices.Insert(dst, at, make([]byte, more)...)
	}
	binary.PutUvarint(dst[at-1:], uint64(n))
	return AppendRest(dst, s)
}

func AppendCallback(dst []byte, c *timer.Callback) []byte {
	if c.URL != "" {
		dst = AppendBlock(append(dst, CallbackURL), c.URL)
	}
	if c.Method != "" {
		dst = AppendBlock(append(dst, CallbackMethod), c.Method)
	}
	if c.HasHeaders {
		dst = binary.AppendUvarint(append(dst, CallbackHeaders), uint64(len(c.Headers)))
		for i := range c.Headers {
			dst = AppendBlock(dst, c.Headers[i].Name)
			dst = AppendBlock(dst, c.Headers[i].Value)
		}
	}
	if c.TimeoutMs != 0 {
		dst = binary.AppendVarint(append(dst, callbackTimeout), c.TimeoutMs)
	}
	if c.Origin != "" {
		dst = AppendBlock(append(dst, callbackOrigin), c.Origin)
	}
	return dst
}

func DecodeCallback(b []byte) (c timer.Callback, err error) {
	err = readCallback(b, &c, true)
	return c, err
}

// CheckCallback checks an encoded callback without copying it.
func CheckCallback(b []byte) error { return readCallback(b, new(timer.Callback), false) }

func readCallback(b []byte, c *timer.Callback, keep bool) error {
	r := Reader{Rest: b}
	text := func(what string) string {
		if v := r.Block(MaxText, what); keep {
			return string(v)
		}
		return ""
	}
	for last := byte(0); len(r.Rest) > 0; {
		field := r.Byte()
		if field <= last {
			r.Fail("callback fields out of order")
		}
		last = field
		switch field {
		case CallbackURL:
			c.URL = text("URL")
		case CallbackMethod:
			c.Method = text("method")
		case CallbackHeaders:
			c.HasHeaders = true
			for n := r.Number(MaxList, "headers"); n > 0 && r.Fault == ""; n-- {
				if h := (timer.Header{Name: text("header"), Value: text("header")}); keep {
					c.Headers = append(c.Headers, h)
				}
			}
		case callbackTimeout:
			c.TimeoutMs = r.Varint()
		case callbackOrigin:
			c.Origin = text("origin")
		default:
			r.Fail("unknown callback field")
		}
	}
	return r.Err()
}

func AppendRest(dst []byte, s *timer.Spec) []byte {
	if s.Priority != 0 {
		dst = append(dst, fieldPriority, s.Priority)
	}
	if len(s.Labels) > 0 {
		dst = binary.AppendUvarint(append(dst, FieldLabels), uint64(len(s.Labels)))
		for _, label := range s.Labels {
			dst = AppendBlock(dst, label)
		}
	}
	if s.HasExpiry {
		dst = binary.AppendVarint(append(dst, fieldExpiry), s.ExpiresAfterMs)
	}
	if s.ContentType != "" {
		dst = AppendBlock(append(dst, fieldContentType), s.ContentType)
	}
	dst = appendRetry(dst, &s.Retry)
	if s.Trace != nil {
		dst = appendTrace(append(dst, fieldTrace), s.Trace)
	}
	if s.OnDone != nil {
		dst = appendOutcome(append(dst, fieldOnDone), s.OnDone)
	}
	if s.OnDead != nil {
		dst = appendOutcome(append(dst, fieldOnDead), s.OnDead)
	}
	if s.Weight != 0 {
		dst = append(dst, fieldWeight, s.Weight)
	}
	if c := s.Collect; c != nil {
		if c.Max != 0 {
			dst = binary.AppendUvarint(append(dst, fieldCollectMax), uint64(c.Max))
		}
		if c.Part != "" {
			dst = AppendBlock(append(dst, fieldPart), c.Part)
		}
	}
	if s.Repeat != nil {
		dst = appendRepeat(append(dst, FieldRepeat), s.Repeat)
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

// appendOutcome writes the topic of an outcome: its id, 0 for none, and its name.
func appendOutcome(dst []byte, o *timer.OutcomeTopic) []byte {
	return AppendBlock(binary.AppendUvarint(dst, uint64(o.ID)), o.Name)
}

// RestOutcomes finds the topics of a timer's outcomes alone, in a rest that has been checked; nil
// where the rest has none.
func RestOutcomes(rest []byte) (onDone, onDead *timer.OutcomeTopic) {
	r := Reader{Rest: rest}
	for f := (RestField{}); len(r.Rest) > 0 && r.Rest[0] <= fieldOnDead && f.Next(&r); {
		switch f.Field {
		case fieldOnDone:
			onDone = f.outcome()
		case fieldOnDead:
			onDead = f.outcome()
		}
	}
	return onDone, onDead
}

func (f *RestField) outcome() *timer.OutcomeTopic {
	return &timer.OutcomeTopic{ID: timer.TopicID(f.number), Name: string(f.Bytes)}
}

// RestField reads one field of a spec's rest. Texts stay in the block; of labels only the bytes are
// kept.
type RestField struct {
	Field  byte
	Bytes  []byte // text, labels (count and texts), payload
	number int64
	float  float64
}

// Next reads the next field. It returns false at the end, or if r.Fault is set.
func (f *RestField) Next(r *Reader) bool {
	if len(r.Rest) == 0 {
		return false
	}
	last := f.Field
	f.Field = r.Byte()
	if f.Field <= last {
		r.Fail("spec fields out of order")
		return false
	}
	switch f.Field {
	case fieldPriority, fieldWeight:
		f.number = int64(r.Byte())
	case FieldLabels:
		from := r.Rest
		for n := r.Number(MaxList, "labels"); n > 0 && r.Fault == ""; n-- {
			r.Block(MaxText, "label")
		}
		f.Bytes = from[:len(from)-len(r.Rest)]
	case fieldContentType:
		f.Bytes = r.Block(MaxText, "content type")
	case fieldExpiry, fieldMaxAttempts, fieldMinBackoff, fieldMaxBackoff:
		f.number = r.Varint()
	case fieldCollectMax:
		f.number = int64(r.Number(timer.MaxCollectMax, "collect_max"))
	case fieldPart:
		f.Bytes = r.Block(timer.MaxPart, "part")
	case FieldRepeat:
		f.Bytes = r.Block(maxRepeat, "repeat")
		if err := DecodeRepeat(new(timer.Repeat), f.Bytes); err != nil {
			r.Fail("repeat cannot be read")
		}
	case fieldTrace:
		if f.Bytes = r.Block(traceLen+timer.MaxTraceState, "trace"); len(f.Bytes) < traceLen {
			r.Fail("trace is too short")
		}
	case fieldOnDone, fieldOnDead:
		f.number = int64(r.Number(1<<32-1, "topic of an outcome"))
		f.Bytes = r.Block(MaxID, "name of an outcome's topic")
		if (f.number == 0) != (len(f.Bytes) == 0) {
			r.Fail("topic of an outcome without id or name")
		}
	case fieldMultiplier, fieldJitter:
		f.float = math.Float64frombits(r.U64())
	case fieldPayload | byte(timer.NoPayload), fieldPayload | byte(timer.JSONPayload), fieldPayload | byte(timer.BinaryPayload):
		f.Bytes = r.Take(len(r.Rest))
	default:
		r.Fail("unknown spec field")
	}
	return r.Fault == ""
}

// Summary holds the fields of a spec's rest that the table itself uses.
type Summary struct {
	Priority uint8
	Repeats  bool
	// OnDone and OnDead are the topics of its outcomes that the spec names; 0: none.
	OnDone, OnDead timer.TopicID
}

// Summarize checks all of a spec's rest.
func Summarize(rest []byte) (Summary, error) {
	var v Summary
	r := Reader{Rest: rest}
	for f := (RestField{}); f.Next(&r); {
		switch f.Field {
		case fieldPriority:
			v.Priority = uint8(f.number)
		case FieldRepeat:
			v.Repeats = true
		case fieldOnDone:
			v.OnDone = timer.TopicID(f.number)
		case fieldOnDead:
			v.OnDead = timer.TopicID(f.number)
		}
	}
	return v, r.Err()
}

// find finds one field alone, in a rest that has been checked. The fields are in ascending order.
func find(rest []byte, field byte) (f RestField, ok bool) {
	r := Reader{Rest: rest}
	for len(r.Rest) > 0 && r.Rest[0] <= field && f.Next(&r) {
		if f.Field == field {
			return f, true
		}
	}
	return RestField{}, false
}

// RestBytes are the bytes of a field, in a rest that has been checked; nil: it is not there.
func RestBytes(rest []byte, field byte) []byte {
	f, _ := find(rest, field)
	return f.Bytes
}

// RestExpiry is the expiry in ms, in a rest that has been checked.
func RestExpiry(rest []byte) (ms int64, ok bool) {
	f, ok := find(rest, fieldExpiry)
	return f.number, ok
}

// RestWeight is the weight, in a rest that has been checked.
func RestWeight(rest []byte) uint8 {
	f, _ := find(rest, fieldWeight)
	return max(uint8(f.number), timer.DefaultWeight)
}

// BodySize returns how long a payload is in JSON, in base64 if it is binary, and how long its
// content type. rest has been checked.
func BodySize(rest []byte) (payload, contentType int) {
	r := Reader{Rest: rest}
	for f := (RestField{}); f.Next(&r); {
		switch f.Field {
		case fieldContentType:
			contentType = len(f.Bytes)
		case fieldPayload | byte(timer.BinaryPayload):
			payload = base64.StdEncoding.EncodedLen(len(f.Bytes))
		case fieldPayload | byte(timer.JSONPayload):
			payload = len(f.Bytes)
		}
	}
	return payload, contentType
}

// DecodeRest copies the fields of a rest into s. The callback and the due time are not part of it.
func DecodeRest(s *timer.Spec, rest []byte, payload bool) error {
	r := Reader{Rest: rest}
	for f := (RestField{}); f.Next(&r); {
		switch f.Field {
		case fieldPriority:
			s.Priority = uint8(f.number)
		case fieldWeight:
			s.Weight = uint8(f.number)
		case FieldLabels:
			s.Labels = DecodeLabels(f.Bytes)
		case fieldExpiry:
			s.ExpiresAfterMs, s.HasExpiry = f.number, true
		case fieldContentType:
			s.ContentType = string(f.Bytes)
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
			s.Trace = &timer.Trace{ID: [16]byte(f.Bytes), Span: [8]byte(f.Bytes[16:]), Flags: f.Bytes[24], State: string(f.Bytes[traceLen:])}
		case fieldOnDone:
			s.OnDone = f.outcome()
		case fieldOnDead:
			s.OnDead = f.outcome()
		case fieldCollectMax:
			s.Collect = &timer.Collect{Max: int(f.number)}
		case fieldPart:
			if s.Collect == nil {
				s.Collect = new(timer.Collect)
			}
			s.Collect.Part = string(f.Bytes)
		case FieldRepeat:
			s.Repeat = new(timer.Repeat)
			_ = DecodeRepeat(s.Repeat, f.Bytes) // checked by Next
		default:
			s.PayloadKind = timer.PayloadKind(f.Field &^ fieldPayload)
			if payload && len(f.Bytes) > 0 {
				s.Payload = append([]byte(nil), f.Bytes...)
			}
		}
	}
	return r.Err()
}

// Collect is what a table needs of the rest of an add that collects.
type Collect struct {
	Max       int
	Part      []byte
	Payload   []byte
	IsJSON    bool
	IsPresent bool // it has a payload
}

// SplitCollect takes a rest that has been checked apart, and appends to kept what is neither in
// Collect nor in an array. The content type is dropped: an array is JSON.
func SplitCollect(kept, rest []byte) (Collect, []byte) {
	var c Collect
	r := Reader{Rest: rest}
	for f := (RestField{}); ; {
		before := r.Rest
		if !f.Next(&r) {
			return c, kept
		}
		switch f.Field {
		case fieldCollectMax:
			c.Max = int(f.number)
		case fieldPart:
			c.Part = f.Bytes
		case FieldJSONPayload:
			c.Payload, c.IsJSON, c.IsPresent = f.Bytes, true, true
		case fieldPayload | byte(timer.BinaryPayload):
			c.Payload, c.IsPresent = f.Bytes, true
		case fieldPayload, fieldContentType:
		default:
			kept = append(kept, before[:len(before)-len(r.Rest)]...)
		}
	}
}

// PayloadIn returns the payload's bytes in a rest that has been checked.
func PayloadIn(rest []byte) []byte {
	r := Reader{Rest: rest}
	for f := (RestField{}); f.Next(&r); {
		if f.Field >= fieldPayload {
			return f.Bytes
		}
	}
	return nil
}

// DecodeLabels reads labels that RestField has checked.
func DecodeLabels(b []byte) []string {
	r := Reader{Rest: b}
	n := r.Uvarint()
	labels := make([]string, 0, n)
	for range n {
		labels = append(labels, string(r.Block(MaxText, "label")))
	}
	return labels
}
