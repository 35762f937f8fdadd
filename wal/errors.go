package wal

import (
	"errors"
	"fmt"
	"path/filepath"
)

var (
	// ErrClosed is returned by Submit once the stream is closing or closed.
	ErrClosed = errors.New("wal: stream is closed")
	// ErrQueueFull is returned by Submit when QueueFrames frames wait already.
	ErrQueueFull = errors.New("wal: queue of frames is full")
	// ErrFrameTooLarge is returned by Submit for a frame above Options.FrameBytes.
	ErrFrameTooLarge = errors.New("wal: frame is too large")
	// ErrNoSnapshot is returned by OpenSnapshot when there is no such file.
	ErrNoSnapshot = errors.New("wal: no such snapshot")
)

// errMoved ends a stream whose directory is another one than it has opened, or none.
var errMoved = errors.New("was deleted, moved, replaced or mounted over while the node ran, and so would all be lost that follows; " +
	"put the data directory back and start the node. If it is gone: in a cluster start the node with an empty one while the others serve; alone restore a backup")

// Reasons inside a CorruptionError.
var (
	errTruncated    = errors.New("entry is cut short")
	errZeros        = errors.New("zeros where an entry should be")
	errLength       = errors.New("impossible entry length")
	errMagic        = errors.New("not a file of this kind")
	errMark         = errors.New("no frame of this stream")
	errSalt         = errors.New("file of another stream")
	errChecksum     = errors.New("checksum mismatch")
	errSeq          = errors.New("sequence number out of order")
	errChain        = errors.New("frame does not follow the one before")
	errVersion      = errors.New("frame version is not known to this program")
	errBeforeFirst  = errors.New("a build before 1.0.0-rc.1 wrote it, whose data no release reads: start that build, export its topics, and import them here (docs/upgrades.md)")
	errRecords      = errors.New("records do not fill the frame")
	errMissing      = errors.New("file is missing")
	errGap          = errors.New("segment does not start where the one before ended")
	errWasDurable   = errors.New("bad frame was already durable: a later valid frame says so")
	errCutOff       = errors.New("file is shorter than it was made, and ends inside a frame")
	errNotTheEnd    = errors.New("log ends before the frame it was closed after")
	errTrailing     = errors.New("bytes after the end")
	errSegmentSize  = errors.New("segment is larger than any that was written")
	errReplay       = errors.New("replay has stopped")
	errSnapshotName = errors.New("file name does not match the snapshot inside")
)

// CorruptionError reports damage that must not be repaired silently.
type CorruptionError struct {
	Dir     string // directory of the damaged file
	Segment string // file name within Dir; empty if a whole directory is missing
	Offset  int64  // byte offset of the first bad entry
	Seq     uint64 // sequence number expected there, 0 if that has no meaning
	Err     error
}

func (e *CorruptionError) Error() string {
	kind := "damage in"
	if e.OtherRelease() {
		kind = "cannot read"
	}
	s := fmt.Sprintf("wal: %s %s at offset %d", kind, filepath.Join(e.Dir, e.Segment), e.Offset)
	if e.Seq != 0 {
		s += fmt.Sprintf(" (frame %d)", e.Seq)
	}
	return s + ": " + e.Err.Error()
}

func (e *CorruptionError) Unwrap() error { return e.Err }

// OtherRelease reports that the file seems whole, and that only another release can
// read it.
func (e *CorruptionError) OtherRelease() bool {
	return errors.Is(e.Err, errVersion) || errors.Is(e.Err, errBeforeFirst)
}
