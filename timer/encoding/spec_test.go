package encoding

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"carillon/timer"
)

// TestSpecHasLengthOfCallback: the length of a callback is as short as it can be, at each length
// at which it gets longer.
func TestSpecHasLengthOfCallback(t *testing.T) {
	before := []byte("what was there before")
	for _, n := range []int{1, 120, 123, 124, 125, 126, 127, 128, 129, 16_370, 16_379, 16_380, 16_381, 16_382, 40_000} {
		s := timer.Spec{DueMs: 77, Payload: []byte("{}"), PayloadKind: timer.JSONPayload}
		s.Callback.URL = strings.Repeat("u", n)
		callback := AppendCallback(nil, &s.Callback)
		want := binary.AppendVarint(bytes.Clone(before), s.DueMs)
		want = AppendRest(append(binary.AppendUvarint(want, uint64(len(callback))), callback...), &s)
		if got := AppendSpec(bytes.Clone(before), &s); !bytes.Equal(got, want) {
			t.Errorf("URL of %d bytes: %d bytes, want %d", n, len(got), len(want))
		}
	}
}
