package sim

import (
	"time"

	"carillon/timer"
)

// shardTimes is which times each shard was led by, and stamped with: what a wrong clock has touched, and what it has not. A leader is asked
// after each of its turns, a shard's own clock after each entry.
type shardTimes struct {
	shards []shardTime // by group
}

// shardTime is that of one shard.
type shardTime struct {
	wrong []wrongSpan
	open  map[uint64]int // by leader: its span that has not ended, in wrong
	index uint64         // the newest entry that a replica was seen at
	clock int64          // the shard's clock then
	seen  time.Duration  // when that was
	backs []clockBack
	right time.Duration // when somebody last led it by a right time
}

// wrongSpan is for how long a leader, or the shard's own clock, was so far off.
type wrongSpan struct {
	from, to, off time.Duration
}

// clockBack is when a shard's own clock was set back.
type clockBack struct {
	at           time.Duration // when that was seen first
	fromMs, toMs int64         // toMs is not later than what it was set to: who did so may have ended before anybody saw it
}

const (
	offWithin = 100 * time.Millisecond // less is no wrong time
	sameOff   = 50 * time.Millisecond  // as far off as before
	// timeSlack is by how much times may differ that were taken of one clock at about the same moment.
	timeSlack = 2*offWithin + sameOff
	// leftAheadMs is how far ahead of its leader's a shard's clock is left (shard, clockAheadMs): one
	// that was no further ahead was not set back.
	leftAheadMs = 2000
)

func (s *shardTimes) of(id timer.ShardID) *shardTime {
	for len(s.shards) <= int(id) {
		s.shards = append(s.shards, shardTime{open: map[uint64]int{}})
	}
	return &s.shards[id]
}

// led notes by which time a node leads a shard, or that it does not.
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

// applied notes a shard's own clock after an entry.
func (s *shardTimes) applied(id timer.ShardID, index uint64, clockMs int64, now time.Duration) {
	t := s.of(id)
	if index <= t.index {
		return
	}
	first := t.least(t.seen, now) - timeSlack.Milliseconds()
	// Of several entries that are applied in one turn the first may set it back, and the last is later again.
	if clockMs < t.clock || index > t.index+1 && t.clock-first > leftAheadMs {
		t.backs = append(t.backs, clockBack{now, t.clock, min(clockMs, first)})
	}
	t.index, t.clock, t.seen = index, clockMs, now
	if off := msOf(clockMs-epochMs) - now; off > offWithin {
		t.wrong = append(t.wrong, wrongSpan{now, now, off})
	}
}

// appliedWithin is after what an entry is applied, as a rule, if it ever is.
const appliedWithin = 10 * time.Second

// least is the first moment that the time of those has shown who led the shard in a span, or shortly before it.
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

// off is how far ahead and behind a shard's time was in a span, at most. What is right counts as neither.
func (s *shardTimes) off(id timer.ShardID, from, to time.Duration) (behind, ahead time.Duration) {
	for _, w := range s.of(id).wrong {
		if w.to >= from && w.from <= to {
			behind, ahead = min(behind, w.off), max(ahead, w.off)
		}
	}
	return behind, ahead
}

// shown are the first and the last moment that the shard's time has shown in a span.
func (s *shardTimes) shown(id timer.ShardID, from, to time.Duration) (first, last int64) {
	low, high := from, to
	for _, w := range s.of(id).wrong {
		if w.to >= from && w.from <= to {
			low, high = min(low, max(from, w.from)+w.off), max(high, min(to, w.to)+w.off)
		}
	}
	return epochMs + low.Milliseconds(), epochMs + high.Milliseconds()
}

// backs are the times that a shard's clock was set back since then.
func (s *shardTimes) backs(id timer.ShardID, since time.Duration) []clockBack {
	list := s.of(id).backs
	for len(list) > 0 && list[0].at < since {
		list = list[1:]
	}
	return list
}

// Of finished timers (docs/ARCHITECTURE.md): how long they stay, and by how much their end may be earlier than the entry that tells of it.
const (
	finishedStay = 10 * time.Minute
	endEarlier   = time.Minute
)

// mayBeForgotten says of a timer that was first asked for at a time, and has ended, whether it may be gone by now: by the time of its shard,
// which somebody had to believe, it ended long enough ago.
func (w *World) mayBeForgotten(id timer.ShardID, since time.Duration, ended bool) bool {
	behind, ahead := w.checker.times.off(id, since, w.now)
	return ended && ahead-behind > offWithin && w.now-since+ahead-behind >= finishedStay-endEarlier-timeSlack
}

// mayForget says whether what has finished of an id may be gone.
func (w *World) mayForget(id idKey) bool {
	return w.mayBeForgotten(w.place(id.topic, id.id), w.checker.ids[id].since, true)
}
