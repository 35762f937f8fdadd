package timers

import (
	"cmp"
	"encoding/base64"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// Writer renders the timers of one topic.
type Writer struct {
	topic   *timer.Topic
	payload bool
	merged  bool  // the timer answers an add that was merged with it
	preview bool  // it would be so: it has no uid
	unnamed bool  // and no id
	lateMs  int64 // see timerRequest.lateMs
}

// NewWriter writes timers whole.
func NewWriter(t *timer.Topic) Writer {
	return Writer{topic: t, payload: true}
}

// Append writes a timer as API.md section 2 has it; an absent field is left out.
func (w *Writer) Append(b []byte, t *timer.Timer) []byte {
	o := web.Object{B: b}
	o.Text("topic", w.topic.Name)
	if !w.unnamed {
		o.Text("id", t.ID)
	}
	if !w.preview {
		o.Name("uid")
		o.B = append(timer.AppendUID(append(o.B, '"'), t.Origin, t.Seq, t.Tag), '"')
	}
	o.Integer("version", int64(t.Version))
	o.Text("state", web.StateNames[t.State])
	o.B = web.AppendTime(o.B, "due", t.DueMs)
	switch {
	case !w.payload:
	case t.Collected > 0 && len(t.Payload) == 0: // of the answer to an add
		o.Boolean("payload_left_out", true)
	default:
		o.B = appendPayload(o.B, t)
	}
	o.OptText("content_type", cmp.Or(t.ContentType, t.PayloadKind.ContentType()))
	if !t.Callback.Empty() {
		o.Name("callback")
		o.B = spec.AppendCallback(o.B, &t.Callback)
	}
	o.Integer("priority", int64(t.Priority))
	o.OptInteger("weight", int64(t.Weight))
	o.OptTexts("labels", t.Labels)
	if key, has := timer.KeyOf(t.ID); has {
		o.Text("key", key)
	}
	w.appendRun(&o, t)
	return o.End()
}

// appendRun writes the state of the timer's attempts.
func (w *Writer) appendRun(o *web.Object, t *timer.Timer) {
	o.Integer("attempts", int64(t.Attempts))
	o.Integer("max_attempts", int64(cmp.Or(t.Retry.MaxAttempts, w.topic.Policy.MaxAttempts)))
	if !t.Retry.Empty() {
		o.Name("retry")
		o.B = spec.AppendRetry(o.B, &t.Retry)
	}
	if t.LastStatus != 0 {
		o.Integer("last_status", int64(t.LastStatus))
	}
	o.OptText("last_error", t.ShownError())
	if t.State == timer.Scheduled {
		o.B = web.AppendTime(o.B, "next_attempt", t.NextMs)
	}
	o.B = web.AppendTime(o.B, "created", t.CreatedMs)
	o.B = web.AppendTime(o.B, "updated", t.UpdatedMs)
	o.OptTime("fired", t.FiredMs)
	o.OptTime("ended", t.EndedMs)
	o.OptTime("asked", t.AskedMs)
	if t.LatenessMs >= 0 && t.FiredMs != 0 {
		o.Integer("lateness_ms", t.LatenessMs)
	}
	if t.State == timer.Dead {
		o.Text("reason", backend.ReasonName(t.Reason))
	}
	if t.HasExpiry {
		o.Span("expires_after", t.ExpiresAfterMs)
	}
	if t.Repeat != nil {
		o.Name("repeat")
		o.B = appendRepeat(o.B, t.Repeat)
	}
	o.B = spec.AppendOutcome(o.B, "on_done", t.OnDone)
	o.B = spec.AppendOutcome(o.B, "on_dead", t.OnDead)
	if t.Trace != nil {
		o.Text("traceparent", t.Trace.Parent(t.Trace.Span))
		o.OptText("tracestate", t.Trace.State)
	}
	o.OptBoolean("merged", w.merged)
	o.OptInteger("late_by_ms", w.lateMs)
	o.OptBoolean("paused", t.Paused)
	o.OptInteger("collected", int64(t.Collected))
	o.OptBoolean("successor", t.Successor)
	o.OptBoolean("cancel_requested", t.CancelRequested)
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
