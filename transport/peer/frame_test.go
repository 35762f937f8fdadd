package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"carillon/test/sim/forged"
)

type testFrame struct {
	kind    byte
	payload string
}

func sealed(frames ...testFrame) []byte {
	var b []byte
	for _, f := range frames {
		b = appendFrame(b, f.kind, nil, []byte(f.payload))
	}
	seal(b, 0)
	return b
}

// readAll reads frames until an error, which is io.EOF after the last whole frame.
func readAll(source io.Reader, limit int) (frames []testFrame, err error) {
	r := newFrameReader(source, limit)
	for {
		kind, payload, _, err := r.next()
		if err != nil {
			return frames, err
		}
		frames = append(frames, testFrame{kind, string(payload)})
	}
}

var someFrames = []testFrame{
	{kindFrame, "a"}, {kindHeartbeat, ""}, {kindCall, strings.Repeat("b", readBufferBytes-frameHeaderBytes)},
	{kindReply, strings.Repeat("c", 3*readBufferBytes)}, {kindFrame, "d"},
}

func TestFrames(t *testing.T) {
	wire := sealed(someFrames...)
	for name, source := range map[string]io.Reader{
		"whole": bytes.NewReader(wire), "byte by byte": iotest.OneByteReader(bytes.NewReader(wire)),
		"with the end": iotest.DataErrReader(bytes.NewReader(wire)), "halves": iotest.HalfReader(bytes.NewReader(wire)),
	} {
		frames, err := readAll(source, 1<<20)
		if err != io.EOF || len(frames) != len(someFrames) {
			t.Fatalf("%s: %d frames, %v", name, len(frames), err)
		}
		for i, f := range frames {
			if f != someFrames[i] {
				t.Errorf("%s: frame %d differs", name, i)
			}
		}
	}
}

func TestDamagedFrames(t *testing.T) {
	small := sealed(testFrame{kindFrame, "hello"}, testFrame{kindFrame, "world"})
	for at := range small { // no flipped byte goes unnoticed
		damaged := bytes.Clone(small)
		damaged[at] ^= 0x10
		if frames, err := readAll(bytes.NewReader(damaged), 1<<20); err == io.EOF || len(frames) > 1 {
			t.Errorf("byte %d: %v, %v", at, frames, err)
		}
	}
	for cut := 1; cut < len(small); cut++ {
		want := io.ErrUnexpectedEOF
		if cut == len(small)/2 {
			want = io.EOF
		}
		if _, err := readAll(bytes.NewReader(small[:cut]), 1<<20); err != want {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for name, wire := range map[string][]byte{
		"a gap":    small[len(small)/2:],
		"a repeat": append(bytes.Clone(small[:len(small)/2]), small[:len(small)/2]...),
	} {
		if _, err := readAll(bytes.NewReader(wire), 1<<20); !errors.Is(err, errSequence) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The size is judged before memory is taken for it.
func TestFrameSizeLimit(t *testing.T) {
	wire := make([]byte, frameHeaderBytes)
	binary.LittleEndian.PutUint32(wire, 0xffff_ffff)
	r := newFrameReader(bytes.NewReader(wire), 1<<20)
	var err error
	if n := testing.AllocsPerRun(1, func() { r.from, r.to = 0, 0; r.source = bytes.NewReader(wire); _, _, _, err = r.next() }); n > 10 {
		t.Errorf("%v allocations", n)
	}
	if err == nil || !strings.Contains(err.Error(), "the limit is 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestSequenceWraps(t *testing.T) {
	b := appendFrame(nil, kindFrame, nil, []byte("x"))
	b = appendFrame(b, kindFrame, nil, []byte("y"))
	if next := seal(b, 0xffff_ffff); next != 1 {
		t.Errorf("next is %d", next)
	}
	r := newFrameReader(bytes.NewReader(b), 100)
	r.sequence = 0xffff_ffff
	for range 2 {
		if _, _, _, err := r.next(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(sealed(testFrame{kindFrame, "hello"}, testFrame{kindHeartbeat, ""}))
	f.Add(sealed(testFrame{kindCall, strings.Repeat("x", callHeaderBytes)}))
	for _, form := range forged.Forms() {
		f.Add(sealed(testFrame{kindFrame, string(form)}, testFrame{kindChunk, string(form)}))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, wire []byte) {
		frames, err := readAll(bytes.NewReader(wire), 1<<16)
		if err == nil {
			t.Fatal("no end")
		}
		again := sealed(frames...) // an accepted frame is exactly as a sender would write it
		if !bytes.HasPrefix(wire, again) || err == io.EOF && len(again) != len(wire) {
			t.Fatalf("%d frames of %d bytes read from %d bytes, %v", len(frames), len(again), len(wire), err)
		}
	})
}
