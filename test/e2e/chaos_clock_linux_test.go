package e2e

import (
	"testing"
	"time"
)

var clockFaults = []fault{
	clockStep("1 s ahead", time.Second),
	clockStep("1 s behind", -time.Second),
	clockStep("5 min ahead", 5*time.Minute),
	clockStep("5 min behind", -5*time.Minute),
	{name: "clock 1 h ahead", fresh: true, try: clockStep("", time.Hour).try},
	clockStep("1 h behind", -time.Hour),
	clockStep("10 years ahead", 10*365*24*time.Hour),
	{name: "clock runs fast by a quarter", try: func(s *chaosRun, t *testing.T) []time.Duration { return s.skewLeader(t, 0, 250_000) }},
	{name: "clock runs slow by a quarter", try: func(s *chaosRun, t *testing.T) []time.Duration { return s.skewLeader(t, 0, -250_000) }},
}

func clockStep(name string, d time.Duration) fault {
	return fault{name: "clock " + name, try: func(s *chaosRun, t *testing.T) []time.Duration { return s.skewLeader(t, d.Milliseconds(), 0) }}
}

const (
	offNoticed   = 5 * time.Second // until the leaderships are transferred; the machine may be busy
	offAfterward = time.Second     // how long the clock stays wrong after that
)

// skewLeader steps the clock of the busiest leader, or makes it drift, and later sets it right.
func (s *chaosRun) skewLeader(t *testing.T, ms, ppm int64) (took []time.Duration) {
	victim := s.busiest(t)
	off := skew{ms: ms, ppm: ppm}
	off.from = time.Now()
	s.clocks[victim].set(t, ms, ppm)
	limit := offNoticed
	if ppm != 0 {
		limit += clockLimit * 1_000_000 / time.Duration(max(ppm, -ppm))
	}
	step := time.Duration(max(ms, -ms)) * time.Millisecond
	if ppm != 0 || step > clockLimit+clockSlew {
		took = append(took, s.handedOver(t, victim, off.from, limit, "its clock is"))
		off.until = time.Now()
	}
	wait(offAfterward)
	right := s.clocks[victim].set(t, 0, 0)
	if off.until.IsZero() { // too small a step for a certain handover
		off.until = right
	}
	s.v.skews = append(s.v.skews, off)
	s.leadsAgain(t, victim)
	return took
}
