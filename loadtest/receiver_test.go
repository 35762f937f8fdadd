package loadtest

import (
	"fmt"
	"testing"

	"carillon/loadtest/sink"
)

// TestReceiveManyTimersInOneCall: the run's topic may have a policy by which due timers go together.
func TestReceiveManyTimersInOneCall(t *testing.T) {
	l := newLedger(1_700_000_000_000)
	l.issue(2, 2)
	n := newNames(Config{Topic: "loadtest", Topics: 1, Batch: 1, Payload: 200}, "0a1b2c3d")
	r := newReceiver(n, l, newTally(l.baseMs), 0)
	body := `{"timers":[`
	for number := range int64(2) {
		body += fmt.Sprintf(`{"topic":"loadtest","id":%q,"webhook_id":"w%d","due_ms":%d,"attempt":1,"fence":7,"payload":%s},`,
			n.appendID(nil, number), number, l.baseMs, n.appendPayload(nil, number, 1, l.baseMs))
	}
	d := sink.Delivery{Topic: []byte("loadtest"), WebhookID: []byte("w"), Body: []byte(body[:len(body)-1] + "]}"), DueMs: -1, Attempt: -1, Fence: -1, ArrivedUs: l.baseMs*1000 + 900}
	if status := r.receive(&d); status != 200 || r.tally.fired.Load() != 2 {
		t.Errorf("status %d, %d fired", status, r.tally.fired.Load())
	}
	d.Body = []byte("{")
	r.receive(&d)
	if wrong := r.tally.wrong.Load() + r.tally.early.Load() + r.tally.duplicate.Load(); wrong > 0 || r.tally.foreign.Load() != 1 {
		t.Errorf("%d deliveries were judged wrong, %d foreign", wrong, r.tally.foreign.Load())
	}
}

func BenchmarkReceive(b *testing.B) {
	const timers = 1 << 20
	l := newLedger(1_700_000_000_000)
	l.issue(timers, timers)
	n := newNames(Config{Topic: "loadtest", Topics: 1, Batch: 1, Payload: 200}, "0a1b2c3d")
	r := newReceiver(n, l, newTally(l.baseMs), 0)
	d := sink.Delivery{Topic: []byte("loadtest"), Attempt: 1, WebhookID: []byte("0"), DueMs: l.baseMs, ArrivedUs: l.baseMs*1000 + 900}
	var number int64
	b.ReportAllocs()
	for b.Loop() {
		number = (number + 1) % timers
		d.Timer = n.appendID(d.Timer[:0], number)
		d.Body = n.appendPayload(d.Body[:0], number, 1, l.baseMs)
		r.receive(&d)
	}
	if wrong := r.tally.wrong.Load() + r.tally.early.Load() + r.tally.foreign.Load(); wrong > 0 {
		b.Fatalf("%d deliveries were judged wrong", wrong)
	}
}
