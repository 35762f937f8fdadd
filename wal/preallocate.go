package wal

import (
	"fmt"
	"os"
	"path/filepath"

	"carillon/internal/vfs"
)

const (
	preallocatedDir = "spare"
	// Written and synced at a time: a sync of the log never waits behind more.
	zeroBytes = 256 << 10
)

var zeros [zeroBytes]byte

// segment is a segment file that is, or will be, appended to. Two handles are open on
// it: the appender's, and one of ours that prepares space, syncs data and cuts the rest off.
type segment struct {
	log   appender
	file  vfs.File
	bytes int64 // entries written
}

// prepareSegment makes the next segment in the spare directory: the file exists, is open,
// is filled with zeros to size and synced. An append to it then overwrites blocks that are
// there, so that a data sync needs no journal commit; and a change of segment is one rename.
// The appender must be open first: it begins at the end of the file, which is still 0.
func prepareSegment(fsys vfs.FS, dir string, size int64) (*segment, error) {
	spare := filepath.Join(dir, preallocatedDir)
	s, err := fillSegment(fsys, spare, size)
	if err != nil {
		// On a full disk others may need the space; otherwise the next call would remove it.
		_ = vfs.RemoveTree(fsys, spare)
		return nil, fmt.Errorf("wal: prepare segment in %s: %w", spare, err)
	}
	return s, nil
}

func fillSegment(fsys vfs.FS, spare string, size int64) (*segment, error) {
	if err := vfs.RemoveTree(fsys, spare); err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(spare); err != nil {
		return nil, err
	}
	log, err := newAppender(fsys, spare)
	if err != nil {
		return nil, err
	}
	f, err := fsys.OpenFile(preallocatedPath(spare), os.O_RDWR)
	if err != nil {
		log.close()
		return nil, err
	}
	s := &segment{log: log, file: f}
	for at := int64(0); at < size; at += zeroBytes {
		if _, err := f.WriteAt(zeros[:min(zeroBytes, size-at)], at); err != nil {
			s.discard()
			return nil, err
		}
		if err := f.Datasync(); err != nil {
			s.discard()
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

func preallocatedPath(spare string) string { return filepath.Join(spare, segmentName(1)) }

func (s *segment) append(entries [][]byte, bytes int64) error {
	if err := s.log.append(entries); err != nil {
		return err
	}
	s.bytes += bytes
	return nil
}

func (s *segment) sync() error { return s.file.Datasync() }

// seal cuts the unused space off, makes the whole file durable and closes it.
func (s *segment) seal() error {
	if err := s.file.Truncate(s.bytes); err != nil {
		return noRoom(err) // nothing has changed
	}
	if err := s.log.close(); err != nil { // syncs data and size
		return err
	}
	return s.file.Close()
}

// discard closes a segment that holds nothing.
func (s *segment) discard() {
	s.log.close()
	s.file.Close()
}
