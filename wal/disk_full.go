package wal

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"carillon/internal/vfs"
)

// roomEvery is how often a stream that waits for room looks for it.
const roomEvery = 500 * time.Millisecond

// errNoRoom means that the disk is full and nothing was written: the same can be tried again.
var errNoRoom = errors.New("no room for the log")

// noRoom makes an error of a full disk, before anything was changed, one that can be waited out.
func noRoom(err error) error {
	if vfs.IsFull(err) {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return err
}

// checkRoom looks for room for a write that goes beyond the prepared space: one larger than a
// segment. A write that finds none halfway could not be taken back.
func (s *Stream) checkRoom(bytes int64) error {
	beyond := s.w.seg.bytes + bytes - s.opt.SegmentBytes
	if beyond <= 0 {
		return nil
	}
	free, err := s.fs.Free(s.dir)
	if err == nil && free < uint64(beyond+s.opt.SegmentBytes) {
		return noRoom(syscall.ENOSPC)
	}
	return nil
}

// waits reports whether it is too early to look for room again.
func (s *Stream) waits(now time.Duration) bool { return s.Full() && now-s.w.fullAt < roomEvery }

// waitForRoom puts frames that were not written back in front of the queue.
func (s *Stream) waitForRoom(rest []waiting, noRoom error) {
	s.w.fullAt = s.opt.Monotonic()
	s.setLack(vfs.Lack(noRoom))
	s.mu.Lock()
	s.queue = append(append([]waiting(nil), rest...), s.queue...)
	s.mu.Unlock()
}

// setLack records and reports whether the log waits, and what lacks.
func (s *Stream) setLack(lack string) {
	if s.waitsFor() != lack {
		s.lack.Store(&lack)
		if s.opt.Observe.Full != nil {
			s.opt.Observe.Full(lack)
		}
	}
}

// abandonQueue refuses the frames that wait for room when the stream closes.
func (s *Stream) abandonQueue() {
	s.mu.Lock()
	queued := s.queue
	s.queue = nil
	s.mu.Unlock()
	s.failAll(queued, errNoRoom)
}
