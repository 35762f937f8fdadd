package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// receiveMany judges a call for many timers, each as one callback: its answer names those that it
// fails on purpose.
func (s *Sink) receiveMany(d *Delivery) int {
	s.counters.received.Add(1)
	if s.config.Latency > 0 {
		s.wait()
	}
	if s.verify != nil {
		if problem := s.verify.problem(d); problem != "" {
			s.counters.failed.Add(1)
			s.counters.badSignature.Add(1)
			s.printer.offer(d, 401, problem)
			return 401
		}
	}
	many := s.many.Get().(*[]Delivery)
	defer s.many.Put(many)
	timers, ok := readMany(d, (*many)[:0])
	*many = timers
	if !ok || len(timers) == 0 {
		s.counters.failed.Add(1)
		s.printer.offer(d, 400, "neither the headers of one timer nor a body of many")
		return 400
	}
	type failed struct {
		WebhookID string `json:"webhook_id"`
		Error     string `json:"error"`
	}
	answer := struct {
		Failed []failed `json:"failed"`
	}{[]failed{}}
	s.counters.received.Add(int64(len(timers)) - 1)
	for i := range timers {
		if status := s.count(&timers[i]); status == 500 && s.config.Status < 300 {
			answer.Failed = append(answer.Failed, failed{string(timers[i].WebhookID), "fails on purpose"})
		}
	}
	d.Answer, _ = json.Marshal(answer) // texts alone: it never fails
	return s.config.Status
}

// readMany appends the timers of a call to a list of deliveries; ok: the body has the form of one.
// It is not checked further, which would cost a receiver more than all else that it does.
func readMany(d *Delivery, timers []Delivery) (_ []Delivery, ok bool) {
	r := jsonReader{rest: d.Body}
	ok = r.object(func(name string) bool {
		if name != "timers" {
			return r.value() != nil
		}
		return r.list('[', ']', func() bool {
			timers = append(timers, Delivery{DueMs: -1, AskedMs: -1, Attempt: -1, Fence: -1, ArrivedUs: d.ArrivedUs, ClockUs: d.ClockUs, Conn: d.Conn})
			return r.timer(&timers[len(timers)-1])
		})
	})
	return timers, ok && r.peek() == 0
}

// timer reads one timer of a call.
func (r *jsonReader) timer(d *Delivery) bool {
	return r.object(func(name string) bool {
		value := r.value()
		switch name {
		case "topic":
			d.Topic = text(value)
		case "id":
			d.Timer = text(value)
		case "webhook_id":
			d.WebhookID = text(value)
		case "due_ms":
			d.DueMs = Decimal(value)
		case "attempt":
			d.Attempt = Decimal(value)
		case "fence":
			d.Fence = Decimal(value)
		case "payload":
			d.Body = value
		case "payload_base64":
			d.Body, _ = base64.StdEncoding.AppendDecode(nil, text(value))
		}
		return value != nil
	})
}

// text is what a JSON string stands for; nil if it is none.
func text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	var s string
	_ = json.Unmarshal(value, &s)
	return []byte(s)
}

// jsonReader takes JSON apart without a copy.
type jsonReader struct{ rest []byte }

// peek is the next byte that is no space; 0 at the end.
func (r *jsonReader) peek() byte {
	for len(r.rest) > 0 && (r.rest[0] == ' ' || r.rest[0] == '\n' || r.rest[0] == '\r' || r.rest[0] == '\t') {
		r.rest = r.rest[1:]
	}
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// take reads the byte if it is next.
func (r *jsonReader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// list reads what stands between two brackets, each part by item.
func (r *jsonReader) list(from, to byte, item func() bool) bool {
	if !r.take(from) {
		return false
	}
	for first := true; !r.take(to); first = false {
		if !first && !r.take(',') || !item() {
			return false
		}
	}
	return true
}

// object reads an object, the value of each name by field.
func (r *jsonReader) object(field func(name string) bool) bool {
	return r.list('{', '}', func() bool {
		name := text(r.value())
		return r.take(':') && field(string(name))
	})
}

// value reads the next value and returns its text; nil if there is none.
func (r *jsonReader) value() []byte {
	r.peek()
	depth := 0
	for i := 0; i < len(r.rest); i++ {
		switch c := r.rest[i]; c {
		case '"':
			end := stringEnd(r.rest[i:])
			if end < 0 {
				return nil
			}
			if i += end; depth == 0 {
				return r.cut(i + 1)
			}
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\n', '\r', '\t', ':':
			if depth == 0 {
				return r.cut(i)
			}
			if c == '}' || c == ']' {
				if depth--; depth == 0 {
					return r.cut(i + 1)
				}
			}
		}
	}
	if depth > 0 {
		return nil
	}
	return r.cut(len(r.rest))
}

// cut takes so many bytes; nil for none.
func (r *jsonReader) cut(n int) (value []byte) {
	if n > 0 {
		value, r.rest = r.rest[:n:n], r.rest[n:]
	}
	return value
}

// stringEnd is the index of the quote that ends a string; -1 if none does.
func stringEnd(s []byte) int {
	for i := 1; ; i++ {
		n := bytes.IndexByte(s[min(i, len(s)):], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := 0
		for s[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
}
