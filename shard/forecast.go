package shard

import "carillon/timer"

// Forecast counts scheduled timers by when their next attempt is. Of a timer that repeats it knows
// the next occurrence alone.
type Forecast struct {
	FromMs, BucketMs int64
	Buckets          []int64 // from FromMs on
	Overdue, Later   int64   // before and behind the buckets
}

// Forecast adds up one shard's timers of some topics, nil for all, at its leader.
func (h *Host) Forecast(id timer.ShardID, topics map[timer.TopicID]bool, f *Forecast) error {
	own := Forecast{FromMs: f.FromMs, BucketMs: f.BucketMs, Buckets: make([]int64, len(f.Buckets))}
	at, hides := timer.Handle(0), h.groups[id].scheduler.hides
	err := h.read(id, true, func(g *group, budget int) (done bool) {
		at, done = g.table.forecast(topics, hides, at, budget, &own)
		return done
	})
	if err == nil {
		f.Add(&own)
	}
	return err
}

// Add adds another forecast of the same buckets.
func (f *Forecast) Add(o *Forecast) {
	for i := range f.Buckets {
		f.Buckets[i] += o.Buckets[i]
	}
	f.Overdue += o.Overdue
	f.Later += o.Later
}

// forecast looks at no more than budget slots after from, and says where to go on.
func (t *Table) forecast(topics map[timer.TopicID]bool, hides hides, from timer.Handle, budget int, f *Forecast) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		s := t.slab.at(from)
		if s.state() != timer.Scheduled && (s.state() != timer.Leased || hides == nil || !hides(from)) {
			continue
		}
		if id := t.topics.rows[s.topic].id; id == canaryTopic || topics != nil && !topics[id] {
			continue
		}
		ms := s.when()
		if s.state() == timer.Leased { // ahead of its time
			ms = t.dueMs(s)
		}
		switch bucket := (ms - f.FromMs) / f.BucketMs; {
		case ms < f.FromMs:
			f.Overdue++
		case bucket >= int64(len(f.Buckets)):
			f.Later++
		default:
			f.Buckets[bucket]++
		}
	}
	return from, from >= t.slab.high
}
