package history

import (
	"bytes"
	"path/filepath"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/sim/forged"
	"carillon/test/testkit"
)

// testSalt is that of the files of tests. A client does not know it.
const testSalt salt = 0x5A17_5A17_5A17_5A17

// TestForgedFormsAreRight: what other tests put into payloads has the form of a file of the
// history.
func TestForgedFormsAreRight(t *testing.T) {
	var e Event
	record := forged.HistoryRecord(7, 1<<40, "forged")
	if n, err := salt(forged.Salt).decodeRecord(record, &e); err != nil || n != len(record) || e.Shard != 7 || string(e.ID) != "forged" || e.State != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	r := newStoreHarness(t, 1, nil)
	file := append(append(forged.HistoryHead(), record...), forged.HistoryTail(uint64(fileHead+len(record)))...)
	r.store.Close()
	testkit.Must(t, vfs.WriteSynced(r.fs, filepath.Join("history", fileName(1)), file))
	r.open()
	if s := r.store.Stats(); s.Damaged != 0 || len(r.store.files) != 1 || !r.store.files[0].sealed {
		t.Errorf("the end is none: %+v", s)
	}
}

// TestRecordInARecord: the bytes of an event are a record, or the end of a file. Where the record
// around them is damaged, or the last of a file that was not sealed, they are nothing of their own.
func TestRecordInARecord(t *testing.T) {
	r := newStoreHarness(t, 3, nil)
	size := fileHead
	for i := range uint64(6) {
		e := Event{Shard: 1, Index: 10 + i, Topic: 1, Seq: i + 1, State: 3, EndMs: r.now - 5, ID: []byte{'a' + byte(i)}}
		e.Body = forged.HistoryRecord(1, 1<<40, "forged")
		size += recordHead + recordFixed + 1 + len(e.Body)
		e.Body = append(e.Body, forged.HistoryTail(uint64(size))...)
		size += tailBytes
		r.store.Record([]Event{e})
		r.all = append(r.all, e)
	}
	r.store.Flush()
	r.open() // as after a kill
	if list, _, err := r.store.List(&Query{Topic: 1, States: 1 << 3, Limit: 10}); err != nil || !same(list, r.all) {
		t.Fatalf("%d events, %v", len(list), err)
	}
	path := filepath.Join("history", fileName(1))
	for at := fileHead; at < size; at += 11 {
		r.fs.Kill()
		testkit.Must(t, r.fs.FlipBit(path, 8*int64(at)))
		r.open()
		list, _, err := r.store.List(&Query{Topic: 1, States: 1 << 3, Limit: 10})
		if err != nil || len(list) != len(r.all)-1 {
			t.Fatalf("flip at %d: %d events, %v", at, len(list), err)
		}
		for _, e := range list {
			if string(e.ID) == "forged" || !bytes.Equal(e.Body, r.all[e.Seq-1].Body) {
				t.Fatalf("flip at %d: event %q", at, e.ID)
			}
		}
		testkit.Must(t, r.fs.FlipBit(path, 8*int64(at)))
	}
}
