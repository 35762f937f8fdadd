package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// built is a stream of several generations and segments, as files. Records 0..n-1, one frame
// each; closed is whether it ended cleanly.
func built(t testing.TB, n int, clean bool) *memfs.FS {
	t.Helper()
	return builtAt(t, n, clean, 1)
}

// builtAt gives frames that differ in their time only, and so in their hashes.
func builtAt(t testing.TB, n int, clean bool, wallMs int64) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	opt := tiny()
	opt.NowMs = func() int64 { return wallMs }
	s, err := Open(fsys, testDir, opt, nil)
	must(t, err)
	appendAll(t, s, 0, n)
	if len(s.Generations()) < 2 {
		t.Fatal("too few generations")
	}
	if clean {
		must(t, s.Close())
	}
	return copyFS(fsys)
}

// tiny are the options of built streams.
func tiny() Options {
	opt := small()
	opt.GenBytes, opt.SegmentBytes = 3000, 1024
	return opt
}

// copyFS returns an independent copy, with everything durable. lostAll is the file system after a
// power cut that keeps only synced writes.
func lostAll(m *memfs.FS) *memfs.FS {
	return m.CrashClone(rand.New(rand.NewPCG(1, 1)), memfs.CrashOptions{})
}

func copyFS(m *memfs.FS) *memfs.FS {
	return m.CrashClone(rand.New(rand.NewPCG(1, 1)), memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
}

// files lists all files below dir, in order.
func files(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	list, err := fsys.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range list {
		path := filepath.Join(dir, e.Name)
		if e.Dir {
			out = append(out, files(t, fsys, path)...)
		} else {
			out = append(out, path)
		}
	}
	return out
}

// reopen opens a damaged copy. Refusal must be a CorruptionError that names a place; success
// must replay a prefix. It returns how many records came back, or -1.
func reopen(t testing.TB, fsys *memfs.FS, what string) int {
	t.Helper()
	g := &got{}
	s, err := Open(fsys, testDir, tiny(), collect(t, g))
	isPrefix(t, g.data)
	if err != nil {
		var c *CorruptionError
		if !errors.As(err, &c) || c.Dir == "" {
			t.Fatalf("%s: refused without a place: %v", what, err)
		}
		return -1
	}
	must(t, s.Submit(frameOf(len(g.data)), true, nil)) // it must be writable
	must(t, s.Close())
	again := &got{}
	s, err = Open(fsys, testDir, tiny(), collect(t, again))
	if err != nil {
		t.Fatalf("%s: does not open after its repair: %v", what, err)
	}
	must(t, s.Close())
	isPrefix(t, again.data)
	if len(again.data) != len(g.data)+1 {
		t.Fatalf("%s: %d records, one more written, then %d", what, len(g.data), len(again.data))
	}
	return len(g.data)
}

func segments(t testing.TB, fsys vfs.FS) []string {
	var out []string
	for _, f := range files(t, fsys, testDir) {
		if _, ok := parseSegmentName(filepath.Base(f)); ok && !strings.Contains(f, preallocatedDir) {
			out = append(out, f)
		}
	}
	return out
}

// TestCutAtEveryByte: a cut segment is refused. The last of a stream that was not closed may be cut
// between two frames: so it looks when a crash comes between the steps of roll.
func TestCutAtEveryByte(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const n = 40
	for _, clean := range []bool{false, true} {
		whole := built(t, n, clean)
		list := segments(t, whole)
		for k, path := range list {
			info, err := whole.Stat(path)
			must(t, err)
			ends := frameEnds(t, whole, path)
			written := ends[len(ends)-1]
			for size := range info.Bytes + 1 {
				fsys := copyFS(whole)
				must(t, fsys.Damage(path, func(b []byte) []byte { return b[:size] }))
				what := fmt.Sprintf("%s cut at %d of %d", path, size, info.Bytes)
				back := reopen(t, fsys, what)
				last := k == len(list)-1 && !clean // a clean close says where it ends
				legal := size == info.Bytes || last && (size >= written || slices.Contains(ends, size))
				if legal != (back >= 0) {
					t.Fatalf("%s: %d records came back, the frames end at %v", what, back, ends)
				}
				if (size == info.Bytes || last && size >= written) && back != n {
					t.Fatalf("%s: %d of %d records", what, back, n)
				}
			}
		}
	}
}

// frameEnds are the places between the frames of a segment, its beginning and end included.
func frameEnds(t testing.TB, fsys vfs.FS, path string) []int64 {
	t.Helper()
	b, err := vfs.ReadFile(fsys, path, nil, 1<<20)
	must(t, err)
	ends := []int64{0}
	for at := 0; ; ends = append(ends, int64(at)) {
		_, n, err := nextEntry(b[at:])
		if err != nil {
			return ends
		}
		at += n
	}
}

// TestDamageAtRest flips, zeroes, moves and repeats bytes of a cleanly closed stream: all of
// it is refused, or it changed nothing.
func TestDamageAtRest(t *testing.T) {
	const n = 60
	whole := built(t, n, true)
	list := append(segments(t, whole), filepath.Join(testDir, firstName), filepath.Join(testDir, endName))
	rounds := 10_000
	if testing.Short() {
		rounds = 1000
	}
	r := rand.New(rand.NewPCG(7, 7))
	refused := 0
	for i := range rounds {
		fsys := copyFS(whole)
		path := list[r.IntN(len(list))]
		kind := []string{"flip", "zeros", "misplaced", "garbage"}[r.IntN(4)]
		changed := false
		must(t, fsys.Damage(path, func(b []byte) []byte {
			was := string(b)
			damage(r, kind, b)
			changed = was != string(b)
			return b
		}))
		back := reopen(t, fsys, fmt.Sprintf("round %d: %s in %s", i, kind, path))
		if back == -1 {
			refused++
		} else if changed {
			t.Fatalf("round %d: %s in %s was not detected, %d of %d records came back", i, kind, path, back, n)
		}
		if !changed && back == -1 {
			t.Fatalf("round %d: undamaged and refused", i)
		}
	}
	if refused < rounds/2 {
		t.Fatalf("only %d of %d changed anything", refused, rounds)
	}
}

func damage(r *rand.Rand, kind string, b []byte) {
	if len(b) == 0 {
		return
	}
	at := r.IntN(len(b))
	end := min(len(b), at+1+r.IntN(200))
	switch kind {
	case "flip":
		b[at] ^= 1 << r.IntN(8)
	case "zeros":
		clear(b[at:end])
	case "garbage":
		for k := at; k < end; k++ {
			b[k] = byte(r.IntN(256))
		}
	case "misplaced":
		copy(b[at:end], b[r.IntN(len(b)):])
	}
}

// TestDamageInUncleanTail flips bits in a stream that was not closed: only frames that no later
// frame confirms may be cut, and the rest must be a prefix.
func TestDamageInUncleanTail(t *testing.T) {
	const n = 60
	whole := built(t, n, false)
	list := segments(t, whole)
	r := rand.New(rand.NewPCG(9, 9))
	for i := range 3000 {
		fsys := copyFS(whole)
		path := list[r.IntN(len(list))]
		must(t, fsys.Damage(path, func(b []byte) []byte { damage(r, "flip", b); return b }))
		back := reopen(t, fsys, fmt.Sprintf("round %d: flip in %s", i, path))
		// Three frames to a batch: the last batch is confirmed by no later one.
		if back != -1 && back < n-3 {
			t.Fatalf("round %d: only %d of %d records came back", i, back, n)
		}
	}
}

func TestMissingAndExchangedFilesAreRefused(t *testing.T) {
	whole := built(t, 80, true)
	for _, path := range append(segments(t, whole), filepath.Join(testDir, firstName)) {
		fsys := copyFS(whole)
		must(t, fsys.Remove(path))
		if reopen(t, fsys, "without "+path) != -1 {
			t.Fatalf("opened without %s", path)
		}
	}
	for gen := uint64(1); gen <= 2; gen++ {
		fsys := copyFS(whole)
		must(t, vfs.RemoveTree(fsys, genPath(testDir, gen)))
		if reopen(t, fsys, "without a generation") != -1 {
			t.Fatalf("opened without generation %d", gen)
		}
	}
	list := segments(t, whole)
	fsys := copyFS(whole)
	b, err := vfs.ReadFile(fsys, list[0], nil, 1<<20)
	must(t, err)
	must(t, fsys.Damage(list[1], func([]byte) []byte { return b }))
	if reopen(t, fsys, "exchanged") != -1 {
		t.Fatal("opened with one segment in place of another")
	}
}

// TestSegmentThatLostAllIsNamed: a segment without a frame looks whole by itself, and the next one
// does not follow. The refusal names both, as the next one may be of another generation.
func TestSegmentThatLostAllIsNamed(t *testing.T) {
	whole := built(t, 80, true)
	list := segments(t, whole)
	for _, path := range list[:len(list)-1] {
		fsys := copyFS(whole)
		must(t, fsys.Damage(path, func([]byte) []byte { return nil }))
		_, err := Open(fsys, testDir, small(), nil)
		if _, is := errors.AsType[*CorruptionError](err); !is || !strings.Contains(err.Error(), path) {
			t.Errorf("without the frames of %s: %v", path, err)
		}
	}
}

// TestForeignSegmentIsRefused puts a segment with the same frame numbers from another
// stream in place: each frame is whole, only the chain tells.
func TestForeignSegmentIsRefused(t *testing.T) {
	whole, foreign := built(t, 60, true), builtAt(t, 60, true, 2)
	for _, path := range segments(t, whole) {
		b, err := vfs.ReadFile(foreign, path, nil, 1<<20)
		must(t, err)
		fsys := copyFS(whole)
		must(t, fsys.Damage(path, func([]byte) []byte { return b }))
		if reopen(t, fsys, "foreign "+path) != -1 {
			t.Fatalf("opened with a foreign %s", path)
		}
	}
}

// TestDurableFrameIsNeverCut damages a frame of the last segment that later frames confirm:
// without an END file, too, this is damage and not a torn write.
func TestDurableFrameIsNeverCut(t *testing.T) {
	tried := 0
	for n := 60; n < 75; n++ {
		whole := built(t, n, false)
		list := segments(t, whole)
		last := list[len(list)-1]
		b, err := vfs.ReadFile(whole, last, nil, 1<<20)
		must(t, err)
		if len(trimZeros(b)) < 700 {
			continue
		}
		tried++
		for bit := range int64(8 * 100) {
			fsys := copyFS(whole)
			must(t, fsys.FlipBit(last, bit))
			if reopen(t, fsys, "durable frame damaged") != -1 {
				t.Fatalf("n %d, bit %d: a durable frame was cut", n, bit)
			}
		}
	}
	if tried == 0 {
		t.Fatal("no last segment was long enough")
	}
}

func TestBrokenTailIsKept(t *testing.T) {
	whole := built(t, 60, false)
	list := segments(t, whole)
	last := list[len(list)-1]
	must(t, whole.Damage(last, func(b []byte) []byte {
		copy(b[len(trimZeros(b)):], "half a frame")
		return b
	}))
	s, g := mustOpen(t, whole, tiny())
	if len(g.data) != 60 {
		t.Fatalf("%d of 60 records", len(g.data))
	}
	cut := s.Cut()
	must(t, s.Close())
	b, err := vfs.ReadFile(whole, cut.File, nil, 1<<20)
	if must(t, err); string(b) != "half a frame" || cut.Bytes != len(b) || !strings.HasSuffix(cut.File, brokenSuffix) {
		t.Fatalf("%+v holds %q", cut, b)
	}
	if n := reopen(t, whole, "torn"); n != 60 {
		t.Fatalf("%d of 60 records", n)
	}
	s, _ = mustOpen(t, whole, tiny())
	if must(t, s.Close()); s.Cut() != (Cut{}) {
		t.Errorf("%+v of a log that ended well", s.Cut())
	}
}

func TestVerifyFindsWhatOpenRefuses(t *testing.T) {
	whole := built(t, 60, true)
	rep, err := Verify(whole, "data")
	must(t, err)
	if rep.Streams != 1 || rep.Records != 60 || rep.Generations < 2 {
		t.Fatalf("report %+v", rep)
	}
	path := segments(t, whole)[1]
	must(t, whole.FlipBit(path, 8*100))
	var out strings.Builder
	rep, err = Verify(whole, "data")
	var c *CorruptionError
	if !errors.As(err, &c) || filepath.Join(c.Dir, c.Segment) != path || len(rep.Problems) != 1 {
		t.Fatalf("verify: %v", err)
	}
	if err := Inspect(whole, "data", &out, InspectOptions{Records: true}); !errors.As(err, &c) {
		t.Fatalf("inspect: %v", err)
	}
	for _, want := range []string{"PROBLEM", path, "offset", "ENTRIES shard 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("inspect does not print %q:\n%s", want, out.String())
		}
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
