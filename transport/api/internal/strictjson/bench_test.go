package strictjson

import (
	"bytes"
	"encoding/json"
	"testing"
)

// add is one add as clients send it: about 200 bytes of payload, everything else from the topic.
// ./test/bench/libs has it, too.
var add = []byte(`{"id":"order-7700123","delay":"30m","labels":["orders"],"payload":{"order":7700123,"customer":"c-99182","items":[{"sku":"AB-1","n":2},{"sku":"CD-77","n":1}],"total":"129.90","note":"please ring twice, the bell is quiet","step":"close-if-unpaid"}}`)

// Each of these gets the id, the delay, the labels and the payload's bytes out of an add, and
// refuses other fields if it can.

func BenchmarkScanner(b *testing.B) {
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	for b.Loop() {
		var id, delay string
		var labels []string
		var payload []byte
		s := Of(add)
		for n := s.Open('{', "add"); s.More(n, '}'); n++ {
			switch string(s.Key()) {
			case "id":
				id = s.Text("id")
			case "delay":
				delay = s.Text("delay")
			case "labels":
				for n := s.Open('[', "labels"); s.More(n, ']'); n++ {
					labels = append(labels, s.Text("labels"))
				}
			case "payload":
				payload = s.Value()
			default:
				b.Fatal("unknown field")
			}
		}
		s.End()
		if s.Err() != nil || id == "" || delay == "" || len(labels) != 1 || payload == nil {
			b.Fatal(s.Err())
		}
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	for b.Loop() {
		var v struct {
			ID      string
			Delay   string
			Labels  []string
			Payload json.RawMessage
		}
		d := json.NewDecoder(bytes.NewReader(add))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil || v.ID == "" {
			b.Fatal(err)
		}
	}
}
