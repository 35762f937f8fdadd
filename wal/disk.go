package wal

import "time"

// diskSampleEvery is how often free space is looked at.
const diskSampleEvery = time.Second

// LowDisk tells whether free space is low: refuse what adds data, let the rest go on.
// It is sampled about once a second.
func (s *Stream) LowDisk() bool { return s.low.Load() }

// sampleDisk updates LowDisk. It turns on at the limit and off a quarter above it, so that
// a drop of one generation does not make it flap. An error keeps the last answer.
func (s *Stream) sampleDisk() {
	now := s.opt.Monotonic()
	if s.w.sampled && now-s.w.sampledAt < diskSampleEvery {
		return
	}
	s.w.sampled, s.w.sampledAt = true, now
	free, err := s.fs.Free(s.dir)
	if err != nil {
		return
	}
	limit := s.opt.LowDiskBytes
	if s.low.Load() {
		limit += limit / 4
	}
	s.low.Store(free <= limit)
	if s.opt.Observe.Low != nil {
		s.opt.Observe.Low(free <= limit, free)
	}
}
