package libs

import (
	"testing"

	"github.com/valyala/fastjson"
)

// add is that of package strictjson, whose benchmarks do the same work.
var add = []byte(`{"id":"order-7700123","delay":"30m","labels":["orders"],"payload":{"order":7700123,"customer":"c-99182","items":[{"sku":"AB-1","n":2},{"sku":"CD-77","n":1}],"total":"129.90","note":"please ring twice, the bell is quiet","step":"close-if-unpaid"}}`)

// A tree of the document, which takes fields that are given twice, and numbers of any spelling.
func BenchmarkFastjson(b *testing.B) {
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	var p fastjson.Parser
	var payload []byte
	for b.Loop() {
		v, err := p.ParseBytes(add)
		if err != nil {
			b.Fatal(err)
		}
		payload = v.Get("payload").MarshalTo(payload[:0])
		if v.GetStringBytes("id") == nil || v.GetStringBytes("delay") == nil || v.GetArray("labels") == nil {
			b.Fatal("a field is missing")
		}
	}
}
