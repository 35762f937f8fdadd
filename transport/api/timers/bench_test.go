package timers

import (
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

const noonMs = 1780315200001

// benchBody is one add as clients send it: about 200 bytes of payload, everything else from the
// topic.
var benchBody = []byte(`{"id":"order-7700123","delay":"30m","labels":["orders"],"payload":{"order":7700123,"customer":"c-99182","items":[{"sku":"AB-1","n":2},{"sku":"CD-77","n":1}],"total":"129.90","note":"please ring twice, the bell is quiet","step":"close-if-unpaid"}}`)

func BenchmarkReadAdd(b *testing.B) {
	rq := web.Request{Node: &web.Node{Settings: web.Settings{Limits: web.DefaultLimits()}}}
	b.SetBytes(int64(len(benchBody)))
	b.ReportAllocs()
	for b.Loop() {
		var in timerRequest
		r := rq.ReaderOf(benchBody)
		readFields(r, &in)
		r.End()
		if r.Err() != nil {
			b.Fatal(r.Err())
		}
	}
}

func BenchmarkRender(b *testing.B) {
	w := Writer{topic: &timer.Topic{Name: "orders", Policy: timer.DefaultPolicy()}, payload: true}
	t := &timer.Timer{ID: "order-7700123", Spec: timer.Spec{DueMs: noonMs, Payload: benchBody, PayloadKind: timer.JSONPayload, Labels: []string{"orders"}},
		Seq: 77123, Tag: 0xdeadbeef, Version: 1, State: timer.Scheduled, NextMs: noonMs, CreatedMs: noonMs, UpdatedMs: noonMs, LatenessMs: -1}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = w.Append(out[:0], t)
	}
}
