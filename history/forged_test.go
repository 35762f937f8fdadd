package history

import (
	"bytes"
	"path/filepath"
	"testing"

	"carillon/vfs"
)

// testSalt is that of the files of tests. A client does not know it, and may try another.
const testSalt salt = 0x5A17_5A17_5A17_5A17

// forge appends what a client can write who knows the format and all but the salt: a record of
// another event, then the end of a sealed file that says that there is no record.
func forge(dst []byte, shard uint32) []byte {
	const known salt = 0
	at := len(dst)
	dst = appendEvent(dst, &Event{Shard: shard, Index: 1 << 40, Topic: 1, Seq: 1, State: 3, EndMs: 1000*hour - 1, ID: []byte("forged"), Body: []byte("forged")})
	known.seal(dst[at:])
	empty := file{salt: known, data: fileHead, index: newIndex(0)}
	return append(dst, empty.appendTail()...)
}

// TestRecordInARecord: the bytes of an event are a record, or the end of a file. Where the record
// around them is damaged, or the last of a file that was not sealed, they are nothing of their own.
func TestRecordInARecord(t *testing.T) {
	r := newStoreHarness(t, 3, nil)
	for i := range uint64(6) {
		e := Event{Shard: 1, Index: 10 + i, Topic: 1, Seq: i + 1, State: 3, EndMs: r.now - 5, ID: []byte{'a' + byte(i)}}
		e.Body = forge(nil, 1)
		if i == 5 { // a sealed file's end is 64 bytes, and an empty index a filter before it
			e.Body = forge(bytes.Repeat([]byte{'x'}, 100), 1)
		}
		r.store.Record([]Event{e})
		r.all = append(r.all, e)
	}
	r.store.Flush()
	path := filepath.Join("history", fileName(1))
	size, err := vfs.ReadFile(r.fs, path, nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r.open() // as after a kill
	r.check()
	all := r.all
	for at := fileHead; at < len(size); at += 11 {
		r.fs.Kill()
		if err := r.fs.FlipBit(path, 8*int64(at)); err != nil {
			t.Fatal(err)
		}
		r.open()
		list, _, err := r.store.List(&Query{Topic: 1, States: 1 << 3, Limit: 10})
		if err != nil || len(list) != len(all)-1 {
			t.Fatalf("flip at %d: %d events, %v", at, len(list), err)
		}
		for _, e := range list {
			if string(e.ID) == "forged" || !bytes.Equal(e.Body, all[e.Seq-1].Body) {
				t.Fatalf("flip at %d: event %q", at, e.ID)
			}
		}
		if err := r.fs.FlipBit(path, 8*int64(at)); err != nil {
			t.Fatal(err)
		}
	}
}
