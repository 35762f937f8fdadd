package wal

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
	"carillon/test/memfs"
	"carillon/test/sim/forged"
)

// testSalt is that of the streams of tests. A client does not know it, and may try others.
const testSalt, otherSalt salt = 0x5A17_5A17_5A17_5A17, 0xBAD_5A17

// forge appends entries such as a client can write who knows the format and all but the salt: n
// frames from seq on, by two salts, and one far ahead that says that all before it was durable.
func forge(dst []byte, seq uint64, n int) []byte {
	for _, s := range []salt{0, otherSalt} {
		prev := uint32(77)
		for i := range n {
			f := NewFrame()
			f.Append(RecordEntries, 1, []byte("forged"))
			prev = uint32(s.seal(f.buf, header{seq: seq + uint64(i), prevHash: prev, synced: 1}))
			dst = appendEntry(dst, f.buf)
		}
		f := NewFrame()
		s.seal(f.buf, header{seq: 1 << 62, synced: 1 << 61})
		dst = appendEntry(dst, f.buf)
	}
	return dst
}

// TestFrameInAPayloadProvesNothing: the last write was not synced, and a power cut has torn it.
// What a client wrote in it does not make that damage to a frame that was durable.
func TestFrameInAPayloadProvesNothing(t *testing.T) {
	var guesses []byte // each costs a search that believes a frame's beginning as much as it can
	for range 2000 {
		guesses = append(guesses, 0xC0, 0xB8, 2) // a length of 40,000
		f := NewFrame()
		testSalt.seal(f.buf, header{seq: 1 << 62, synced: 1 << 61})
		copy(f.buf, make([]byte, 4)) // all but the mark
		guesses = append(guesses, f.buf...)
	}
	for name, body := range map[string][]byte{"frames": forge(nil, 5, 3), "beginnings of frames": guesses} {
		fsys := memfs.New()
		opt := small()
		opt.SegmentBytes, opt.GenBytes = 1<<20, 1<<20
		s, _ := mustOpen(t, fsys, opt)
		appendAll(t, s, 0, 3)
		f := NewFrame()
		f.Append(RecordEntries, 1, append(bytes.Clone(body), bytes.Repeat([]byte{1}, 100)...))
		must(t, s.Submit(f, false, nil))
		_, err := s.Step()
		must(t, err)
		path, end := segments(t, fsys)[0], s.w.seg.bytes
		for _, cut := range []int64{1, 50, 150} {
			torn := copyFS(fsys)
			must(t, torn.Damage(path, func(b []byte) []byte { clear(b[end-cut:]); return b }))
			if back := reopen(t, torn, name); back != 3 {
				t.Fatalf("%s: %d records came back, want 3", name, back)
			}
		}
	}
}

// TestForgedFormsAreRight: what other tests put into payloads has the form of frames and snapshots.
func TestForgedFormsAreRight(t *testing.T) {
	b, size, err := nextEntry(forged.LogFrame(1<<62, 1<<61))
	must(t, err)
	h, _, err := salt(forged.Salt).open(b)
	if _, ok := checkRecords(b[frameHeaderBytes:]); err != nil || !ok || size != len(b)+1 || h.seq != 1<<62 || h.synced != 1<<61 {
		t.Errorf("%+v, %v", h, err)
	}
	fsys := memfs.New()
	must(t, fsys.MkdirAll(snapDir))
	name := SnapshotMeta{Shard: 1, Index: 9, Term: 2}.FileName()
	must(t, vfs.WriteSynced(fsys, filepath.Join(snapDir, name), forged.Snapshot(1, 9, 2)))
	if m, state, err := readSnapshot(fsys, name); err != nil || string(state) != "forged" || m.Hash != 5 {
		t.Errorf("%+v, %q, %v", m, state, err)
	}
}

// TestFilesOfAnotherStream: segments and an END of another stream are not taken for this one's.
func TestFilesOfAnotherStream(t *testing.T) {
	ours, theirs := built(t, 40, true), memfs.New()
	opt := Options{GenBytes: 3000, SegmentBytes: 1024, NowMs: func() int64 { return 1 }, Salt: func() uint64 { return uint64(otherSalt) }}
	s, err := Open(theirs, testDir, opt, nil)
	must(t, err)
	appendAll(t, s, 0, 40)
	must(t, s.Close())
	for _, path := range append(segments(t, ours), testDir+"/"+endName) {
		mixed := copyFS(ours)
		b, err := vfs.ReadFile(theirs, path, nil, 1<<20)
		must(t, err)
		must(t, mixed.Damage(path, func([]byte) []byte { return b }))
		if back := reopen(t, mixed, path); back != -1 {
			t.Errorf("%s of another stream was taken", path)
		}
	}
}

// TestSnapshotInASnapshot: a client's bytes are a footer that fits the file's header, in a file
// that is cut right behind it, or a whole snapshot: it is what it was, or it is refused.
func TestSnapshotInASnapshot(t *testing.T) {
	meta := snapMeta(9)
	_, seed := encodeSnapshotHeader(meta)
	inner := memfs.New()
	writeSnapshot(t, inner, meta, []byte("another state"))
	whole, err := vfs.ReadFile(inner, filepath.Join(snapDir, meta.FileName()), nil, 1<<20)
	must(t, err)
	for _, at := range []uint64{1, 5000, snapshotChunkBytes - snapshotFooterBytes, snapshotChunkBytes, snapshotChunkBytes + 700} {
		chunks := (at + snapshotChunkBytes - 1) / snapshotChunkBytes
		data := bytes.Repeat([]byte{'x'}, int(at))
		footer := snapshotFooter{chunks: chunks, bytes: at, stateHash: meta.Hash, contentHash: xxhash.Sum64(data)}
		data = append(append(append(data, footer.encode(seed)...), whole...), make([]byte, 3000)...)
		fsys := memfs.New()
		writeSnapshot(t, fsys, meta, data)
		if _, back, err := readSnapshot(fsys, meta.FileName()); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("footer at %d: %d bytes, %v", at, len(back), err)
		}
		path := filepath.Join(snapDir, meta.FileName())
		must(t, fsys.Damage(path, func(b []byte) []byte {
			end := bytes.Index(b, footer.encode(seed)) // none if it lies across two chunks
			return b[:max(end, 0)+snapshotFooterBytes]
		}))
		if _, _, err := readSnapshot(fsys, meta.FileName()); err == nil {
			t.Errorf("cut behind a client's footer at %d, it was read", at)
		}
	}
}
