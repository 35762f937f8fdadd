package sink

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestReadMany: the timers of a call are read as encoding/json reads them, and no part of a body is
// taken for a whole one.
func TestReadMany(t *testing.T) {
	const body = `{ "more":[1,{"timers":[]},"]"], "timers": [
		{"topic":"o","id":"{k}\"\\a","webhook_id":"m1","due_ms":12,"attempt":1,"fence":7,"key":"k","payload":{"n":"}]\\\"","m":[1, 2]}},
		{"topic":"é","id":"b","webhook_id":"m2","due_ms":13,"asked_ms":11,"attempt":2,"fence":8,"payload_base64":"AAEC","content_type":"a/\"b\""},
		{"topic":"o","id":"c","webhook_id":"m3","due_ms":14,"attempt":3,"fence":9 ,"payload":-1.5e3 }
	]}`
	var want struct {
		Timers []struct {
			Topic, ID     string
			WebhookID     string `json:"webhook_id"`
			DueMs         int64  `json:"due_ms"`
			AskedMs       *int64 `json:"asked_ms"`
			Attempt       int64
			Fence         int64
			Payload       json.RawMessage
			PayloadBase64 []byte `json:"payload_base64"`
		}
	}
	if err := json.Unmarshal([]byte(body), &want); err != nil {
		t.Fatal(err)
	}
	got, ok := ReadMany(&Delivery{Body: []byte(body)}, nil)
	if !ok || len(got) != len(want.Timers) {
		t.Fatalf("%t, %d timers", ok, len(got))
	}
	for i, w := range want.Timers {
		payload := string(w.Payload) + string(w.PayloadBase64)
		asked := int64(-1)
		if w.AskedMs != nil {
			asked = *w.AskedMs
		}
		if g := &got[i]; string(g.Topic) != w.Topic || string(g.Timer) != w.ID || string(g.WebhookID) != w.WebhookID || string(g.Body) != payload ||
			g.DueMs != w.DueMs || g.Attempt != w.Attempt || g.Fence != w.Fence || g.AskedMs != asked {
			t.Errorf("timer %d is %+v, want %+v", i, g, w)
		}
	}
	for n := range body {
		if _, ok := ReadMany(&Delivery{Body: []byte(body[:n])}, nil); ok {
			t.Errorf("taken for a whole one: %s", body[:n])
		}
	}
	for _, bad := range []string{``, `[]`, `{"timers":5}`, `{"timers":[5]}`, `{"timers":[{"id"}]}`, `{"timers":[{"id":}]}`, `{"timers":[{},]}`, `{}x`} {
		if _, ok := ReadMany(&Delivery{Body: []byte(bad)}, nil); ok {
			t.Errorf("taken for one: %s", bad)
		}
	}
}

// BenchmarkReadMany is for one timer of a call of a hundred.
func BenchmarkReadMany(b *testing.B) {
	one := `{"topic":"million","id":"lt-12345678-1234567","webhook_id":"msg_2KWPBgLlAfxdpx2AI54pPJ85f4W_1","due_ms":1700000000000,"attempt":1,"fence":123456,"payload":{"pad":"` + strings.Repeat("x", 180) + `"}}`
	d := &Delivery{Body: []byte(`{"timers":[` + strings.Repeat(one+",", 99) + one + `]}`)}
	var timers []Delivery
	b.ReportAllocs()
	for n := 0; n < b.N; n += 100 {
		var ok bool
		if timers, ok = ReadMany(d, timers[:0]); !ok || len(timers) != 100 {
			b.Fatal(ok, len(timers))
		}
	}
}
