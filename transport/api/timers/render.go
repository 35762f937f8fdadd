package timers

import (
	"cmp"
	"encoding/base64"
	"strconv"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// Writer renders the timers of one topic.
type Writer struct {
	topic   *timer.Topic
	shards  int // 0: every timer has its Origin
	payload bool
	merged  bool // the timer answers an add that was merged with it
	preview bool // it would be so: it has no uid
	unnamed bool // and no id
}

// NewWriter writes timers whole.
func NewWriter(rq *web.Request, t *timer.Topic) Writer {
	return Writer{topic: t, shards: rq.Engine.Shards(), payload: true}
}

// origin is the shard that gave a timer its number.
func (w *Writer) origin(t *timer.Timer) timer.ShardID {
	if t.Origin != 0 {
		return t.Origin
	}
	return timer.ShardOf(w.topic, t.ID, w.shards)
}

// Append writes a timer as API.md section 2 has it; an absent field is left out.
func (w *Writer) Append(b []byte, t *timer.Timer) []byte {
	b = append(b, `{"topic":"`...)
	b = append(b, w.topic.Name...)
	if !w.unnamed {
		b = append(b, `","id":"`...)
		b = append(b, t.ID...)
	}
	if !w.preview {
		b = append(b, `","uid":"`...)
		b = timer.AppendUID(b, w.origin(t), t.Seq, t.Tag)
	}
	b = append(b, `","version":`...)
	b = strconv.AppendUint(b, uint64(t.Version), 10)
	b = append(b, `,"state":"`...)
	b = append(b, web.StateNames[t.State]...)
	b = web.AppendTime(append(b, '"'), "due", t.DueMs)
	switch {
	case !w.payload:
	case t.Collected > 0 && len(t.Payload) == 0: // of the answer to an add
		b = append(b, `,"payload_left_out":true`...)
	default:
		b = appendPayload(b, t)
	}
	if ct := cmp.Or(t.ContentType, t.PayloadKind.ContentType()); ct != "" {
		b = web.AppendString(append(b, `,"content_type":`...), ct)
	}
	if !t.Callback.Empty() {
		b = spec.AppendCallback(append(b, `,"callback":`...), &t.Callback)
	}
	b = append(b, `,"priority":`...)
	b = strconv.AppendUint(b, uint64(t.Priority), 10)
	if t.Weight != 0 {
		b = strconv.AppendUint(append(b, `,"weight":`...), uint64(t.Weight), 10)
	}
	if len(t.Labels) > 0 {
		b = append(b, `,"labels":`...)
		for i, l := range t.Labels {
			b = web.AppendString(append(b, "[,"[min(i, 1)]), l)
		}
		b = append(b, ']')
	}
	if key, has := timer.KeyOf(t.ID); has {
		b = append(append(append(b, `,"key":"`...), key...), '"')
	}
	b = w.appendRun(b, t)
	return append(b, '}')
}

// appendRun writes the state of the timer's attempts.
func (w *Writer) appendRun(b []byte, t *timer.Timer) []byte {
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(t.Attempts), 10)
	most := cmp.Or(t.Retry.MaxAttempts, w.topic.Policy.MaxAttempts)
	b = append(b, `,"max_attempts":`...)
	b = strconv.AppendInt(b, int64(most), 10)
	if !t.Retry.Empty() {
		b = spec.AppendRetry(append(b, `,"retry":`...), &t.Retry)
	}
	if t.LastStatus != 0 {
		b = append(b, `,"last_status":`...)
		b = strconv.AppendInt(b, int64(t.LastStatus), 10)
	}
	if text := t.ShownError(); text != "" {
		b = web.AppendString(append(b, `,"last_error":`...), text)
	}
	if t.State == timer.Scheduled && t.NextMs != 0 {
		b = web.AppendTime(b, "next_attempt", t.NextMs)
	}
	b = web.AppendTime(b, "created", t.CreatedMs)
	b = web.AppendTime(b, "updated", t.UpdatedMs)
	if t.FiredMs != 0 {
		b = web.AppendTime(b, "fired", t.FiredMs)
	}
	if t.AskedMs != 0 {
		b = web.AppendTime(b, "asked", t.AskedMs)
	}
	if t.LatenessMs >= 0 && t.FiredMs != 0 {
		b = append(b, `,"lateness_ms":`...)
		b = strconv.AppendInt(b, t.LatenessMs, 10)
	}
	if t.State == timer.Dead {
		b = append(append(append(b, `,"reason":"`...), backend.ReasonName(t.Reason)...), '"')
	}
	if t.HasExpiry {
		b = append(web.AppendSpan(append(b, `,"expires_after":"`...), t.ExpiresAfterMs), '"')
	}
	if t.Repeat != nil {
		b = appendRepeat(append(b, `,"repeat":`...), t.Repeat)
	}
	b = spec.AppendOutcome(b, "on_done", t.OnDone)
	b = spec.AppendOutcome(b, "on_dead", t.OnDead)
	if t.Trace != nil {
		b = appendTrace(b, t.Trace)
	}
	if w.merged {
		b = append(b, `,"merged":true`...)
	}
	if t.Paused {
		b = append(b, `,"paused":true`...)
	}
	if t.Collected > 0 {
		b = append(b, `,"collected":`...)
		b = strconv.AppendUint(b, uint64(t.Collected), 10)
	}
	if t.Successor {
		b = append(b, `,"successor":true`...)
	}
	if t.CancelRequested {
		b = append(b, `,"cancel_requested":true`...)
	}
	return b
}

func appendPayload(b []byte, t *timer.Timer) []byte {
	switch t.PayloadKind {
	case timer.JSONPayload:
		return append(append(b, `,"payload":`...), t.Payload...)
	case timer.BinaryPayload:
		b = append(b, `,"payload_base64":"`...)
		return append(base64.StdEncoding.AppendEncode(b, t.Payload), '"')
	}
	return b
}

// appendTrace writes a timer's trace as it came, a comma first.
func appendTrace(b []byte, t *timer.Trace) []byte {
	b = append(append(append(b, `,"traceparent":"`...), t.Parent(t.Span)...), '"')
	if t.State != "" {
		b = web.AppendString(append(b, `,"tracestate":`...), t.State)
	}
	return b
}
