package shard

import (
	"sync"

	"carillon/shard/table"
	"carillon/timer"
)

// Indexes of Fired: the result of an attempt.
const (
	FiredSuccess = iota
	FiredRetry
	FiredDead

	firedResults
)

// Fired counts attempts by result.
type Fired [firedResults]uint64

func (f *Fired) add(o *Fired) {
	for i := range f {
		f[i] += o[i]
	}
}

// maxFiredTopics bounds the topics that a worker counts between two calls of TakeActivity. Attempts
// of further topics count for topic 0.
const maxFiredTopics = 4096

// fired reports an attempt's outcome to the observer and counts its result for the topic.
func (w *worker) fired(topic timer.TopicID, o *table.Outcome) {
	w.host.cfg.Observer.Outcome(topic, o)
	result := FiredSuccess
	switch o.Kind {
	case table.Ack:
	case table.RetryLater:
		result = FiredRetry
	case table.Kill:
		result = FiredDead
	default:
		return // the attempt has no result: its lease was released, accepted or extended
	}
	n := w.firedBy[topic]
	if n == nil {
		if len(w.firedBy) >= maxFiredTopics {
			topic = 0
		}
		if n = w.firedBy[topic]; n == nil {
			if w.firedBy == nil {
				w.firedBy = map[timer.TopicID]*Fired{}
			}
			n = new(Fired)
			w.firedBy[topic] = n
		}
	}
	n[result]++
}

// TopicActivity is a topic's activity in the shards that this node leads.
type TopicActivity struct {
	Fired    Fired // since the previous call of TakeActivity
	Overdue  int64 // timers that are due now and not called yet
	OldestMs int64 // how long the oldest of them has been due
}

// Activity is the activity of all shards that this node leads.
type Activity struct {
	// Topics holds the topics with activity. Attempts beyond maxFiredTopics are under topic 0.
	Topics map[timer.TopicID]*TopicActivity
	Totals timer.Counts // timers of all topics
}

func (a *Activity) of(id timer.TopicID) *TopicActivity {
	t := a.Topics[id]
	if t == nil {
		t = &TopicActivity{}
		a.Topics[id] = t
	}
	return t
}

// TakeActivity returns the attempts since the previous call and the timers that are overdue now. It
// must have only one caller, because each call resets the attempts.
func (h *Host) TakeActivity() Activity {
	var mu sync.Mutex
	a := Activity{Topics: map[timer.TopicID]*TopicActivity{}}
	h.onWorkers(func(w *worker) {
		mu.Lock()
		defer mu.Unlock()
		for id, n := range w.firedBy {
			a.of(id).Fired.add(n)
		}
		w.firedBy = nil
		for _, s := range w.shards {
			if s.scheduler.Leads() {
				s.activity(&a)
			}
		}
	})
	walkLeaders(h, func(s *timerShard, at *int) bool {
		return s.scheduler.Overdue(at, func(id timer.TopicID, timers, oldestMs int64) {
			if id == table.CanaryTopic {
				return
			}
			t := a.of(id)
			t.Overdue += timers
			t.OldestMs = max(t.OldestMs, oldestMs)
		})
	})
	return a
}

func (s *timerShard) activity(a *Activity) {
	c := s.scheduler.Totals()
	a.Totals.Scheduled += c.Scheduled
	a.Totals.Leased += c.Leased
	a.Totals.Done += c.Done
	a.Totals.Dead += c.Dead
}
