package loadtest

import (
	"testing"

	"carillon/loadtest/sink"
)

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
