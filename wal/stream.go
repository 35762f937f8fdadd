package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/vfs"
)

// Position names a frame: its generation and its sequence number.
type Position struct {
	Gen uint64
	Seq uint64
}

// GenInfo describes a generation. An empty one has LastSeq = FirstSeq - 1.
type GenInfo struct {
	Gen      uint64
	Bytes    int64
	FirstSeq uint64
	LastSeq  uint64

	prevHash uint32 // chain value before FirstSeq
}

// Stream is one log: a directory of generations, appended to by one writer.
type Stream struct {
	fs      vfs.FS
	dir     string
	opt     Options
	salt    salt // does not change after Open
	cut     Cut  // nor does this
	lock    io.Closer
	disk    atomic.Pointer[Disk] // replaced whole
	reserve atomic.Uint64
	lack    atomic.Pointer[string] // see Disk; nil: nothing
	durable atomic.Uint64          // as w.synced, when a sync has ended
	wake    chan struct{}          // capacity 1: there may be work
	// One DropBefore at a time; held over its I/O, which nobody else waits for.
	drop    sync.Mutex
	dropped []uint64 // generations that were given up, and are yet to be removed

	mu     sync.Mutex
	queue  []waiting
	gens   []GenInfo // ascending; the last is being written. Invariant: never empty after Open
	closed bool      // no more submissions
	err    error     // the first failure; the stream is poisoned

	w writer
}

type waiting struct {
	frame *Frame
	sync  bool
	done  func(Position, error)
}

// Synced is the last frame that is known to be on disk. It may be called from any goroutine. Frames
// are numbered from the stream's first on, across generations and processes: the number of one that
// is on disk never falls.
func (s *Stream) Synced() uint64 { return s.durable.Load() }

// Submit queues a frame. It may be called from any goroutine; frames keep the order of
// submission. done (may be nil) is called on the writer once the frame is written and, if
// sync is set, durable together with all frames before it. The frame must not be touched
// until then. An error from Submit means that done will not be called.
func (s *Stream) Submit(f *Frame, sync bool, done func(Position, error)) error {
	if f.Len() > s.opt.FrameBytes {
		return fmt.Errorf("%w: %d bytes", ErrFrameTooLarge, f.Len())
	}
	if err := s.enqueue(waiting{f, sync, done}); err != nil {
		return err
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

func (s *Stream) enqueue(p waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.closed:
		return ErrClosed
	case len(s.queue) >= s.opt.QueueFrames:
		return ErrQueueFull
	}
	s.queue = append(s.queue, p)
	return nil
}

// Run is the writer. It returns after ctx ended and all that was queued is written, with
// nil, or at the first failure, with that. The stream is closed then. Run it once.
func (s *Stream) Run(ctx context.Context) error {
	stop := s.w.startPreparing(s.fs, s.dir, s.opt.SegmentBytes)
	err := s.loop(ctx)
	stop()
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

func (s *Stream) loop(ctx context.Context) error {
	tick := time.NewTicker(diskSampleEvery)
	defer tick.Stop()
	for {
		worked, err := s.Step()
		if err != nil {
			return err
		}
		if worked {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
		}
	}
}

func (s *Stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Step does one write-sync-complete cycle over all that is queued and reports whether there
// was anything. Only one goroutine may call it, and nobody while Run runs. It never waits
// for another goroutine, so a simulator can drive the stream by it alone. While the disk is full
// it does nothing, and looks for room again now and then: see Options.Observe.Full.
func (s *Stream) Step() (worked bool, err error) {
	s.sampleDisk()
	if s.waits(s.opt.Monotonic()) && !s.isClosed() {
		return false, s.Err()
	}
	s.mu.Lock()
	err = s.err
	s.w.batch, s.queue = s.queue, s.w.batch[:0]
	s.mu.Unlock()
	if err != nil {
		s.failAll(s.w.batch, err)
		return false, err
	}
	if len(s.w.batch) == 0 {
		return false, nil
	}
	rest := s.w.batch
	for len(rest) > 0 {
		n := s.chunk(rest)
		done, err := s.write(rest[:n])
		if errors.Is(err, errNoRoom) {
			s.waitForRoom(rest, err)
			clear(s.w.batch)
			return false, nil
		}
		if err != nil {
			return true, s.poison(rest[done:], err)
		}
		rest = rest[n:]
	}
	s.setLack("")
	clear(s.w.batch)
	return true, nil
}

func (s *Stream) waitsFor() string {
	if lack := s.lack.Load(); lack != nil {
		return *lack
	}
	return ""
}

// Full reports that the log waits for room: nothing is written until then. See Disk.
func (s *Stream) Full() bool { return s.waitsFor() != "" }

// Generation returns the number of the generation being written.
func (s *Stream) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gens[len(s.gens)-1].Gen
}

// Place is the generation being written, and how long it is.
func (s *Stream) Place() (gen uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gens[len(s.gens)-1]
	return g.Gen, g.Bytes
}

// GenBytes is the size at which a generation is closed.
func (s *Stream) GenBytes() int64 { return s.opt.GenBytes }

// Generations lists those on disk, oldest first; the last is being written.
func (s *Stream) Generations() []GenInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]GenInfo(nil), s.gens...)
}

// Close writes the queued frames, marks the end, and closes. Run does it by itself; a caller of
// Step does it last, and must not be in Step. Closing twice is safe.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	_, err := s.Step()
	s.abandonQueue()
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		s.w.seg.file.Close() // nothing more is written; the appender is only dropped
	}
	if cerr := s.lock.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("wal: unlock %s: %w", s.dir, cerr)
	}
	s.lock = nil
	return err
}
