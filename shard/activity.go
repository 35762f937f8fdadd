package shard

import (
	"sync"

	"carillon/shard/table"
	"carillon/timer"
)

// Results of attempts, as Activity counts them.
const (
	FiredSuccess = iota
	FiredRetry
	FiredDead

	firedResults
)

// Fired counts attempts by how they ended.
type Fired [firedResults]uint64

func (f *Fired) add(o *Fired) {
	for i := range f {
		f[i] += o[i]
	}
}

// maxFiredTopics bounds the topics that a worker counts between two looks; the rest counts for the
// topic 0.
const maxFiredTopics = 4096

// fired counts an attempt that has ended, for its topic and the observer.
func (w *worker) fired(topic timer.TopicID, o *table.Outcome) {
	w.host.cfg.Observer.Outcome(o)
	result := FiredSuccess
	switch o.Kind {
	case table.Ack:
	case table.RetryLater:
		result = FiredRetry
	case table.Kill:
		result = FiredDead
	default:
		return // given back, or not over
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

// TopicActivity is what a topic did in the shards that this node leads.
type TopicActivity struct {
	Fired    Fired // since the last look
	Overdue  int64 // timers that are due and not called, now
	OldestMs int64 // how long the oldest of them has been
}

// Activity is what the shards that this node leads did.
type Activity struct {
	Topics map[timer.TopicID]*TopicActivity // those with anything to tell; 0: attempts of topics beyond a bound
	Totals timer.Counts                     // of all topics
}

func (a *Activity) of(id timer.TopicID) *TopicActivity {
	t := a.Topics[id]
	if t == nil {
		t = &TopicActivity{}
		a.Topics[id] = t
	}
	return t
}

// TakeActivity tells what the topics did since it was called last. One caller has it.
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
		for _, g := range w.groups {
			if g.table != nil && g.scheduler.Leads() {
				g.activity(&a)
			}
		}
	})
	return a
}

func (g *group) activity(a *Activity) {
	c := g.scheduler.Totals()
	a.Totals.Scheduled += c.Scheduled
	a.Totals.Leased += c.Leased
	a.Totals.Done += c.Done
	a.Totals.Dead += c.Dead
	g.scheduler.Overdue(func(id timer.TopicID, timers, oldestMs int64) {
		if id == table.CanaryTopic {
			return
		}
		t := a.of(id)
		t.Overdue += timers
		t.OldestMs = max(t.OldestMs, oldestMs)
	})
}
