package history

// dropOld drops files that are older than they are to be kept.
func (s *Store) dropOld(now int64) {
	oldest := int64(0)
	if keep := s.cfg.KeepMs(); keep > 0 {
		oldest = now - keep
	}
	s.queue.expire(oldest)
	list := s.files
	for i, f := range list {
		if f != s.active && s.lastMs(list, i, now) < oldest {
			s.drop(f)
		}
	}
}

// lastMs is when the last of a file's events was. A time later than now was stamped while the
// clocks were wrong: then the file is as old as the next one that was written by a right clock,
// with which it goes, or new if there is none.
func (s *Store) lastMs(list []*file, i int, now int64) int64 {
	if last := list[i].index.maxMs; last <= now {
		return last
	}
	for _, later := range list[i+1:] {
		if later.index.maxMs <= now {
			return later.index.maxMs
		}
	}
	return now
}

// shrink drops the oldest files while there is too much.
func (s *Store) shrink() {
	for {
		s.mu.RLock()
		sum, n := s.bytesLocked(), len(s.files)
		s.mu.RUnlock()
		if sum <= s.cfg.Bytes || n < 2 {
			return
		}
		s.drop(s.files[0])
	}
}

// watchDisk gives room back while the disk is almost full, a file at a time; when none is left,
// nothing more is written.
func (s *Store) watchDisk() {
	free, err := s.cfg.FS.Free(s.cfg.Dir)
	if err != nil {
		return
	}
	limit := uint64(lowDiskBytes)
	if s.low.Load() {
		limit += limit / 4
	}
	if free >= limit {
		s.low.Store(false)
		return
	}
	if s.low.CompareAndSwap(false, true) {
		s.cfg.Logger.Warn("the disk is almost full: nothing is added to the history, and its oldest files are deleted", "free_bytes", free)
	}
	if s.active != nil {
		s.roll()
	}
	if len(s.files) > 0 {
		s.drop(s.files[0])
	}
}
