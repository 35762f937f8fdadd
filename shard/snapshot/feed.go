// Package snapshot writes a state to a file while its owner still changes it: the owner passes
// it on in pieces between its other work, and another goroutine writes them.
package snapshot

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"carillon/internal/vfs"
	"carillon/timer"
	"carillon/wal"
)

const (
	chunkSize = 256 << 10
	chunkRoom = chunkSize + 4096
)

// Feed passes a state that is being saved from its owner to a writer. The owner calls Next, Took,
// Held, Ended and Abort; the writer, on another goroutine, Write, or Read and then End.
type Feed struct {
	state  timer.Saving
	in     chan<- []byte // nil: the feed has ended
	pieces []int         // capacities of the chunks that are not taken yet, as the owner knows

	out    <-chan []byte
	rest   []byte      // of the chunk that is being read
	took   func()      // called by the writer for each chunk that it has taken
	broken atomic.Bool // the feed ended early: nothing of it must be kept
}

// NewFeed begins a feed of which so many chunks may wait for the writer.
func NewFeed(state timer.Saving, waiting int, took func()) *Feed {
	chunks := make(chan []byte, waiting)
	return &Feed{state: state, in: chunks, out: chunks, took: took}
}

// rooms holds the memory of chunks that are written, for the next: most states take one.
var rooms = sync.Pool{New: func() any { return new([chunkRoom]byte) }}

// Next passes on the next chunk, if the writer has room. sound is false if the memory of the state
// has changed by itself: then the feed has ended early.
func (f *Feed) Next() (sound bool) {
	if f.in == nil || len(f.in) == cap(f.in) {
		return true
	}
	chunk, done := f.state.Next(rooms.Get().(*[chunkRoom]byte)[:0], chunkSize)
	f.pieces = append(f.pieces, cap(chunk))
	f.in <- chunk
	if !done {
		return true
	}
	if sound = f.state.Sound(); !sound {
		f.broken.Store(true)
	}
	close(f.in)
	f.in = nil
	return sound
}

// Took records that the writer has taken a chunk.
func (f *Feed) Took() { f.pieces = f.pieces[1:] }

// Held returns the memory held in addition to the state: copies of what changed meanwhile, and
// chunks.
func (f *Feed) Held() (copies, chunks int64) {
	for _, room := range f.pieces {
		chunks += int64(room)
	}
	return f.state.Held(), chunks
}

// Ended reports that nothing more will be passed on.
func (f *Feed) Ended() bool { return f.in == nil }

// Abort ends the feed early, unless it has ended.
func (f *Feed) Abort() {
	if f.in == nil {
		return
	}
	f.broken.Store(true)
	close(f.in)
	f.in = nil
	f.state.Abort()
}

// Write writes the state to a snapshot file, and leaves so much of the disk free. There is no file
// after an error.
func (f *Feed) Write(fsys vfs.FS, dir string, meta wal.SnapshotMeta, keepFree uint64) error {
	file, err := wal.CreateSnapshot(fsys, dir, meta)
	if err == nil {
		defer file.Abort()
		file.KeepFree(keepFree)
	}
	for chunk := range f.out {
		if err == nil {
			_, err = file.Write(chunk)
		}
		if cap(chunk) == chunkRoom {
			rooms.Put((*[chunkRoom]byte)(chunk[:chunkRoom]))
		}
		f.took()
	}
	if err == nil {
		err = f.End()
	}
	if err != nil {
		return err
	}
	return file.Commit()
}

// Read implements io.Reader.
func (f *Feed) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		chunk, more := <-f.out
		if !more {
			return 0, io.EOF
		}
		f.rest = chunk
		f.took()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// End takes what is left, and returns timer.ErrStopped if the feed ended early.
func (f *Feed) End() error {
	for range f.out {
		f.took()
	}
	if f.broken.Load() {
		return timer.ErrStopped
	}
	return nil
}

// Save writes a state that does not change to a snapshot file, and leaves so much of the disk free.
func Save(fsys vfs.FS, dir string, meta wal.SnapshotMeta, keepFree uint64, state timer.Saving) error {
	file, err := wal.CreateSnapshot(fsys, dir, meta)
	if err != nil {
		state.Abort()
		return err
	}
	defer file.Abort()
	file.KeepFree(keepFree)
	for piece, done := []byte(nil), false; !done; {
		piece, done = state.Next(piece[:0], chunkSize)
		if _, err := file.Write(piece); err != nil {
			state.Abort()
			return err
		}
	}
	if !state.Sound() {
		return fmt.Errorf("shard %d: the written snapshot differs from the state: test the memory of this machine", meta.Shard)
	}
	return file.Commit()
}
