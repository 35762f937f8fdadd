package wal

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	tidwall "github.com/tidwall/wal"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// TestAppendersWriteTheSameBytes runs the same life through tidwall/wal, through our own
// appender on the same file system, and in memory: every file is equal, each opens the
// others' directories, and tidwall/wal itself reads every generation, entry by entry.
func TestAppendersWriteTheSameBytes(t *testing.T) {
	osDir, fileDir := t.TempDir(), t.TempDir()
	type place struct {
		fs  vfs.FS
		dir string
	}
	places := []place{{vfs.OS{}, osDir}, {prefixFS{vfs.OS{}, fileDir}, "log"}, {memfs.New(), testDir}}
	for round := range 4 {
		for i := range places {
			// The places take turns in writing where another wrote.
			p := places[(i+round)%len(places)]
			if i > 0 && round > 0 {
				break
			}
			live(t, p.fs, p.dir, round)
		}
		if round == 0 {
			want := contents(t, places[0].fs, places[0].dir)
			for _, p := range places[1:] {
				equalContents(t, want, contents(t, p.fs, p.dir))
			}
			continue
		}
		from := places[round%len(places)]
		for i, p := range places {
			if p != from {
				copyTree(t, from.fs, from.dir, places[i].fs, places[i].dir)
			}
		}
	}
	readByTidwall(t, osDir)
}

// lifeRecords is how many records each life appends: enough for several generations.
const lifeRecords = 150

func live(t *testing.T, fsys vfs.FS, dir string, round int) {
	t.Helper()
	g := &got{}
	s, err := Open(fsys, dir, small(), collect(t, g))
	must(t, err)
	isPrefix(t, g.data)
	if len(g.data) != round*lifeRecords {
		t.Fatalf("round %d: %d records", round, len(g.data))
	}
	appendAll(t, s, round*lifeRecords, (round+1)*lifeRecords)
	must(t, s.Close())
}

func contents(t *testing.T, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, path := range files(t, fsys, dir) {
		name, err := filepath.Rel(dir, path)
		must(t, err)
		if name == vfs.LockName {
			continue
		}
		b, err := vfs.ReadFile(fsys, path, nil, 1<<30)
		must(t, err)
		out[name] = b
	}
	return out
}

func equalContents(t *testing.T, want, have map[string][]byte) {
	t.Helper()
	if len(want) != len(have) || len(want) < 6 {
		t.Fatalf("%d files against %d", len(want), len(have))
	}
	for name, b := range want {
		if !bytes.Equal(b, have[name]) {
			t.Fatalf("%s differs", name)
		}
	}
}

func copyTree(t *testing.T, from vfs.FS, fromDir string, to vfs.FS, toDir string) {
	t.Helper()
	must(t, vfs.RemoveTree(to, toDir))
	for name, b := range contents(t, from, fromDir) {
		path := filepath.Join(toDir, name)
		must(t, to.MkdirAll(filepath.Dir(path)))
		must(t, vfs.WriteSynced(to, path, b))
	}
}

func readByTidwall(t *testing.T, dir string) {
	t.Helper()
	next := uint64(1)
	gens, err := listGenerations(vfs.OS{}, dir)
	must(t, err)
	for _, g := range gens {
		log, err := tidwall.Open(genPath(dir, g.num), &tidwall.Options{AllowEmpty: true})
		must(t, err)
		last, err := log.LastIndex()
		must(t, err)
		for ; next <= last; next++ {
			b, err := log.Read(next)
			must(t, err)
			if h, _, err := testSalt.open(b); err != nil || h.seq != next {
				t.Fatalf("entry %d: frame %d, %v", next, h.seq, err)
			}
		}
		must(t, log.Close())
	}
	if next != 4*lifeRecords+1 {
		t.Fatalf("tidwall/wal read up to %d", next)
	}
}

func TestFilePermissions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	s, err := Open(vfs.OS{}, dir, small(), nil)
	must(t, err)
	appendAll(t, s, 0, 60)
	must(t, s.Close())
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		want := vfs.FilePerm
		if d.IsDir() {
			want = vfs.DirPerm
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}))
}

func TestFrameRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	f := NewFrame()
	for range 2000 {
		f.Reset()
		var want []Record
		for range r.IntN(6) {
			rec := Record{Type: RecordType(r.IntN(256)), Shard: r.Uint32(), Data: randomBytes(r, r.IntN(300))}
			if r.IntN(2) == 0 {
				f.Append(rec.Type, rec.Shard, rec.Data)
			} else {
				f.AppendFunc(rec.Type, rec.Shard, func(dst []byte) []byte { return append(dst, rec.Data...) })
			}
			want = append(want, rec)
		}
		h := header{seq: r.Uint64(), prevHash: r.Uint32(), synced: r.Uint64(), wallMs: r.Uint64()}
		sum := testSalt.seal(f.buf, h)
		entry := appendEntry(nil, f.buf)
		b, size, err := nextEntry(entry)
		if err != nil || size != len(entry) || int64(size) != entryBytes(f.Len()) {
			t.Fatalf("entry of %d bytes: %d, %v", len(entry), size, err)
		}
		back, hash, err := testSalt.open(b)
		if err != nil || back != h || hash != sum || f.Records() != len(want) {
			t.Fatalf("header %+v came back as %+v: %v", h, back, err)
		}
		rest := b[frameHeaderBytes:]
		for _, w := range want {
			var g Record
			var ok bool
			if g, rest, ok = nextRecord(rest); !ok || g.Type != w.Type || g.Shard != w.Shard || !bytes.Equal(g.Data, w.Data) {
				t.Fatalf("record %+v came back as %+v", w, g)
			}
		}
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		if _, _, err := testSalt.open(b); err == nil {
			t.Fatal("a flipped bit was not seen")
		}
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

func TestFrameAppendDoesNotAllocate(t *testing.T) {
	f, body := NewFrame(), make([]byte, 100)
	fill := func() {
		f.Reset()
		for shard := range uint32(20) {
			f.Append(RecordEntries, shard, body)
		}
	}
	fill()
	if n := testing.AllocsPerRun(100, fill); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
