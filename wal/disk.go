package wal

import (
	"fmt"
	"time"

	"carillon/internal/vfs"
)

// diskSampleEvery is how often free space, and the directory's place, is looked at.
const diskSampleEvery = time.Second

// Disk is the free space where a stream is, as of its last look, about a second ago at most.
type Disk struct {
	Free  uint64
	Limit uint64 // at this or less it is low: refuse writes that add data, accept the rest
	Low   bool
	// Lack is what the log waits for, as vfs.Lack says it: nothing is written until then. "": it
	// does not wait.
	Lack string
}

// Disk reports how much room there is. It may be called from any goroutine.
func (s *Stream) Disk() Disk {
	var d Disk
	if sampled := s.disk.Load(); sampled != nil {
		d = *sampled
	}
	d.Lack = s.waitsFor()
	return d
}

// LowDisk reports whether free space is low.
func (s *Stream) LowDisk() bool { return s.Disk().Low }

// SetReserve sets how much the next snapshot may take: the limit below which the disk is low goes
// up by that, since without room for a snapshot the log can only grow.
func (s *Stream) SetReserve(bytes uint64) { s.reserve.Store(bytes) }

// HasRoom reports whether a file of so many bytes may be written, after which so many stay free.
func (s *Stream) HasRoom(bytes, stay uint64) bool {
	free, err := s.fs.Free(s.dir)
	return err != nil || free >= bytes+stay
}

// SnapshotFloor is how many bytes snapshots leave free, for the log; see SnapshotWriter.KeepFree.
func (s *Stream) SnapshotFloor() uint64 { return s.opt.LowDiskBytes / 2 }

// SampleDisk is for a caller that drives the stream by Step, when there is nothing to write: see
// Disk.
func (s *Stream) SampleDisk() { s.sampleDisk() }

// sampleDisk updates Disk. It turns low at the limit and well a quarter above it, so that a drop
// of one generation does not make it flap. An error keeps the last answer.
func (s *Stream) sampleDisk() {
	now := s.opt.Monotonic()
	if s.w.sampled && now-s.w.sampledAt < diskSampleEvery {
		return
	}
	s.w.sampled, s.w.sampledAt = true, now
	if err := s.checkPlace(); err != nil {
		_ = s.poison(nil, err) // the caller's next Step returns it
		return
	}
	free, err := s.fs.Free(s.dir)
	if err != nil {
		return
	}
	d := &Disk{Free: free, Limit: s.opt.LowDiskBytes + s.reserve.Load()}
	least := d.Limit
	if s.LowDisk() {
		least += least / 4
	}
	d.Low = free <= least
	s.disk.Store(d)
}

// checkPlace looks whether the stream's open lock and segment are still in their places.
func (s *Stream) checkPlace() error {
	for _, at := range []*vfs.Place{&s.w.lockAt, &s.w.segAt} {
		if at.Path != "" && at.Left(s.fs) {
			return fmt.Errorf("wal: %s %w", at.Path, errMoved)
		}
	}
	return nil
}
