package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"
)

// state is a saving of some bytes in pieces of 100.
type state struct {
	left    []byte
	unsound bool
	aborted bool
}

func (s *state) Hash() uint64 { return 1 }
func (s *state) Held() int64  { return 7 }
func (s *state) Sound() bool  { return !s.unsound }
func (s *state) Abort()       { s.aborted = true }
func (s *state) Next(dst []byte, _ int) ([]byte, bool) {
	n := min(100, len(s.left))
	dst, s.left = append(dst, s.left[:n]...), s.left[n:]
	return dst, len(s.left) == 0
}

// pump has the owner feed the writer until the feed has ended.
func pump(f *Feed, took <-chan struct{}) (sound bool) {
	for sound = f.Next(); !f.Ended() && sound; sound = f.Next() {
		<-took
		f.Took()
	}
	return sound
}

// TestFeed: what a state was is in the file, whole; a feed that ended early, or of a memory that
// fails, leaves none.
func TestFeed(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 100)
	for name, c := range map[string]struct {
		unsound, abort bool
		err            error
	}{"whole": {}, "unsound": {unsound: true, err: timer.ErrStopped}, "aborted": {abort: true, err: timer.ErrStopped}} {
		fsys := memfs.New()
		if err := wal.PrepareSnapshotDir(fsys, "data"); err != nil {
			t.Fatal(err)
		}
		meta := wal.SnapshotMeta{Shard: 1, Index: 9, Term: 1, Hash: 1, Conf: []byte("members")}
		s := &state{left: want, unsound: c.unsound}
		took := make(chan struct{}, 100)
		f := NewFeed(s, 2, func() { took <- struct{}{} })
		written := make(chan error)
		go func() { written <- f.Write(fsys, "data", meta, 0) }()
		f.Next()
		if c.abort {
			if copies, chunks := f.Held(); copies != 7 || chunks != chunkRoom {
				t.Errorf("%d and %d bytes are held", copies, chunks)
			}
			f.Abort()
			f.Abort()
		} else if sound := pump(f, took); sound == c.unsound {
			t.Errorf("%s: sound %v", name, sound)
		}
		if err := <-written; !errors.Is(err, c.err) || s.aborted != c.abort {
			t.Errorf("%s: %v, aborted %v", name, err, s.aborted)
		}
		file, err := wal.OpenSnapshot(fsys, "data", meta.FileName())
		if (err == nil) != (c.err == nil) {
			t.Fatalf("%s: a file: %v", name, err)
		}
		if err == nil {
			if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
	}
}
