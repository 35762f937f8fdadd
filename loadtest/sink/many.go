package sink

import "encoding/json"

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
	var call struct {
		Timers []struct {
			Topic, ID     string
			WebhookID     string `json:"webhook_id"`
			DueMs         int64  `json:"due_ms"`
			Attempt       int64
			Fence         int64
			Payload       json.RawMessage
			PayloadBase64 []byte `json:"payload_base64"`
		}
	}
	if err := json.Unmarshal(d.Body, &call); err != nil || len(call.Timers) == 0 {
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
	s.counters.received.Add(int64(len(call.Timers)) - 1)
	for _, t := range call.Timers {
		one := &Delivery{
			Topic: []byte(t.Topic), Timer: []byte(t.ID), WebhookID: []byte(t.WebhookID), Body: t.Payload,
			DueMs: t.DueMs, AskedMs: -1, Attempt: t.Attempt, Fence: t.Fence, ArrivedUs: d.ArrivedUs, ClockUs: d.ClockUs, Conn: d.Conn,
		}
		if t.PayloadBase64 != nil {
			one.Body = t.PayloadBase64
		}
		if status := s.count(one); status == 500 && s.config.Status < 300 {
			answer.Failed = append(answer.Failed, failed{t.WebhookID, "fails on purpose"})
		}
	}
	d.Answer, _ = json.Marshal(answer) // texts alone: it never fails
	return s.config.Status
}
