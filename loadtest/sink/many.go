package sink

import (
	"encoding/base64"
	"encoding/json"

	"github.com/tidwall/gjson"
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
	timers, ok := ReadMany(d, (*many)[:0])
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

// ReadMany appends the timers of a call to a list of deliveries; ok: the body is one of a call of
// many. encoding/json would cost a receiver more than all else that it does.
func ReadMany(d *Delivery, timers []Delivery) (_ []Delivery, ok bool) {
	list := gjson.GetBytes(d.Body, "timers")
	ok = gjson.ValidBytes(d.Body) && list.IsArray()
	list.ForEach(func(_, t gjson.Result) bool {
		one := Delivery{DueMs: -1, AskedMs: -1, Attempt: -1, Fence: -1, ArrivedUs: d.ArrivedUs, ClockUs: d.ClockUs}
		ok = ok && t.IsObject()
		t.ForEach(func(name, value gjson.Result) bool {
			switch name.Str {
			case "topic":
				one.Topic = []byte(value.Str)
			case "id":
				one.Timer = []byte(value.Str)
			case "webhook_id":
				one.WebhookID = []byte(value.Str)
			case "due_ms":
				one.DueMs = value.Int()
			case "asked_ms":
				one.AskedMs = value.Int()
			case "attempt":
				one.Attempt = value.Int()
			case "fence":
				one.Fence = value.Int()
			case "payload":
				one.Body = []byte(value.Raw)
			case "payload_base64":
				one.Body, _ = base64.StdEncoding.AppendDecode(nil, []byte(value.Str))
			}
			return true
		})
		timers = append(timers, one)
		return ok
	})
	return timers, ok
}
