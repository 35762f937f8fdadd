package wal

import (
	"fmt"
	"path/filepath"

	"carillon/internal/vfs"
)

// rollIfFull begins a new segment, and a new generation if this one is full, before
// frames from seq first on that take so many bytes.
func (s *Stream) rollIfFull(bytes int64, first uint64) error {
	full := s.w.genBytes+bytes > s.opt.GenBytes
	begun := s.w.rolling.next != nil
	if !begun && (s.w.seg.bytes == 0 || !full && s.w.seg.bytes+bytes <= s.opt.SegmentBytes) {
		return nil
	}
	if err := s.checkPlace(); err != nil { // the new segment would be made elsewhere
		return err
	}
	gen := s.w.gen
	switch {
	case begun:
		gen = s.w.rolling.gen
	case full:
		gen++
	}
	if err := s.roll(gen, first, s.w.prevHash); err != nil {
		return fmt.Errorf("wal: begin a segment in %s before frame %d: %w", s.dir, first, err)
	}
	return nil
}

// rollProgress is how far a change of segment is. One that finds no room continues when there is
// some.
type rollProgress struct {
	next  *segment // prepared; nil: none is under way
	gen   uint64   // that it goes to
	whole bool     // the old segment is sealed
	named bool     // the new one has its name, which may not be durable
}

// roll seals the current segment, if any, and begins the one of frame first in gen. Order, each
// step durable before the next: directory of the generation; old segment whole; name of the new
// segment. So only the last segment can ever be incomplete.
func (s *Stream) roll(gen, first uint64, prevHash uint32) error {
	dir, t := genPath(s.dir, gen), &s.w.rolling
	if err := s.prepareRoll(gen, dir); err != nil {
		return noRoom(err)
	}
	if s.w.seg != nil && !t.whole {
		if err := s.w.seg.seal(); err != nil {
			return err
		}
		t.whole, s.w.synced = true, first-1
	}
	sync := vfs.ResyncDir // its sync has failed
	if !t.named {
		from := preallocatedPath(filepath.Join(s.dir, preallocatedDir))
		if err := s.fs.Rename(from, filepath.Join(dir, segmentName(first))); err != nil {
			return noRoom(err)
		}
		t.named = true
		sync = vfs.FS.SyncDir
	}
	if err := sync(s.fs, dir); err != nil {
		return noRoom(err)
	}
	s.w.seg, s.w.rolling = t.next, rollProgress{}
	s.w.segAt = vfs.Place{Path: filepath.Join(dir, segmentName(first))}
	if gen != s.w.gen {
		s.w.gen, s.w.genBytes = gen, 0
		s.mu.Lock()
		s.gens = append(s.gens, GenInfo{Gen: gen, FirstSeq: first, LastSeq: first - 1, prevHash: prevHash})
		s.mu.Unlock()
	}
	s.w.preallocated.prepareNext()
	return nil
}

// prepareRoll makes what roll needs, once.
func (s *Stream) prepareRoll(gen uint64, dir string) (err error) {
	if s.w.rolling.next != nil {
		return nil
	}
	if err := vfs.MakeDir(s.fs, dir); err != nil {
		return err
	}
	s.w.rolling.gen = gen
	s.w.rolling.next, err = s.w.preallocated.take(s.fs, s.dir, s.opt.SegmentBytes)
	return err
}
