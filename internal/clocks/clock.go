package clocks

import (
	"sync/atomic"
	"time"
)

const (
	// bootInterval is how often the boot clock is read, because that is a system call. In between
	// it is derived from the monotonic clock, as long as the wall clock agrees.
	bootInterval = 50 * time.Millisecond
	// togetherUs is how far, in µs, two readings of wall and monotonic clock may differ before they
	// are repeated with care: the thread may have been stopped between the two.
	togetherUs = 1000
	readTries  = 5
)

// System is the Source that reads the clocks of the machine.
type System struct {
	start time.Time
	// lead in ns of the boot clock over the monotonic one, which begins at start
	asleep atomic.Int64

	apartUs int64         // wall clock minus monotonic clock at the last reading, in µs
	bootAt  time.Duration // monotonic time of the last reading of the boot clock
	begun   bool
}

// NewSystem returns a System whose monotonic clock begins now.
func NewSystem() *System {
	s := &System{start: time.Now()}
	s.readBoot()
	return s
}

func (s *System) mono() time.Duration { return time.Since(s.start) }

func (s *System) Boot() time.Duration {
	return s.mono() + time.Duration(s.asleep.Load())
}

func (s *System) Read() Reading {
	now := time.Now()
	mono := now.Sub(s.start)
	r := Reading{WallUs: now.UnixMicro(), Mono: mono}
	apart := r.WallUs - mono.Microseconds()
	moved := apart - s.apartUs
	if !s.begun || moved > togetherUs || moved < -togetherUs {
		r = s.readWithCare()
		s.apartUs, s.begun = r.WallUs-r.Mono.Microseconds(), true
		s.readBoot()
	} else if mono-s.bootAt >= bootInterval {
		s.readBoot()
	}
	r.Boot = r.Mono + time.Duration(s.asleep.Load())
	return r
}

// readWithCare reads the wall clock between two readings of the monotonic one.
func (s *System) readWithCare() (best Reading) {
	for i := range readTries {
		before := s.mono()
		wall := time.Now().UnixMicro()
		after := s.mono()
		if apart := after - before; i == 0 || apart < best.Apart {
			best = Reading{WallUs: wall, Mono: before + apart/2, Apart: apart}
		}
		if best.Apart < togetherUs*time.Microsecond/2 {
			break
		}
	}
	return best
}

// readBoot updates how long the machine has slept. A thread that is stopped between the two clocks
// makes the boot clock look ahead, so the least of several differences counts.
func (s *System) readBoot() {
	least := time.Duration(1<<63 - 1)
	for range readTries {
		before := s.mono()
		boot := bootClock(s.mono)
		if apart := boot - before; apart < least {
			least = apart
		}
		if s.mono()-before < togetherUs*time.Microsecond/2 {
			break
		}
	}
	s.bootAt = s.mono()
	if known := time.Duration(s.asleep.Load()); least-known > togetherUs*time.Microsecond/2 || known == 0 {
		s.asleep.Store(int64(least)) // it only grows: a smaller value is measuring error
	}
}
