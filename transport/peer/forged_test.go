package peer

import (
	"bytes"
	"io"
	"testing"

	"carillon/test/sim/forged"
)

// TestFrameInAFrame: a payload may be frames, of this connection's very numbers. They are data, and
// where the frame around them is damaged the connection ends.
func TestFrameInAFrame(t *testing.T) {
	if frames, err := readAll(bytes.NewReader(append(forged.PeerFrame(0, 1), forged.PeerFrame(1, 7)...)), 1<<20); err != io.EOF || len(frames) != 2 {
		t.Fatalf("the form is not right: %v, %v", frames, err)
	}
	var sent []testFrame
	for _, form := range forged.Forms() {
		sent = append(sent, testFrame{kindFrame, string(form)}, testFrame{kindChunk, string(append(form, forged.PeerFrame(2, kindEnd)...))})
	}
	wire := sealed(sent...)
	if frames, err := readAll(bytes.NewReader(wire), 1<<20); err != io.EOF || len(frames) != len(sent) {
		t.Fatalf("%d frames of %d, %v", len(frames), len(sent), err)
	}
	for at := range wire {
		damaged := bytes.Clone(wire)
		damaged[at] ^= 0x10
		frames, err := readAll(bytes.NewReader(damaged), 1<<20)
		if err == io.EOF {
			t.Fatalf("byte %d: a damaged stream ends well", at)
		}
		for i, f := range frames {
			if f != sent[i] {
				t.Fatalf("byte %d: frame %d is %q", at, i, f.payload)
			}
		}
	}
}
