package timers

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"

	"carillon/timer"
	"carillon/transport/api/internal/http1"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// timerRequest is one operation on a timer as the client wrote it. Its strings and payload point
// into the client's bytes; spec holds the values, zero where not given. The engine gets pointers
// into it, and has none any more once it has answered: then it is used again, empty.
type timerRequest struct {
	given web.Fields // named in the document, with any value
	null  web.Fields // given as null

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
	when     spec.When
	spec     timer.Spec
	cmd      timer.Command
	patch    *timer.Patch
	// Room for the answer to an add or put; the engine writes it on the caller's goroutine only.
	created *timer.Timer
}

var inputs = sync.Pool{New: func() any { return new(timerRequest) }}

// readFields reads the object of one operation. check decides which fields it may have: in a
// batch the "op" that decides may come last.
func readFields(r *web.Reader, in *timerRequest) {
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return
		}
		f := spec.FieldOf(name)
		if f == 0 {
			r.Reject(web.Unknown(name, slices.Concat(spec.FieldNames, repeatPaths)))
			return
		}
		if !r.First(&in.given, f, "body", name) {
			return
		}
		if f&(spec.FPayload|spec.OutcomeFields) == 0 && r.Null() {
			in.null |= f
			switch f {
			case spec.FCallback:
				in.null |= spec.CallbackFields
			case spec.FRetry:
				in.null |= spec.RetryFields
			}
			continue
		}
		readField(r, in, f)
	}
}

func readField(r *web.Reader, in *timerRequest, f web.Fields) {
	switch f {
	case spec.FOp:
		in.op = r.Text("op")
	case spec.FIfMatch:
		v := r.Integer("if_match")
		if v < 1 || v >= web.NeverVersion {
			r.Reject(web.Bad(web.BadRequest, "if_match: must be a version, 1 or higher"))
		}
		in.ifMatch = uint32(v)
	case spec.FID:
		in.id = r.Text("id")
	case spec.FKey:
		in.key = r.Text("key")
	case spec.FAt, spec.FAtMs, spec.FDelay, spec.FDelayMs, spec.FAtLocal:
		if times := in.given &^ in.null & spec.TimeFields; times&(times-1) != 0 { // before a fault of the second
			r.Reject(web.Bad(web.BadTime, "give one of at, at_ms, at_local, delay, delay_ms, not several"))
		}
		spec.ReadWhen(r, &in.when, f)
	case spec.FZone:
		in.when.Zone = spec.ReadZone(r, "zone", web.BadTime)
	case spec.FPayload:
		in.spec.PayloadKind, in.spec.Payload = timer.JSONPayload, r.Value()
		checkPayload(r, len(in.spec.Payload))
	case spec.FPayload64:
		in.spec.PayloadKind, in.spec.Payload = timer.BinaryPayload, readBase64(r)
	case spec.FContentType:
		in.spec.ContentType = readContentType(r)
	case spec.FCallback:
		spec.ReadCallback(r, &in.spec.Callback, &in.given, &in.null)
	case spec.FPriority:
		in.spec.Priority = uint8(r.Ranged("priority", 0, 255))
	case spec.FWeight:
		in.spec.Weight = uint8(r.Ranged("weight", 1, timer.MaxWeight))
	case spec.FLabels:
		in.spec.Labels = r.Labels("labels")
	case spec.FExpires:
		in.spec.ExpiresAfterMs, in.spec.HasExpiry = r.SpanCode("expires_after", web.BadTime), true
	case spec.FMerge:
		in.merge = r.Choice("merge", spec.MergeRules)
	case spec.FMaxWait:
		in.maxWaitMs = spec.ReadMaxWait(r)
	case spec.FCollectMax:
		in.collecting().Max = spec.ReadCollectMax(r)
	case spec.FPart:
		if in.collecting().Part = r.Text("part"); r.Err() == nil && !web.ValidKey(in.spec.Collect.Part) {
			r.Reject(web.Bad(web.BadName, "part: must be 1–64 of A-Z a-z 0-9 _ . : @ -"))
		}
	case spec.FIfLate:
		in.rejectLate = r.Choice("if_late", spec.LateRules) == "reject"
	case spec.FRetry:
		spec.ReadRetry(r, &in.spec.Retry, &in.given, &in.null)
	case spec.FRepeat:
		in.spec.Repeat = readRepeat(r)
	case spec.FOnDone:
		in.spec.OnDone = &timer.OutcomeTopic{Name: spec.ReadOutcome(r, "on_done")}
	case spec.FOnDead:
		in.spec.OnDead = &timer.OutcomeTopic{Name: spec.ReadOutcome(r, "on_dead")}
	}
}

// collecting is what an add that collects has in addition.
func (tr *timerRequest) collecting() *timer.Collect {
	if tr.spec.Collect == nil {
		tr.spec.Collect = new(timer.Collect)
	}
	return tr.spec.Collect
}

func checkPayload(r *web.Reader, n int) {
	if n > r.Limits.PayloadBytes {
		r.Reject(web.Failf(413, web.TooLarge, "payload: over %d bytes", r.Limits.PayloadBytes))
	}
}

func readBase64(r *web.Reader) []byte {
	s := r.Text("payload_base64")
	if r.Err() != nil {
		return nil
	}
	// The decoder skips line ends; the contract does not have them.
	out, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") {
		r.Reject(web.Bad(web.BadRequest, "payload_base64: must be standard base64 with padding"))
		return nil
	}
	checkPayload(r, len(out))
	return out
}

// readContentType reads a media type: type/subtype of tokens, then parameters of printable
// characters.
func readContentType(r *web.Reader) string {
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
		r.Reject(web.Bad(web.BadHeader, `content_type: must be a media type like "text/plain; charset=utf-8", up to 256 bytes`))
	}
	return s
}

// repeatPaths are the fields of a repeat, by their paths.
var repeatPaths = []string{"repeat.cron", "repeat.every", "repeat.until", "repeat.count", "repeat.catch_up", "repeat.overlap"}
