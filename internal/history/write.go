package history

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// slice is the begin of the slice of time that a moment is in.
func (s *Store) slice(ms int64) int64 {
	return ms - ms%max(minSliceMs, s.cfg.KeepMs()/maxSlices)
}

// write puts records into files. Records that cannot be written are dropped: the next batch finds
// the disk better, or is dropped too.
func (s *Store) write(batch []byte) {
	for len(batch) > 0 {
		n, count := s.part(batch)
		if s.low.Load() || !s.writePart(batch[:n]) {
			s.dropped.Add(uint64(count))
		} else {
			s.recorded.Add(uint64(count))
		}
		batch = batch[n:]
	}
}

// part is how much of a batch goes into the file that is being written, after it was turned if need
// be; at least one record.
func (s *Store) part(batch []byte) (n, count int) {
	room, left := s.cfg.SegmentSize, indexLimit
	if f := s.active; f != nil {
		if s.slice(s.cfg.NowMs()) != f.startMs || f.data >= s.cfg.SegmentSize || f.index.len() >= indexLimit {
			s.roll()
		} else {
			room, left = s.cfg.SegmentSize-f.data, indexLimit-f.index.len()
		}
	}
	for n < len(batch) && int64(n) < room && count < left {
		n += recordHead + recordSize(batch[n:])
		count++
	}
	return n, count
}

// writePart appends records to the file that is being written, or to a new one.
func (s *Store) writePart(b []byte) bool {
	if s.active == nil {
		now := s.cfg.NowMs()
		f, err := createFile(s.cfg.FS, s.cfg.Dir, s.number+1, s.slice(now), salt(s.cfg.Salt()), 2*s.cfg.SegmentSize)
		s.number++ // also when it failed: something of that name may be there
		if err != nil {
			s.failed("a file of the history cannot be made; events are dropped until it can", err)
			return false
		}
		s.mu.Lock()
		s.files, s.active = append(s.files, f), f
		s.mu.Unlock()
	}
	f := s.active
	for at := 0; at < len(b); {
		end := at + recordHead + recordSize(b[at:])
		f.salt.seal(b[at:end])
		at = end
	}
	if _, err := f.handle.WriteAt(b, f.data); err != nil {
		s.failed("the history cannot be written; events are dropped until it can", err)
		return false
	}
	s.failing, s.dirty = false, true
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := 0; at < len(b); {
		size := recordSize(b[at:])
		var e Event
		// Always true: the queue accepts valid events only.
		if decodeEvent(b[at+recordHead:at+recordHead+size], &e) == nil {
			f.index.add(&e, uint32(f.data+int64(at)))
		}
		at += recordHead + size
	}
	f.data += int64(len(b))
	f.size = f.data
	return true
}

// failed logs the failure once.
func (s *Store) failed(text string, err error) {
	if !s.failing {
		s.cfg.Logger.Error(text, "error", err)
	}
	s.failing = true
}

// roll seals the file that is being written.
func (s *Store) roll() {
	f := s.active
	s.mu.Lock()
	s.active = nil
	s.mu.Unlock()
	s.seal(f)
}

// seal writes a file's index behind its records. When that fails the index stays in memory; the
// next start tries again.
func (s *Store) seal(f *file) {
	tail := f.appendTail()
	err := f.handle.Truncate(f.data) // a crash may have left something
	if err == nil {
		_, err = f.handle.WriteAt(tail, f.data)
	}
	if err == nil {
		err = f.handle.Sync()
	}
	if err != nil {
		s.failed("a file of the history could not be finished; it is tried again at the next start", err)
		return
	}
	done := file{handle: f.handle, salt: f.salt, size: f.data + int64(len(tail))}
	if err := done.readTail(); err != nil {
		s.failed("a file of the history reads back wrong; it is tried again at the next start", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.size, f.index, f.sums = done.size, done.index, done.sums
	f.ends, f.ids, f.attempts = done.ends, done.ids, done.attempts
	f.sealed = true
}

// followPath turns the file that is being written once it has lost its name: queries find what is in
// it until the process ends, and the next one is made where the next start looks.
func (s *Store) followPath() {
	f := s.active
	if f == nil {
		return
	}
	f.at.Path = f.name
	if f.at.Left(s.cfg.FS) {
		s.damaged.Add(1)
		s.cfg.Logger.Error("the file of the history that is written was deleted, moved or replaced: what is in it is lost at the next start", "file", f.name)
		s.roll()
	}
}

// sync makes the written records durable.
func (s *Store) sync() {
	if !s.dirty || s.active == nil {
		s.dirty = false
		return
	}
	if err := s.active.handle.Datasync(); err != nil {
		s.failed("the history could not be synced; a crash may lose some of it", err)
	}
	s.dirty = false
}

// Maintain does the work that is due by time: the file is turned and synced, the oldest go.
func (s *Store) Maintain() {
	s.Flush()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return
	}
	s.adopt()
	s.followPath()
	now := s.cfg.NowMs()
	if f := s.active; f != nil && s.slice(now) != f.startMs {
		s.roll()
	}
	if since := now - s.synced; since >= syncMs || since < 0 {
		s.synced = now
		s.sync()
	}
	if s.cfg.Sure() {
		s.dropOld(now)
	}
	s.removeUnwanted()
	s.shrink()
	s.watchDisk()
}

// drop gives a file up.
func (s *Store) drop(f *file) {
	s.mu.Lock()
	s.files = slices.DeleteFunc(slices.Clone(s.files), func(o *file) bool { return o == f })
	if s.active == f {
		s.active = nil
	}
	s.mu.Unlock()
	s.remove(f)
}

// remove closes and removes a file that is in no list any more, once no query uses it.
func (s *Store) remove(f *file) {
	f.use.Lock()
	_ = f.handle.Close()
	f.use.Unlock()
	s.unwanted = append(s.unwanted, filepath.Join(s.cfg.Dir, fileName(f.number)))
	s.removeUnwanted()
}

// removeUnwanted removes the files that were given up. Those that cannot be removed are tried
// again.
func (s *Store) removeUnwanted() {
	if len(s.unwanted) == 0 {
		return
	}
	s.unwanted = slices.DeleteFunc(s.unwanted, func(name string) bool {
		err := s.cfg.FS.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.failed("an old file of the history could not be removed; it is tried again", err)
			return false
		}
		return true
	})
	_ = s.cfg.FS.SyncDir(s.cfg.Dir)
}
