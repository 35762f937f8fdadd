package wal

import (
	"fmt"
	"time"

	"carillon/internal/vfs"
)

// maxBatchBytes bounds one write.
const maxBatchBytes = 4 << 20

// writer is the state that only the writing goroutine touches.
type writer struct {
	seg          *segment
	gen          uint64
	genBytes     int64
	seq          uint64 // of the last frame
	prevHash     uint32
	synced       uint64 // Invariant: synced <= seq
	batch        []waiting
	entries      [][]byte
	preallocated preallocated
	rolling      rollProgress

	fullAt time.Duration

	lockAt, segAt vfs.Place // no path: not looked at

	sampled   bool // free space was sampled
	sampledAt time.Duration
}

// chunk returns how many of list go into one write.
func (s *Stream) chunk(list []waiting) int {
	var bytes int64
	for i, p := range list {
		bytes += entryBytes(p.frame.Len())
		if i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(list)
}

// write appends list by one write, syncs if any wants it, and completes in order.
// It returns how many were completed.
func (s *Stream) write(list []waiting) (done int, err error) {
	first, bytes := s.w.seq+1, int64(0)
	for _, p := range list {
		bytes += entryBytes(p.frame.Len())
	}
	if err := s.rollIfFull(bytes, first); err != nil {
		return 0, err
	}
	if err := s.checkRoom(bytes); err != nil {
		return 0, err
	}
	s.sealFrames(list)
	if err := s.w.seg.append(s.w.entries, bytes); err != nil {
		return 0, fmt.Errorf("wal: append frame %d in %s: %w", first, s.dir, err)
	}
	s.grow(bytes)
	pos := Position{Gen: s.w.gen, Seq: first}
	for done < len(list) && !list[done].sync { // nobody before them waits for the disk
		complete(list[done], pos)
		pos.Seq++
		done++
	}
	if done < len(list) {
		if err := s.syncBatch(); err != nil {
			return done, err
		}
	}
	for ; done < len(list); done++ {
		complete(list[done], pos)
		pos.Seq++
	}
	return done, nil
}

func complete(p waiting, pos Position) {
	if p.done != nil {
		p.done(pos, nil)
	}
}

func (s *Stream) sealFrames(list []waiting) {
	h := header{synced: s.w.synced, wallMs: uint64(s.opt.NowMs())}
	s.w.entries = s.w.entries[:0]
	for _, p := range list {
		s.w.seq++
		h.seq, h.prevHash = s.w.seq, s.w.prevHash
		s.w.prevHash = uint32(s.salt.seal(p.frame.buf, h))
		s.w.entries = append(s.w.entries, p.frame.buf)
	}
}

// grow counts bytes just appended.
func (s *Stream) grow(bytes int64) {
	s.w.genBytes += bytes
	s.mu.Lock()
	g := &s.gens[len(s.gens)-1]
	g.Bytes, g.LastSeq = s.w.genBytes, s.w.seq
	s.mu.Unlock()
}

func (s *Stream) syncBatch() error {
	start := s.opt.Monotonic()
	if s.opt.Observe.Begin != nil {
		s.opt.Observe.Begin()
	}
	err := s.w.seg.sync()
	if err != nil {
		return fmt.Errorf("wal: sync frame %d in %s: %w", s.w.seq, s.dir, err)
	}
	s.w.synced = s.w.seq
	s.durable.Store(s.w.synced)
	if s.opt.Observe.Sync != nil {
		s.opt.Observe.Sync(s.opt.Monotonic() - start)
	}
	return nil
}

// finish marks the end of a clean life: the last segment whole, then the END file.
func (s *Stream) finish() error {
	defer s.w.preallocated.remove(s.fs, s.dir)
	t := &s.w.rolling
	if t.next != nil {
		t.next.discard()
	}
	var err error
	if !t.whole {
		err = s.w.seg.seal()
	}
	if err == nil {
		at := bounds{gen: s.w.gen, seq: s.w.seq + 1, prevHash: s.w.prevHash, salt: s.salt}
		err = writeBounds(s.fs, s.dir, endName, endMagic, at)
	}
	if err != nil {
		return s.poison(nil, fmt.Errorf("wal: close %s: %w", s.dir, err))
	}
	return nil
}
