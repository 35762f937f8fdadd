package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
)

// SnapshotReader reads a snapshot's data. It never returns a byte that was not verified;
// damage is a *CorruptionError with file and offset. Not safe for concurrent use.
type SnapshotReader struct {
	dir, name string
	file      vfs.File
	meta      SnapshotMeta
	footer    snapshotFooter
	seed      uint64
	start     int64 // file offset of the first chunk
	next      uint64
	whole     bool // read from the beginning without a seek: the content hash is checked too
	content   xxhash.Digest
	buf       []byte // the current chunk
	left      []byte // the part that was not returned yet
	err       error
}

// OpenSnapshot opens the snapshot of that file name (see Snapshots and
// SnapshotMeta.FileName) and verifies its header and footer. ErrNoSnapshot if there is none.
func OpenSnapshot(fsys vfs.FS, dir, name string) (*SnapshotReader, error) {
	return openSnapshot(fsys, filepath.Join(dir, name), dir, name)
}

// openSnapshot opens the snapshot of a name that is in the file at path.
func openSnapshot(fsys vfs.FS, path, dir, name string) (*SnapshotReader, error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, path)
	}
	if err != nil {
		return nil, fmt.Errorf("wal: open snapshot %s: %w", path, err)
	}
	r := &SnapshotReader{dir: dir, name: name, file: f, whole: true}
	r.content.Reset()
	if err := r.open(); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *SnapshotReader) damage(off int64, err error) error {
	return &CorruptionError{Dir: r.dir, Segment: r.name, Offset: off, Err: err}
}

// readAt fills b from off, or names the missing part.
func (r *SnapshotReader) readAt(b []byte, off int64) error {
	n, err := r.file.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return r.damage(off, errTruncated)
	}
	return fmt.Errorf("wal: read snapshot %s at %d: %w", filepath.Join(r.dir, r.name), off, err)
}

func (r *SnapshotReader) open() error {
	size, err := r.file.Size()
	if err != nil {
		return fmt.Errorf("wal: open snapshot %s: %w", filepath.Join(r.dir, r.name), err)
	}
	if err := r.readHeader(); err != nil {
		return err
	}
	at := size - snapshotFooterBytes
	if at < r.start {
		return r.damage(size, errTruncated)
	}
	b := make([]byte, snapshotFooterBytes)
	if err := r.readAt(b, at); err != nil {
		return err
	}
	if r.footer, err = decodeSnapshotFooter(b, r.seed); err != nil {
		return r.damage(at, err)
	}
	chunks := (r.footer.bytes + snapshotChunkBytes - 1) / snapshotChunkBytes
	if r.footer.chunks != chunks || uint64(at-r.start) != r.footer.bytes+chunks*chunkHeaderBytes {
		return r.damage(at, errLength)
	}
	r.meta.Hash = r.footer.stateHash
	return nil
}

func (r *SnapshotReader) readHeader() error {
	fixed := make([]byte, snapshotFixedBytes)
	if err := r.readAt(fixed, 0); err != nil {
		return err
	}
	if string(fixed[:8]) != snapshotMagic {
		return r.damage(0, errMagic)
	}
	n := binary.LittleEndian.Uint32(fixed[snapshotFixedBytes-4:])
	if n > maxConfBytes {
		return r.damage(0, errLength)
	}
	head := make([]byte, snapshotFixedBytes+int(n)+8)
	if err := r.readAt(head, 0); err != nil {
		return err
	}
	body := head[:len(head)-8]
	r.seed = xxhash.Sum64(body)
	if r.seed != binary.LittleEndian.Uint64(head[len(body):]) {
		return r.damage(0, errChecksum)
	}
	if binary.LittleEndian.Uint32(body[8:]) != snapshotVersion {
		return r.damage(0, errVersion)
	}
	r.meta = SnapshotMeta{
		Shard: binary.LittleEndian.Uint32(body[12:]),
		Index: binary.LittleEndian.Uint64(body[16:]),
		Term:  binary.LittleEndian.Uint64(body[24:]),
		Conf:  body[snapshotFixedBytes:],
	}
	if r.meta.FileName() != r.name {
		return r.damage(0, errSnapshotName)
	}
	r.start = int64(len(head))
	return nil
}

// Meta returns the file's description of itself, verified.
func (r *SnapshotReader) Meta() SnapshotMeta { return r.meta }

// Size returns the number of data bytes.
func (r *SnapshotReader) Size() int64 { return int64(r.footer.bytes) }

// Read returns verified data; io.EOF comes only after all of it was.
func (r *SnapshotReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 && r.err == nil {
		r.err = r.nextChunk()
	}
	if len(r.left) == 0 {
		return 0, r.err
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *SnapshotReader) nextChunk() error {
	if r.next == r.footer.chunks {
		if r.whole && r.content.Sum64() != r.footer.contentHash {
			return r.damage(r.start, errChecksum)
		}
		return io.EOF
	}
	n := min(snapshotChunkBytes, r.footer.bytes-r.next*snapshotChunkBytes)
	off := r.start + int64(r.next)*(chunkHeaderBytes+snapshotChunkBytes)
	// The only chunk, or the first that is not the last.
	if uint64(cap(r.buf)) < chunkHeaderBytes+n {
		r.buf = make([]byte, chunkHeaderBytes+n)
	}
	b := r.buf[:chunkHeaderBytes+n]
	if err := r.readAt(b, off); err != nil {
		return err
	}
	data := b[chunkHeaderBytes:]
	if uint64(binary.LittleEndian.Uint32(b)) != n {
		return r.damage(off, errLength)
	}
	if binary.LittleEndian.Uint64(b[4:]) != hashSeeded(r.seed+r.next, data) {
		return r.damage(off, errChecksum)
	}
	if r.whole {
		_, _ = r.content.Write(data)
	}
	r.next++
	r.left = data
	return nil
}

// SeekTo continues reading at that byte of the data, to resume a transfer.
func (r *SnapshotReader) SeekTo(offset int64) error {
	if offset < 0 || offset > r.Size() {
		return fmt.Errorf("wal: seek snapshot %s: offset %d of %d", r.name, offset, r.Size())
	}
	r.whole, r.left, r.err = false, nil, nil
	r.next = uint64(offset) / snapshotChunkBytes
	skip := int(uint64(offset) % snapshotChunkBytes)
	if skip == 0 {
		return nil
	}
	if r.err = r.nextChunk(); r.err != nil {
		return r.err
	}
	r.left = r.left[skip:]
	return nil
}

// Close closes the file.
func (r *SnapshotReader) Close() error { return r.file.Close() }
