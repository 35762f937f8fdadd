package api

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"carillon/internal/secret"
	"carillon/timer"
)

// timerWriter renders the timers of one topic.
type timerWriter struct {
	topic   *timer.Topic
	shards  int
	payload bool
	merged  bool // the timer answers an add that was merged with it
	preview bool // it would be so: it has no uid
	unnamed bool // and no id
}

func (rq *request) timerWriter(t *timer.Topic) timerWriter {
	return timerWriter{topic: t, shards: rq.s.cfg.Engine.Shards(), payload: true}
}

// append writes a timer as API.md section 2 has it; an absent field is left out.
func (w *timerWriter) append(b []byte, t *timer.Timer) []byte {
	b = append(b, `{"topic":"`...)
	b = append(b, w.topic.Name...)
	if !w.unnamed {
		b = append(b, `","id":"`...)
		b = append(b, t.ID...)
	}
	if !w.preview {
		b = append(b, `","uid":"`...)
		b = timer.AppendUID(b, timer.ShardOf(w.topic, t.ID, w.shards), t.Seq, t.Tag)
	}
	b = append(b, `","version":`...)
	b = strconv.AppendUint(b, uint64(t.Version), 10)
	b = append(b, `,"state":"`...)
	b = append(b, stateNames[t.State]...)
	b = appendTime(append(b, '"'), "due", t.DueMs)
	if w.payload {
		b = appendPayload(b, t)
	}
	if ct := contentType(&t.Spec); ct != "" {
		b = appendString(append(b, `,"content_type":`...), ct)
	}
	if !t.Callback.Empty() {
		b = appendCallback(append(b, `,"callback":`...), &t.Callback)
	}
	b = append(b, `,"priority":`...)
	b = strconv.AppendUint(b, uint64(t.Priority), 10)
	if len(t.Labels) > 0 {
		b = append(b, `,"labels":`...)
		for i, l := range t.Labels {
			b = appendString(append(b, "[,"[min(i, 1)]), l)
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
func (w *timerWriter) appendRun(b []byte, t *timer.Timer) []byte {
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(t.Attempts), 10)
	most := t.Retry.MaxAttempts
	if most == 0 {
		most = w.topic.Policy.MaxAttempts
	}
	b = append(b, `,"max_attempts":`...)
	b = strconv.AppendInt(b, int64(most), 10)
	if !t.Retry.Empty() {
		b = appendRetry(append(b, `,"retry":`...), &t.Retry)
	}
	if t.LastStatus != 0 {
		b = append(b, `,"last_status":`...)
		b = strconv.AppendInt(b, int64(t.LastStatus), 10)
	}
	if t.LastError != "" {
		b = appendString(append(b, `,"last_error":`...), t.LastError)
	}
	if t.State == timer.Scheduled && t.NextMs != 0 {
		b = appendTime(b, "next_attempt", t.NextMs)
	}
	b = appendTime(b, "created", t.CreatedMs)
	b = appendTime(b, "updated", t.UpdatedMs)
	if t.FiredMs != 0 {
		b = appendTime(b, "fired", t.FiredMs)
	}
	if t.AskedMs != 0 {
		b = appendTime(b, "asked", t.AskedMs)
	}
	if t.LatenessMs >= 0 && t.FiredMs != 0 {
		b = append(b, `,"lateness_ms":`...)
		b = strconv.AppendInt(b, t.LatenessMs, 10)
	}
	if t.State == timer.Dead {
		b = append(append(append(b, `,"reason":"`...), reasonName(t.Reason)...), '"')
	}
	if t.HasExpiry {
		b = append(appendSpan(append(b, `,"expires_after":"`...), t.ExpiresAfterMs), '"')
	}
	if t.Repeat != nil {
		b = appendRepeat(append(b, `,"repeat":`...), t.Repeat)
	}
	if t.Trace != nil {
		b = appendTrace(b, t.Trace)
	}
	if w.merged {
		b = append(b, `,"merged":true`...)
	}
	if t.Successor {
		b = append(b, `,"successor":true`...)
	}
	if t.CancelRequested {
		b = append(b, `,"cancel_requested":true`...)
	}
	return b
}

// appendTime writes a time in both of its forms, a comma first.
func appendTime(b []byte, name string, ms int64) []byte {
	b = append(append(append(b, ',', '"'), name...), `":"`...)
	b = appendInstant(b, ms)
	b = append(append(append(b, `","`...), name...), `_ms":`...)
	return strconv.AppendInt(b, ms, 10)
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

// contentType is the type that the payload is sent with.
func contentType(s *timer.Spec) string {
	switch {
	case s.ContentType != "":
		return s.ContentType
	case s.PayloadKind == timer.JSONPayload:
		return "application/json"
	case s.PayloadKind == timer.BinaryPayload:
		return "application/octet-stream"
	}
	return ""
}

func appendCallback(b []byte, c *timer.Callback) []byte {
	o := object{b: b}
	if c.URL != "" {
		o.str("url", c.URL)
	}
	if c.Method != "" {
		o.str("method", c.Method)
	}
	if c.HasHeaders {
		o.name("headers")
		h := object{b: o.b}
		for i := range c.Headers {
			v := c.Headers[i].Value
			if looksSecret(c.Headers[i].Name) || secret.Sealed(v) {
				v = redacted
			}
			h.str(c.Headers[i].Name, v)
		}
		o.b = h.end()
	}
	if c.TimeoutMs != 0 {
		o.span("timeout", c.TimeoutMs)
	}
	return o.end()
}

func appendRetry(b []byte, r *timer.Retry) []byte {
	o := object{b: b}
	if r.MaxAttempts != 0 {
		o.integer("max_attempts", int64(r.MaxAttempts))
	}
	if r.MinBackoffMs != 0 {
		o.span("min_backoff", r.MinBackoffMs)
	}
	if r.MaxBackoffMs != 0 {
		o.span("max_backoff", r.MaxBackoffMs)
	}
	if r.Multiplier != 0 {
		o.float("multiplier", r.Multiplier)
	}
	if r.HasJitter {
		o.float("jitter", r.Jitter)
	}
	return o.end()
}

// appendString writes a JSON string. Bytes that are not UTF-8 (a receiver's error text can be
// anything) become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size != 1 {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, `\ufffd`...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
