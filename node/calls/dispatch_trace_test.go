package calls

import "testing"

// TestSpanOfAnAttempt: each attempt of each version has a span of its own, and none is zero.
func TestSpanOfAnAttempt(t *testing.T) {
	seen := map[[8]byte]bool{{}: true}
	for _, id := range []string{"", "msg_a_1", "msg_a_2"} {
		for fence := range uint64(1000) {
			span := spanOf(id, fence)
			if seen[span] || span != spanOf(id, fence) {
				t.Fatalf("%s, fence %d: span %x", id, fence, span)
			}
			seen[span] = true
		}
	}
}
