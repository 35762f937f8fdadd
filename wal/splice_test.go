package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestReadsRepairedFrames: builds until November 2026 put frames in the place of lost ones. The
// last of these carries the chain value that the next frame was written with.
func TestReadsRepairedFrames(t *testing.T) {
	made := func(h header, body string) []byte {
		f := NewFrame()
		if h.splice {
			f.buf = append(f.buf, 9, 0, 0, 0)
		}
		f.Append(RecordEntries, 1, []byte(body))
		testSalt.seal(f.buf, h)
		return f.buf
	}
	var list []byte
	list = appendEntry(list, made(header{seq: 4, prevHash: 3, splice: true}, "put back"))
	list = appendEntry(list, made(header{seq: 5, prevHash: 9}, "as it was"))
	c := chain{next: 4, prevHash: 3, salt: testSalt}
	var bodies []string
	end, bad, err := c.scan(list, func(_ int, _ header, records []byte) error {
		r, _, ok := nextRecord(records)
		bodies = append(bodies, fmt.Sprint(string(r.Data), ok))
		return nil
	})
	if err != nil || bad != nil || end != len(list) || fmt.Sprint(bodies) != "[put backtrue as it wastrue]" {
		t.Errorf("%v at %d of %d, %v: %v", bad, end, len(list), err, bodies)
	}
	short := NewFrame()
	testSalt.seal(short.buf, header{seq: 4, splice: true})
	if _, _, err := testSalt.open(short.buf); !errors.Is(err, errRecords) {
		t.Errorf("without its value: %v", err)
	}
}

// TestOtherReleaseIsNoDamage: a frame that only another release can read is not damaged.
func TestOtherReleaseIsNoDamage(t *testing.T) {
	if e := (&CorruptionError{Err: fmt.Errorf("%w; %w", errVersion, errWasDurable)}); !e.OtherRelease() {
		t.Error(e)
	}
	if e := (&CorruptionError{Err: errChecksum}); e.OtherRelease() {
		t.Error(e)
	}
}

// TestLogOfABuildBeforeTheFirstRelease: it is named as what it is, and is no damage. These builds
// gave the stream no salt.
func TestLogOfABuildBeforeTheFirstRelease(t *testing.T) {
	whole := encodeBounds(firstMagic, bounds{gen: 1, seq: 1})
	old := slices.Clone(whole[:boundsBytes-16])
	old = binary.LittleEndian.AppendUint64(old, xxhash.Sum64(old))
	_, err := decodeBounds(firstMagic, old)
	e := &CorruptionError{Dir: "wal/0", Segment: firstName, Err: err}
	if text := e.Error(); !e.OtherRelease() || strings.Contains(text, "damage") || !strings.Contains(text, "before 1.0.0-rc.1") {
		t.Error(text)
	}
	old[20]++
	if _, err := decodeBounds(firstMagic, old); !errors.Is(err, errTruncated) {
		t.Errorf("damaged: %v", err)
	}
}
