package sim

import (
	"time"

	"carillon/timer"
)

// shardTimes records which time each shard's leader used and which time the shard stamped. So a
// check knows which operations a wrong clock has touched. A leader is asked after each of its
// turns, and a shard's own clock after each entry.
type shardTimes struct {
	shards  []shardTime // by group
	founded int         // shards that may have children; 0: none has
	most    int         // shards with all children
}

// shardTime is the record of one shard.
type shardTime struct {
	wrong []wrongSpan
	open  map[uint64]int // by leader: index in wrong of its open span
	index uint64         // the newest entry seen on a replica
	clock int64          // the shard's clock after it
	seen  time.Duration  // when it was seen
	backs []clockBack
	right time.Duration // when a leader with a right clock last led the shard
}

// wrongSpan is a period in which a leader's clock, or the shard's own, had an error of off.
type wrongSpan struct {
	from, to, off time.Duration
}

// clockBack is a setback of a shard's own clock.
type clockBack struct {
	at time.Duration // when it was first seen
	// toMs is at most the new time: its leader may have ended before the checker saw it
	fromMs, toMs int64
}

const (
	offWithin = 100 * time.Millisecond // smaller errors are ignored
	sameOff   = 50 * time.Millisecond  // errors that differ by less count as equal
	// timeSlack bounds the difference of two readings of one clock at about the same moment.
	timeSlack = 2*offWithin + sameOff
	// leftAheadMs is how far a shard's clock may stay ahead of its leader's (clockAheadMs in
	// shard); up to that it is not set back.
	leftAheadMs = 2000
)

func (s *shardTimes) of(id timer.ShardID) *shardTime {
	for len(s.shards) <= int(id) {
		s.shards = append(s.shards, shardTime{open: map[uint64]int{}})
	}
	return &s.shards[id]
}

// all returns the records of a shard, and of those that it was divided from or into.
func (s *shardTimes) all(id timer.ShardID) (family []*shardTime) {
	if s.founded == 0 || id == 0 {
		return []*shardTime{s.of(id)}
	}
	s.of(timer.ShardID(s.most)) // it may move the others
	for id := 1 + (int(id)-1)%s.founded; id <= s.most; id += s.founded {
		family = append(family, s.of(timer.ShardID(id)))
	}
	return family
}

// led records a leader's clock, or that a node does not lead the shard.
func (s *shardTimes) led(id timer.ShardID, node uint64, leads bool, now, off time.Duration) {
	t := s.of(id)
	at, open := t.open[node]
	if leads && open && (t.wrong[at].off-off).Abs() <= sameOff {
		t.wrong[at].to = now
		return
	}
	if open {
		delete(t.open, node)
	}
	if leads && off.Abs() <= offWithin {
		t.right = now
	} else if leads {
		t.open[node] = len(t.wrong)
		t.wrong = append(t.wrong, wrongSpan{now, now, off})
	}
}

// applied records a shard's own clock after an entry.
func (s *shardTimes) applied(id timer.ShardID, index uint64, clockMs int64, now time.Duration) {
	t := s.of(id)
	if index <= t.index {
		return
	}
	first := t.least(t.seen, now) - timeSlack.Milliseconds()
	// Of several entries applied in one turn the first may set the clock back and the last advance
	// it.
	if clockMs < t.clock || index > t.index+1 && t.clock-first > leftAheadMs {
		// Its entry may have been proposed before the last one that was seen.
		to := t.least(t.seen-appliedWithin, now) - timeSlack.Milliseconds()
		t.backs = append(t.backs, clockBack{now, t.clock, min(clockMs, to)})
	}
	t.index, t.clock, t.seen = index, clockMs, now
	if off := msOf(clockMs-epochMs) - now; off > offWithin {
		t.wrong = append(t.wrong, wrongSpan{now, now, off})
	}
}

// appliedWithin bounds the time between an entry's proposal and its application.
const appliedWithin = 10 * time.Second

// least is the earliest time shown by the clocks of the leaders in a period or shortly before it.
func (t *shardTime) least(from, to time.Duration) int64 {
	low, known := from, t.right >= from-appliedWithin
	for _, w := range t.wrong {
		if w.to < from-appliedWithin || w.from > to {
			continue
		}
		if at := max(from, w.from) + w.off; !known || at < low {
			low, known = at, true
		}
	}
	return epochMs + low.Milliseconds()
}

// off is the greatest error of a shard's time in a period, behind and ahead; 0: it was right.
func (s *shardTimes) off(id timer.ShardID, from, to time.Duration) (behind, ahead time.Duration) {
	for _, t := range s.all(id) {
		for _, w := range t.wrong {
			if w.to >= from && w.from <= to {
				behind, ahead = min(behind, w.off), max(ahead, w.off)
			}
		}
	}
	return behind, ahead
}

// shown is the earliest and the latest time that the shard's clocks have shown in a period.
func (s *shardTimes) shown(id timer.ShardID, from, to time.Duration) (first, last int64) {
	low, high := from, to
	for _, t := range s.all(id) {
		for _, w := range t.wrong {
			if w.to >= from && w.from <= to {
				low, high = min(low, max(from, w.from)+w.off), max(high, min(to, w.to)+w.off)
			}
		}
	}
	return epochMs + low.Milliseconds(), epochMs + high.Milliseconds()
}

// backs are the setbacks of a shard's clock since a moment.
func (s *shardTimes) backs(id timer.ShardID, since time.Duration) (all []clockBack) {
	for _, t := range s.all(id) {
		list := t.backs
		for len(list) > 0 && list[0].at < since {
			list = list[1:]
		}
		all = append(all, list...)
	}
	return all
}

// Finished timers (docs/ARCHITECTURE.md): how long they are kept, and by how much their recorded
// end may precede the entry that records it.
const (
	finishedStay = 10 * time.Minute
	endEarlier   = time.Minute
)

// mayBeForgotten reports whether an ended timer may be gone by now. By the time of its shard, which
// was wrong and had to be trusted, it may have ended long enough ago. since is when it was first
// requested.
func (w *World) mayBeForgotten(id timer.ShardID, since time.Duration, ended bool) bool {
	behind, ahead := w.checker.times.off(id, since, w.now)
	return ended && ahead-behind > offWithin && w.now-since+ahead-behind >= finishedStay-endEarlier-timeSlack
}

// mayForget reports whether the finished timers of an id may be gone.
func (w *World) mayForget(id idKey) bool {
	return w.mayBeForgotten(w.place(id.topic, id.id), w.checker.ids[id].since, true)
}
