package table

import "carillon/timer"

// Forecast counts scheduled timers by the time of their next attempt. A repeating timer counts
// once, at its next occurrence.
type Forecast struct {
	FromMs, BucketMs int64
	Buckets          []int64 // from FromMs on
	Overdue, Later   int64   // before and after the buckets
}

// Add adds another forecast with the same buckets.
func (f *Forecast) Add(o *Forecast) {
	for i := range f.Buckets {
		f.Buckets[i] += o.Buckets[i]
	}
	f.Overdue += o.Overdue
	f.Later += o.Later
}

// Forecast adds to f at most budget slots after from and returns the slot to continue after.
func (t *Table) Forecast(topics map[timer.TopicID]bool, hides Hides, from timer.Handle, budget int, f *Forecast) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		s := t.slab.at(from)
		if s.state() != timer.Scheduled && (s.state() != timer.Leased || hides == nil || !hides(from)) {
			continue
		}
		if id := t.topics.rows[s.topic].id; id == CanaryTopic || topics != nil && !topics[id] {
			continue
		}
		ms := s.when()
		if s.state() == timer.Leased { // leased before it is due
			ms = t.runs.at(s.run).attemptDueMs()
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
