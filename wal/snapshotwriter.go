package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
)

// snapshotSyncBytes is how much a snapshot writes between data syncs, so that its bytes
// reach the disk bit by bit and no sync of the log waits behind all of them.
const snapshotSyncBytes = 4 << 20

var errSnapshotDone = errors.New("snapshot was committed or aborted")

// SnapshotWriter writes one snapshot file. It is not safe for concurrent use.
// End it with Commit or Abort; after an error only Abort is of use.
type SnapshotWriter struct {
	fs       vfs.FS
	dir      string
	meta     SnapshotMeta
	temp     string // path of the file until Commit; nobody else's
	file     vfs.File
	seed     uint64
	chunk    []byte // room for the chunk header, then data
	footer   snapshotFooter
	content  xxhash.Digest
	unsynced int
	keepFree uint64
	sealed   bool
	done     bool
	err      error
}

// CreateSnapshot begins a snapshot in a temporary file of dir, which is this writer's alone: a
// replica's own snapshot and the same one from a peer may be written at once.
func CreateSnapshot(fsys vfs.FS, dir string, meta SnapshotMeta) (*SnapshotWriter, error) {
	if len(meta.Conf) > maxConfBytes {
		return nil, fmt.Errorf("wal: snapshot of shard %d: conf of %d bytes", meta.Shard, len(meta.Conf))
	}
	w := &SnapshotWriter{fs: fsys, dir: dir, meta: meta}
	w.content.Reset()
	w.chunk = make([]byte, chunkHeaderBytes, 4<<10) // of the many small states none fills a chunk
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, w.wrap(err)
	}
	if err := w.createTemp(); err != nil {
		return nil, w.wrap(err)
	}
	head, seed := encodeSnapshotHeader(meta)
	w.seed = seed
	if _, err := w.file.Write(head); err != nil {
		w.Abort()
		return nil, w.wrap(err)
	}
	return w, nil
}

// snapshotWriters bounds those that write one snapshot at once; there are two at most, but a writer
// that was dropped leaves its file until the next start.
const snapshotWriters = 100

// createTemp makes a file that was not there.
func (w *SnapshotWriter) createTemp() (err error) {
	for n := range snapshotWriters {
		w.temp = fmt.Sprintf("%s.%d%s", w.path(), n, vfs.TempSuffix)
		w.file, err = w.fs.OpenFile(w.temp, os.O_CREATE|os.O_EXCL|os.O_RDWR)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

func (w *SnapshotWriter) path() string { return filepath.Join(w.dir, w.meta.FileName()) }

func (w *SnapshotWriter) wrap(err error) error {
	return fmt.Errorf("wal: write snapshot %s: %w", w.path(), err)
}

// KeepFree has the writer give up, with an error that is IsFull, once less than so many bytes of
// the disk are free.
func (w *SnapshotWriter) KeepFree(bytes uint64) { w.keepFree = bytes }

// Write adds data, in pieces of any size.
func (w *SnapshotWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if w.err != nil {
			return n, w.err
		}
		k := min(len(p), chunkHeaderBytes+snapshotChunkBytes-len(w.chunk))
		w.chunk = append(w.chunk, p[:k]...)
		p = p[k:]
		n += k
		if len(w.chunk) == chunkHeaderBytes+snapshotChunkBytes {
			w.flush()
		}
	}
	return n, w.err
}

// flush writes the chunk at hand. A chunk's hash is seeded with the file's header and the
// chunk's number: one of another place or file does not fit.
func (w *SnapshotWriter) flush() {
	data := w.chunk[chunkHeaderBytes:]
	if len(data) == 0 || w.err != nil {
		return
	}
	binary.LittleEndian.PutUint32(w.chunk, uint32(len(data)))
	binary.LittleEndian.PutUint64(w.chunk[4:], hashSeeded(w.seed+w.footer.chunks, data))
	w.footer.chunks++
	w.footer.bytes += uint64(len(data))
	_, _ = w.content.Write(data)
	w.write(w.chunk)
	w.chunk = w.chunk[:chunkHeaderBytes]
}

func (w *SnapshotWriter) write(b []byte) {
	if _, err := w.file.Write(b); err != nil {
		w.err = w.wrap(err)
		return
	}
	if w.unsynced += len(b); w.unsynced < snapshotSyncBytes {
		return
	}
	w.unsynced = 0
	if err := w.file.Datasync(); err != nil {
		w.err = w.wrap(err)
		return
	}
	if free, err := w.fs.Free(w.dir); err == nil && free < w.keepFree {
		w.err = w.wrap(fmt.Errorf("%d bytes are free, and %d are kept for the log: %w", free, w.keepFree, syscall.ENOSPC))
	}
}

// Seal makes the snapshot whole and durable in its temporary file, and opens it there, so that it
// can be read back before Commit.
func (w *SnapshotWriter) Seal() (*SnapshotReader, error) {
	if err := w.seal(); err != nil {
		w.Abort()
		return nil, err
	}
	return openSnapshot(w.fs, w.temp, w.dir, w.meta.FileName())
}

func (w *SnapshotWriter) seal() error {
	w.flush()
	if w.err == nil {
		w.footer.stateHash, w.footer.contentHash = w.meta.Hash, w.content.Sum64()
		w.write(w.footer.encode(w.seed))
	}
	if w.err != nil {
		return w.err
	}
	if err := w.file.Sync(); err != nil {
		return w.wrap(err)
	}
	w.sealed, w.err = true, w.wrap(errSnapshotDone)
	if err := w.file.Close(); err != nil {
		return w.wrap(err)
	}
	return nil
}

// Commit makes the snapshot durable under its name. A snapshot of the same name is replaced.
func (w *SnapshotWriter) Commit() error {
	if w.done {
		return w.wrap(errSnapshotDone)
	}
	if !w.sealed {
		if err := w.seal(); err != nil {
			w.Abort()
			return err
		}
	}
	if err := w.fs.Rename(w.temp, w.path()); err != nil {
		w.Abort()
		return w.wrap(err)
	}
	w.done = true
	if err := w.fs.SyncDir(w.dir); err != nil {
		return w.wrap(err)
	}
	return nil
}

// Abort gives the snapshot up and removes its file; after Commit or Abort it does nothing.
func (w *SnapshotWriter) Abort() {
	if w.done {
		return
	}
	w.done = true
	if w.err == nil {
		w.err = w.wrap(errSnapshotDone)
	}
	if !w.sealed {
		w.file.Close()
	}
	_ = w.fs.Remove(w.temp) // else PrepareSnapshotDir does it
}
