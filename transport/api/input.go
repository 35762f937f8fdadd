package api

import (
	"encoding/base64"
	"math"
	"math/bits"
	"slices"
	"strings"

	"carillon/timer"
	"carillon/timer/duration"
	"carillon/transport/api/internal/http1"
	"carillon/transport/api/internal/strictjson"
)

// field is a set of fields of a timer as a client writes it. The bits go into content hashes, which
// are stored: new ones are added at the end.
type field uint64

const (
	fOp field = 1 << iota
	fIfMatch
	fID
	fKey
	fAt
	fAtMs
	fDelay
	fDelayMs
	fPayload
	fPayload64
	fContentType
	fCallback
	fURL
	fMethod
	fHeaders
	fTimeout
	fPriority
	fLabels
	fExpires
	fMerge
	fMaxWait
	fRetry
	fMaxAttempts
	fMinBackoff
	fMaxBackoff
	fMultiplier
	fJitter
	fRepeat
	fIfLate
	fAtLocal
	fZone

	timeFields     = fAt | fAtMs | fDelay | fDelayMs | fAtLocal
	callbackFields = fURL | fMethod | fHeaders | fTimeout
	retryFields    = fMaxAttempts | fMinBackoff | fMaxBackoff | fMultiplier | fJitter
	specFields     = timeFields | fZone | fPayload | fPayload64 | fContentType | fCallback | callbackFields |
		fPriority | fLabels | fExpires | fRetry | retryFields | fRepeat
	resettable = fPayload64 | fContentType | fCallback | callbackFields | fPriority | fLabels | fExpires | fRetry | retryFields | fRepeat
)

// timerRequest is one operation on a timer as the client wrote it. Its strings and payload point
// into the client's bytes; spec holds the values, zero where not given. It is allocated per
// operation and never reused, since the engine gets pointers into it.
type timerRequest struct {
	given field // named in the document, with any value
	null  field // given as null

	op, id, key, merge string
	plain              string // the id as it was given; id is what the timer has, see address
	maxWaitMs          int64
	ifMatch            uint32
	rejectLate         bool // if_late
	keyed              bool // the topic's own key was put before it
	asGiven            bool // there is none with the key: look for one from before the topic had it
	unnamed            bool // an add without an id: it is given one
	// An add that an Idempotency-Key names: it may be one that was made before.
	repeated bool
	when     when
	spec     timer.Spec
	cmd      timer.Command
	patch    *timer.Patch
	// Room for the answer to an add or put; the engine writes it on the caller's goroutine only.
	created *timer.Timer
}

// when is the time a client asks for.
type when struct {
	delay bool
	ms    int64 // Unix ms, or the delay in ms rounded up; ≥ 0
	zone  string
}

// due is the instant in Unix ms, nowMs being already rounded up.
func (w when) due(nowMs int64) int64 {
	if w.delay {
		return addMs(nowMs, w.ms)
	}
	return w.ms
}

// reader reads client documents under the server's limits.
type reader struct {
	strictjson.Scanner
	limits *Limits
	urls   *urlCache
	// resets: null stands for the default, where a policy is patched; given are the policy's fields
	// so far.
	resets bool
	given  field
	// refuse is the status and code of a callback or retry value out of range: 400 in a timer, 422
	// in a policy.
	refuse func(detail string) *problem
}

func refuseInTimer(detail string) *problem  { return bad(badRequest, detail) }
func refuseInPolicy(detail string) *problem { return fail(422, badPolicy, detail) }

// fail notes a fault of the input, unless it has one already.
func (r *reader) fail(p *problem) {
	if p != nil {
		r.Fail(p)
	}
}

// problem is the answer to the first fault; nil when there is none.
func (r *reader) problem() *problem {
	switch err := r.Err().(type) {
	case nil:
		return nil
	case *problem:
		return err
	case *strictjson.Fault:
		if !err.Grammar {
			return bad(badRequest, err.Detail)
		}
	}
	return bad(badJSON, r.Err().Error())
}

// first marks a field as given; false (and a fault) when it was given before.
func (r *reader) first(set *field, f field, prefix string, name []byte) bool {
	if *set&f != 0 {
		r.fail(badf(badJSON, "%s%s: given twice", prefix, clip(name)))
		return false
	}
	*set |= f
	return true
}

// timerField maps the names of a timer's own fields.
func timerField(name []byte) field {
	switch string(name) {
	case "op":
		return fOp
	case "if_match":
		return fIfMatch
	case "id":
		return fID
	case "key":
		return fKey
	case "at":
		return fAt
	case "at_ms":
		return fAtMs
	case "delay":
		return fDelay
	case "delay_ms":
		return fDelayMs
	case "payload":
		return fPayload
	case "payload_base64":
		return fPayload64
	case "content_type":
		return fContentType
	case "callback":
		return fCallback
	case "priority":
		return fPriority
	case "labels":
		return fLabels
	case "expires_after":
		return fExpires
	case "merge":
		return fMerge
	case "max_wait":
		return fMaxWait
	case "retry":
		return fRetry
	case "repeat":
		return fRepeat
	case "if_late":
		return fIfLate
	case "at_local":
		return fAtLocal
	case "zone":
		return fZone
	}
	return 0
}

// input reads the object of one operation. Which fields it may have is for check to say: in a batch
// the "op" that decides may come last.
func (r *reader) input(in *timerRequest) {
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return
		}
		f := timerField(name)
		if f == 0 {
			r.fail(unknown(name, slices.Concat(fieldNames, repeatPaths)))
			return
		}
		if !r.first(&in.given, f, "", name) {
			return
		}
		if f != fPayload && r.Null() {
			in.null |= f
			switch f {
			case fCallback:
				in.null |= callbackFields
			case fRetry:
				in.null |= retryFields
			}
			continue
		}
		r.inputField(in, f)
	}
}

func (r *reader) inputField(in *timerRequest, f field) {
	switch f {
	case fOp:
		in.op = r.Text("op")
	case fIfMatch:
		v := r.Integer("if_match")
		if v < 1 || v >= neverVersion {
			r.fail(bad(badRequest, "if_match: must be a version, 1 or higher"))
		}
		in.ifMatch = uint32(v)
	case fID:
		in.id = r.Text("id")
	case fKey:
		in.key = r.Text("key")
	case fAt, fAtMs, fDelay, fDelayMs, fAtLocal:
		r.when(&in.when, f)
	case fZone:
		in.when.zone = r.zone("zone", badTime)
	case fPayload:
		in.spec.PayloadKind, in.spec.Payload = timer.JSONPayload, r.Value()
		r.checkPayload(len(in.spec.Payload))
	case fPayload64:
		in.spec.PayloadKind, in.spec.Payload = timer.BinaryPayload, r.base64()
	case fContentType:
		in.spec.ContentType = r.contentType()
	case fCallback:
		r.callback(&in.spec.Callback, &in.given, &in.null)
	case fPriority:
		p := r.Integer("priority")
		if p < 0 || p > 255 {
			r.fail(bad(badRequest, "priority: must be 0 to 255"))
		}
		in.spec.Priority = uint8(p)
	case fLabels:
		in.spec.Labels = r.labels("labels")
	case fExpires:
		in.spec.ExpiresAfterMs, in.spec.HasExpiry = r.spanCode("expires_after", badTime), true
	case fMerge:
		in.merge = r.choice("merge", mergeRules)
	case fMaxWait:
		in.maxWaitMs = r.maxWait()
	case fIfLate:
		in.rejectLate = r.choice("if_late", lateRules) == "reject"
	case fRetry:
		r.retry(&in.spec.Retry, &in.given, &in.null)
	case fRepeat:
		in.spec.Repeat = r.repeat()
	}
}

// when reads one of the ways to say a time. A local time stays as if it were UTC until it is
// resolved.
func (r *reader) when(w *when, f field) {
	ok := true
	switch f {
	case fAt:
		w.ms, ok = parseInstant(r.timeText("at"))
	case fAtMs:
		if w.ms, ok = r.timeInteger("at_ms"); ok && w.ms >= 0 && w.ms < leastMs {
			r.fail(meantMs("at_ms"))
		}
	case fAtLocal:
		w.ms, ok = parseInstant(r.timeText("at_local") + "Z")
	case fDelay:
		w.delay = true
		w.ms, ok = parseSpan(r.timeText("delay"))
	case fDelayMs:
		w.delay = true
		w.ms, ok = r.timeInteger("delay_ms")
	}
	if !ok || w.ms < 0 && f != fAtLocal {
		r.fail(bad(badTime, map[field]string{
			fAt:      `at: must be an RFC 3339 time with a zone, from 1970 on, like "2026-12-24T18:00:00.250Z"`,
			fAtLocal: `at_local: must be a local time without an offset, like "2026-12-24T18:00:00", beside its zone`,
			fAtMs:    "at_ms: must be an integer, Unix milliseconds, 0 or higher",
			fDelay:   "delay: " + spanRule,
			fDelayMs: "delay_ms: must be an integer, milliseconds, 0 or higher",
		}[f]))
	}
}

// timeText is a string; anything else is no time. The fault of the caller is the better one.
func (r *reader) timeText(name string) string {
	if r.Err() == nil && r.Peek() != '"' {
		r.Mistyped(name, "a string")
		r.recode(badTime)
		return ""
	}
	return r.Text(name)
}

func (r *reader) timeInteger(name string) (int64, bool) {
	n := r.Integer(name)
	r.recode(badTime)
	return n, r.Err() == nil
}

// recode turns a bad_request into a more telling code.
func (r *reader) recode(code string) {
	if p := r.problem(); p != nil && p.code == badRequest {
		p.code = code
		r.Restate(p)
	}
}

const spanRule = `must be a duration, 0 or longer, like "1h30m", "250ms" or "30d"; the units are ` + duration.Units

// span reads a duration ≥ 0 in ms.
func (r *reader) span(name string) int64 { return r.spanCode(name, badRequest) }

func (r *reader) spanCode(name, code string) int64 {
	s := r.Text(name)
	if r.Err() != nil {
		r.recode(code)
		return 0
	}
	ms, ok := parseSpan(s)
	if !ok || ms < 0 {
		r.fail(badf(code, "%s: "+spanRule, name))
		return 0
	}
	if ms == math.MaxInt64 {
		r.fail(r.refuse(name + ": too long"))
	}
	return ms
}

func (r *reader) choice(name string, among []string) string {
	s := r.Text(name)
	for _, c := range among {
		if s == c {
			return c
		}
	}
	r.fail(badf(badRequest, "%s: must be one of %s", name, strings.Join(among, ", ")))
	return ""
}

func (r *reader) checkPayload(n int) {
	if n > r.limits.PayloadBytes {
		r.fail(failf(413, tooLarge, "payload: over %d bytes", r.limits.PayloadBytes))
	}
}

func (r *reader) base64() []byte {
	s := r.Text("payload_base64")
	if r.Err() != nil {
		return nil
	}
	// The decoder skips line ends; the contract does not have them.
	out, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") {
		r.fail(bad(badRequest, "payload_base64: must be standard base64 with padding"))
		return nil
	}
	r.checkPayload(len(out))
	return out
}

// contentType reads a media type: type/subtype of tokens, then parameters of printable characters.
func (r *reader) contentType() string {
	s := r.Text("content_type")
	if r.Err() != nil {
		return ""
	}
	kind, rest, slash := strings.Cut(s, "/")
	sub, params, _ := strings.Cut(rest, ";")
	sub = strings.TrimRight(sub, " ")
	ok := slash && len(s) <= 256 && kind != "" && sub != "" && http1.Token(kind) && http1.Token(sub)
	for i := range len(params) {
		ok = ok && params[i] >= ' ' && params[i] < 0x7f
	}
	if !ok {
		r.fail(bad(badHeader, `content_type: must be a media type like "text/plain; charset=utf-8", up to 256 bytes`))
	}
	return s
}

func (r *reader) labels(name string) []string {
	n := r.Open('[', name)
	if r.Err() != nil {
		return nil
	}
	var out []string
	for ; r.More(n, ']'); n++ {
		s := r.Text(name)
		if r.Err() != nil {
			return nil
		}
		if n == maxLabels || !validLabel(s) {
			r.fail(badf(badRequest, "%s: up to 16, each 1–64 of A-Z a-z 0-9 _ . : = -", name))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// fieldNames are in the order of the bits of field.
var fieldNames = []string{
	"op", "if_match", "id", "key", "at", "at_ms", "delay", "delay_ms", "payload", "payload_base64", "content_type",
	"callback", "callback.url", "callback.method", "callback.headers", "callback.timeout",
	"priority", "labels", "expires_after", "merge", "max_wait",
	"retry", "retry.max_attempts", "retry.min_backoff", "retry.max_backoff", "retry.multiplier", "retry.jitter", "repeat", "if_late",
	"at_local", "zone",
}

// name is the name of the first field of the set.
func (f field) name() string { return fieldNames[bits.TrailingZeros64(uint64(f))] }

// repeatPaths are the fields of a repeat, by their paths.
var repeatPaths = []string{"repeat.cron", "repeat.every", "repeat.until", "repeat.count", "repeat.catch_up", "repeat.overlap"}

// unknown is the fault of a field that there is none of, with a hint when only its case is wrong,
// or when it belongs into another field.
func unknown(name []byte, names []string) *problem {
	for _, n := range names {
		if strings.EqualFold(n, string(name)) {
			return badf(unknownField, "unknown field %q: it is written %q", clip(name), n)
		}
		if outer, inner, nested := strings.Cut(n, "."); nested && inner == string(name) {
			return badf(unknownField, `unknown field %q: it is %s, as in {%q: {%q: …}}`, inner, n, outer, inner)
		}
	}
	return badf(unknownField, "unknown field %q", clip(name))
}

// clip bounds how many of the client's bytes are said back.
func clip(b []byte) string {
	if len(b) > 64 {
		return strings.ToValidUTF8(string(b[:64]), "") + "…"
	}
	return string(b)
}
