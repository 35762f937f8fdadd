package ring

import (
	"bytes"
	"testing"
)

// FuzzFounding: bytes from another founder are a plan that holds, or an error; a plan that is read
// is encoded as it came.
func FuzzFounding(f *testing.F) {
	p := &FoundingPlan{ClusterID: "c", Shards: 8, Replicas: 3, Nodes: nodes(3)}
	f.Add(p.Encode())
	f.Add(FoundingAnswer{Accepted: p, Refused: "r"}.Encode())
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := DecodeFoundingPlan(b); err == nil && p != nil {
			first := p.Encode()
			again, err := DecodeFoundingPlan(first)
			if err != nil || !again.equal(p) || !bytes.Equal(again.Encode(), first) {
				t.Fatalf("%s\nagain %v: %v", first, again, err)
			}
		}
		if a, err := DecodeFoundingAnswer(b); err == nil {
			if _, err := DecodeFoundingAnswer(a.Encode()); err != nil {
				t.Fatalf("%s: %v", a.Encode(), err)
			}
		}
	})
}
