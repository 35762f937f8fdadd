package wal

import (
	"fmt"
	"slices"

	"carillon/internal/vfs"
)

// DropBefore gives up the generations below gen, but never the one being written: the
// FIRST file names the oldest that is kept, and the directories are removed. Appends continue
// meanwhile. After an error, or a crash, a generation is either still there whole, or given up, and
// its files are removed by the next DropBefore, or by the next Open at the latest.
func (s *Stream) DropBefore(gen uint64) error {
	s.drop.Lock()
	defer s.drop.Unlock()
	victims, keep, err := s.droppable(gen)
	if err != nil || len(victims)+len(s.dropped) == 0 {
		return err
	}
	if len(victims) > 0 {
		at := bounds{gen: keep.Gen, seq: keep.FirstSeq, prevHash: keep.prevHash, salt: s.salt}
		if err := writeBounds(s.fs, s.dir, firstName, firstMagic, at); err != nil {
			return fmt.Errorf("wal: drop generations below %d: %w", keep.Gen, err)
		}
		s.mu.Lock()
		s.gens = s.gens[len(victims):]
		s.mu.Unlock()
		for _, v := range victims {
			s.dropped = append(s.dropped, v.Gen)
		}
	}
	s.dropped = slices.DeleteFunc(s.dropped, func(gen uint64) bool {
		failed := vfs.RemoveTree(s.fs, genPath(s.dir, gen))
		if failed != nil {
			err = fmt.Errorf("wal: drop generation %d: %w", gen, failed)
		}
		return failed == nil
	})
	if err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("wal: drop generations below %d: %w", keep.Gen, err)
	}
	return nil
}

// droppable lists the generations below gen and the first that stays.
func (s *Stream) droppable(gen uint64) (victims []GenInfo, keep GenInfo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, keep, s.err
	}
	if s.closed {
		return nil, keep, ErrClosed
	}
	n := 0
	for n < len(s.gens)-1 && s.gens[n].Gen < gen {
		n++
	}
	return append([]GenInfo(nil), s.gens[:n]...), s.gens[n], nil
}
