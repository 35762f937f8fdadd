package sim

import (
	"testing"
	"time"

	"carillon/timer"
)

// TestFirstAddOfAnAnswerThatIsLate: an answer is compared only with answers from before its
// operation.
func TestFirstAddOfAnAnswerThatIsLate(t *testing.T) {
	for _, test := range []struct {
		name   string
		began  time.Duration // of a read that shows the first add as it was before
		leased bool          // the timer was called before its creation was acknowledged
		wrong  bool
	}{
		{"it began before the other answer", 2 * time.Second, false, false},
		{"it began after it", 4 * time.Second, false, true},
		{"the timer was called meanwhile", 4 * time.Second, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &World{checker: newChecker()}
			w.checker.times.applied(1, 1, 300_000, time.Second)
			// the shard's clock is set back, and with it the timestamps that it made
			w.checker.times.applied(1, 2, 1000, 2*time.Second)
			b := newMergeChecker(newFeatureChecker())
			key := timerKey{1, 1}
			told := func(at, began time.Duration, code timer.Code, createdMs int64) {
				w.now = at
				o := &operation{shard: 1, topic: mergingTopic, id: "a", began: began}
				b.id(idKey{o.topic, o.id})
				b.firstAdd(w, o, timer.Result{Code: code}, &timer.Timer{Seq: key.seq, State: timer.Scheduled, CreatedMs: createdMs})
			}
			if test.leased {
				b.first[key] = nil
			}
			told(time.Second, 0, timer.Created, 300_000)
			told(3*time.Second, 2*time.Second, 0, 1000)
			defer func() {
				if wrong := recover() != nil; wrong != test.wrong {
					t.Errorf("a violation: %v", wrong)
				}
			}()
			told(5*time.Second, test.began, 0, 300_000)
		})
	}
}

// TestClockSetBackAmongOthers: several entries are applied in one turn, and the last one has a
// later time again.
func TestClockSetBackAmongOthers(t *testing.T) {
	for _, test := range []struct {
		index uint64
		off   time.Duration // of the leader's clock
		want  int
	}{
		{2, -time.Hour, 0}, // one entry cannot do both
		{3, -time.Hour, 1},
		{3, -time.Second, 0}, // so small a lead is not set back
		{3, 0, 0},
	} {
		var s shardTimes
		s.applied(1, 1, epochMs+60_000, time.Minute)
		s.led(1, 1, true, time.Minute, test.off)
		s.applied(1, test.index, epochMs+62_000, 62*time.Second)
		if got := s.backs(1, 0); len(got) != test.want {
			t.Errorf("up to entry %d, led by a clock that is %s off: %v", test.index, test.off, got)
		}
	}
}
