package scheduler

import (
	"math"

	"carillon/timer"
	"carillon/timer/recurrence"
)

// A topic's window: attempts start only while it is open, by the wall clock at the start of the
// call, not only at its lease. A topic whose window is shut has no turn; it gets one again at the
// instant at which the window may open.

// topicWindow is a topic's window, as it was read last.
type topicWindow struct {
	of    *timer.Window     // that hours was made of
	hours *recurrence.Hours // nil: this node lacks its zone
	open  bool
	// It is open, or not, from fromMs to untilMs, wall clock.
	fromMs, untilMs int64
}

// topicWindows has topics wait until their windows open.
type topicWindows struct {
	shut heap[windowKey] // by when they may open, wall clock

	*leader
	topics *topicQueues
}

func newTopicWindows(s *Scheduler) topicWindows {
	return topicWindows{
		leader: &s.leader,
		topics: &s.topics,
	}
}

// windowKey orders the topics whose windows are shut.
type windowKey struct {
	untilMs int64
	topic   *topicQueue
}

func (k windowKey) before(o windowKey) bool { return k.untilMs < o.untilMs }

// inWindow reports whether attempts of a topic may start now, and until when that stays so.
func (tw *topicWindows) inWindow(q *topicQueue) (open bool, untilMs int64) {
	if q.topic == nil || q.topic.Policy.Window == nil {
		return true, math.MaxInt64
	}
	w, now := &q.window, tw.now.WallMs
	if w.of != q.topic.Policy.Window {
		*w = topicWindow{of: q.topic.Policy.Window}
		if zone, err := tw.cfg.Zones.Load(w.of.Zone); err == nil {
			w.hours, _ = recurrence.NewHours(w.of, zone) // nil of another build's policy
		}
	}
	switch {
	case w.hours == nil:
		untilMs = now + zoneRetry.Milliseconds()
		if q.windowMs > now { // so long is being waited already
			untilMs = min(untilMs, q.windowMs)
		}
		return false, untilMs
	case now < w.fromMs || now >= w.untilMs:
		w.open, w.untilMs = w.hours.Open(now)
		w.fromMs = now
	}
	return w.open, w.untilMs
}

// opening returns when attempts of a topic may first start from a time on, in ms; a time after now
// if that is not yet.
func (tw *topicWindows) opening(q *topicQueue, ms int64) int64 {
	open, untilMs := tw.inWindow(q)
	switch {
	case q.topic == nil || q.topic.Policy.Window == nil:
		return ms
	case !open:
		return untilMs
	}
	for ms < tw.now.WallMs {
		if open, untilMs = q.window.hours.Open(ms); open {
			break
		}
		ms = untilMs
	}
	return ms
}

// await has a topic wait until its window may open.
func (tw *topicWindows) await(q *topicQueue, untilMs int64) {
	q.limitedMs = tw.now.WallMs
	if q.windowMs != untilMs {
		q.windowMs = untilMs
		tw.shut.push(windowKey{untilMs, q})
	}
}

// reopen gives topics their turns again whose windows may be open now.
func (tw *topicWindows) reopen() {
	for n := 0; tw.shut.len() > 0 && tw.shut.top().untilMs <= tw.now.WallMs; n++ {
		if n == PopBudget || tw.env.Spent(1) {
			tw.env.WakeNext()
			return
		}
		k := tw.shut.pop()
		if k.topic.windowMs == k.untilMs {
			k.topic.windowMs, k.topic.limitedMs = 0, tw.now.WallMs
			tw.topics.join(k.topic)
		}
	}
}
