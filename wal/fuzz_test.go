package wal

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
	"carillon/test/sim/forged"
)

func FuzzFrame(f *testing.F) {
	frame := frameOf(1)
	testSalt.seal(frame.buf, header{seq: 1})
	f.Add(appendEntry(nil, frame.buf))
	for _, form := range forged.Forms() {
		f.Add(form)
		inner := NewFrame()
		inner.Append(RecordEntries, 1, form)
		testSalt.seal(inner.buf, header{seq: 1})
		f.Add(append(appendEntry(nil, inner.buf), form...))
	}
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x10})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := chain{next: 1, salt: testSalt}
		end, bad, _ := c.scan(b, func(off int, h header, records []byte) error {
			if off >= len(b) || h.seq == 0 {
				t.Fatalf("frame %d at %d of %d", h.seq, off, len(b))
			}
			return nil
		})
		if end > len(b) || bad == nil && end != len(b) {
			t.Fatalf("stopped at %d of %d without a reason", end, len(b))
		}
		if bad != nil {
			classifyTail(testSalt, b[end:], c.next)
		}
	})
}

// FuzzOpen puts arbitrary bytes into the last or a closed segment.
func FuzzOpen(f *testing.F) {
	whole := built(f, 40, false)
	list := segments(f, whole)
	for k, path := range list {
		b, err := vfs.ReadFile(whole, path, nil, 1<<20)
		must(f, err)
		f.Add(b, uint8(k))
	}
	for _, form := range forged.Forms() {
		b, err := vfs.ReadFile(whole, list[len(list)-1], nil, 1<<20)
		must(f, err)
		f.Add(append(b[:len(b)/2:len(b)/2], form...), uint8(len(list)-1))
	}
	f.Add([]byte{0}, uint8(len(list)-1))
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		fsys := copyFS(whole)
		must(t, fsys.Damage(list[int(which)%len(list)], func([]byte) []byte { return b }))
		s, err := Open(fsys, testDir, tiny(), nil)
		var c *CorruptionError
		if err != nil {
			if !errors.As(err, &c) {
				t.Fatal(err)
			}
			return
		}
		must(t, s.Close())
		if _, err := Verify(fsys, "data"); err != nil {
			t.Fatalf("opened and repaired, and still damaged: %v", err)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	whole := memfs.New()
	writeSnapshot(f, whole, snapMeta(1), []byte("some state"))
	path := filepath.Join(snapDir, snapMeta(1).FileName())
	seed, err := vfs.ReadFile(whole, path, nil, 1<<20)
	must(f, err)
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add(forged.Snapshot(3, 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := memfs.New()
		must(t, fsys.MkdirAll(snapDir))
		must(t, vfs.WriteSynced(fsys, path, b))
		r, err := OpenSnapshot(fsys, snapDir, filepath.Base(path))
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			r.Close()
		}
		var c *CorruptionError
		if err != nil && !errors.As(err, &c) {
			t.Fatal(err)
		}
	})
}

// FuzzMark: a FIRST or END file is as it was written, or it is refused.
func FuzzMark(f *testing.F) {
	f.Add(encodeBounds(firstMagic, bounds{gen: 3, seq: 900, prevHash: 77, salt: testSalt}))
	f.Add(encodeBounds(endMagic, bounds{gen: 1, seq: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, magic := range []string{firstMagic, endMagic} {
			if m, err := decodeBounds(magic, b); err == nil && !bytes.Equal(encodeBounds(magic, m)[:boundsBytes-8], b[:boundsBytes-8]) {
				t.Fatalf("%x was read as %+v", b, m)
			}
		}
	})
}
