package peer

import (
	"io"
	"slices"
	"testing"
)

// TestUnsealSeal: frames come out as they went in; a frame that was changed on the way, and all
// behind it, does not.
func TestUnsealSeal(t *testing.T) {
	first, second := Seal(7, []byte("one")), Seal(8, []byte("two"))
	taken := func(b []byte, sequence uint32) (list []string, err error) {
		err = Unseal(b, sequence, 100, func(p []byte) { list = append(list, string(p)) })
		return list, err
	}
	wire := slices.Concat(first, second)
	if list, err := taken(wire, 7); err != io.EOF || !slices.Equal(list, []string{"one", "two"}) {
		t.Fatalf("%q, %v", list, err)
	}
	if list, err := taken(wire, 8); err != errSequence || len(list) != 0 {
		t.Fatalf("%q, %v", list, err)
	}
	for bit := range 8 * len(first) {
		wire[bit/8] ^= 1 << (bit % 8)
		if list, err := taken(wire, 7); err == io.EOF || len(list) != 0 {
			t.Errorf("bit %d: %q, %v", bit, list, err)
		}
		wire[bit/8] ^= 1 << (bit % 8)
	}
}
