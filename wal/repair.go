package wal

import (
	"fmt"
	"path/filepath"

	"carillon/internal/vfs"
)

// Cut is what Open has cut off behind the last good frame: a write that a crash has torn, mostly.
// Nothing tells it from damage of the last frame.
type Cut struct {
	File  string // that has it now; "": nothing was cut off
	Bytes int
}

// Cut returns what Open has cut off.
func (s *Stream) Cut() Cut { return s.cut }

// repair ends the last segment after its last good frame, and makes all before that durable. The
// bytes that are cut off are kept in a .broken file, unless it is prepared space that was never
// used.
//
// The frames are copied to a new file, which takes the segment's place: a sync of the old file
// would prove nothing. If a sync by the process before has failed, its pages count as clean, are
// read as if they were there, and are never written (Linux; "fsyncgate"). Nothing on disk proves
// that the last frames of a segment were synced; END and a later segment prove it for the rest.
func (s *Stream) repair(found *streamScan) error {
	l := found.last
	path := filepath.Join(l.dir, l.name)
	if cut := trimZeros(l.tail); len(cut) > 0 {
		s.cut = Cut{File: fmt.Sprintf("%s.%d%s", path, l.end, brokenSuffix), Bytes: len(cut)}
		if err := vfs.WriteSynced(s.fs, s.cut.File, cut); err != nil {
			return err
		}
		if err := s.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	if l.end == 0 || found.closed && l.end == l.size {
		return nil // its name is about to be another file's, or it is whole
	}
	return vfs.WriteFileAtomic(s.fs, path, l.kept)
}
