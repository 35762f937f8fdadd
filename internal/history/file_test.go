package history

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/sim/forged"
	"carillon/test/testkit"
)

// TestFileGolden: the format of a sealed file must not change without its version.
func TestFileGolden(t *testing.T) {
	r := newStoreHarness(t, 1, nil)
	r.store.Record([]Event{
		{Shard: 3, Index: 700, Item: 0, Topic: 9, Seq: 41, EndMs: r.now - 900, ID: []byte("{order-77}close"), Body: []byte("first try")},
		{Shard: 3, Index: 700, Item: 1, Topic: 8, Seq: 42, State: 5, EndMs: r.now - 800, ID: []byte("b"), Body: []byte("cancelled")},
		{Shard: 1, Index: 12, Item: 0, Topic: 9, Seq: 7, State: 4, EndMs: r.now - 1000, ID: []byte("c"), Body: []byte("dead")},
		{Shard: 3, Index: 702, Item: 0, Topic: 9, Seq: 41, State: 3, EndMs: r.now - 100, ID: []byte("{order-77}close")},
	})
	r.store.Flush()
	r.now += hour
	r.store.Maintain()
	f, err := r.fs.Open(filepath.Join("history", fileName(1)))
	testkit.Must(t, err)
	size, _ := f.Size()
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	testkit.Golden(t, "file", got)
}

// FuzzDecodeRecord: no bytes make a record that was not written so.
func FuzzDecodeRecord(f *testing.F) {
	b := appendEvent(nil, &Event{Shard: 3, Index: 700, Item: 1, Topic: 9, Seq: 41, State: 3, EndMs: 1_700_000_000_000, ID: []byte("{k}a"), Body: []byte("body")})
	testSalt.seal(b)
	f.Add(b)
	for _, form := range forged.Forms() {
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		n, err := testSalt.decodeRecord(b, &e)
		if err != nil {
			return
		}
		again := appendEvent(nil, &e)
		if testSalt.seal(again); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%x\nagain %x", b[:n], again)
		}
	})
}

// TestHeadDamage: a file in the place of another is known by its head, as is any flipped bit of it.
// Zeros are none.
func TestHeadDamage(t *testing.T) {
	head := appendHead(nil, 7, 1_800_000_000_000, testSalt)
	var f file
	if n, ok := f.readHead(head); !ok || n != 7 || f.startMs != 1_800_000_000_000 || f.salt != testSalt {
		t.Fatal(n, f.startMs, f.salt, ok)
	}
	if _, ok := f.readHead(make([]byte, fileHead)); ok {
		t.Error("zeros are a head")
	}
	for bit := range 8 * len(head) {
		bad := bytes.Clone(head)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, ok := f.readHead(bad); ok {
			t.Errorf("bit %d", bit)
		}
	}
}

// TestFileInThePlaceOfAnother: what is in it is true, and that others are missing is said.
func TestFileInThePlaceOfAnother(t *testing.T) {
	r := newStoreHarness(t, 1, nil)
	for range 2 {
		r.entry()
		r.store.Flush()
		r.now += hour
		r.store.Maintain()
	}
	first, err := vfs.ReadFile(r.fs, filepath.Join("history", fileName(1)), nil, 1<<20)
	testkit.Must(t, err)
	r.store.Close()
	testkit.Must(t, r.fs.Damage(filepath.Join("history", fileName(2)), func([]byte) []byte { return first }))
	r.open()
	if s := r.store.Stats(); s.Damaged != 1 || s.Files != 2 {
		t.Errorf("%+v", s)
	}
}
