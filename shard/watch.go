package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Watcher is told of timers' lives as they go on, for those who look on. Its methods are called on
// workers and must not block.
type Watcher interface {
	// Watches reports whether somebody has room for another event of a topic now. What nobody
	// watches costs nothing but this question.
	Watches(topic timer.TopicID) bool
	// Saw takes an event, which is the watcher's from then on.
	Saw(e *Event)
}

// EventKind is what happened to a timer.
type EventKind uint8

// The kinds of events.
const (
	TimerAdded   EventKind = 1 + iota // created
	TimerChanged                      // by a client: replaced, patched, merged, made due, brought back
	AttemptEnded                      // see State
	TimerDied                         // given up
	TimerCancelled
)

// Event is one step in a timer's life, told by the shard's leader once it is on stable storage of a
// majority. Around a change of leaders one may be told twice, or never.
type Event struct {
	Kind  EventKind
	AtMs  int64
	State timer.State // in which it ended; 0: it goes on
	// Timer is as it stood then, without its payload; with little more than its topic and id where
	// it has gone on since.
	Timer   *timer.Timer
	Attempt timer.HistoryAttempt // of AttemptEnded
}

// watched is the watcher, if this node tells of the group's timers and somebody wants to hear it.
func (g *group) watched(topic timer.TopicID) Watcher {
	w := g.w.host.cfg.Watcher
	if w == nil || !g.serving || topic == table.CanaryTopic || !w.Watches(topic) {
		return nil
	}
	return w
}

// showEnds tells of attempts and ends that an entry brought.
func (g *group) showEnds(events []table.HistoryEvent) {
	for i := range events {
		e := &events[i]
		w := g.watched(e.Topic)
		if w == nil {
			continue
		}
		if e.State != 0 {
			g.showEnd(w, e)
			continue
		}
		attempt, err := table.DecodeHistoryAttempt(e.Body)
		if err != nil {
			continue // it was made a moment ago by this build
		}
		seen := &Event{Kind: AttemptEnded, AtMs: e.EndMs, Attempt: attempt}
		seen.Timer = g.table.CopyWith(g.table.Find(e.Topic, e.ID), false)
		if seen.Timer == nil || seen.Timer.Seq != e.Seq {
			seen.Timer = &timer.Timer{Topic: e.Topic, ID: string(e.ID), Seq: e.Seq, State: timer.Scheduled, LatenessMs: -1}
		}
		w.Saw(seen)
	}
}

func (g *group) showEnd(w Watcher, e *table.HistoryEvent) {
	entry, err := table.DecodeHistoryEnd(e.Body)
	if err != nil {
		return
	}
	t := entry.Timer
	t.Payload = nil
	if len(entry.Attempts) > 0 {
		w.Saw(&Event{Kind: AttemptEnded, AtMs: e.EndMs, State: e.State, Timer: t, Attempt: entry.Attempts[0]})
	}
	switch e.State {
	case timer.Dead:
		w.Saw(&Event{Kind: TimerDied, AtMs: e.EndMs, State: e.State, Timer: t})
	case timer.Cancelled:
		w.Saw(&Event{Kind: TimerCancelled, AtMs: e.EndMs, State: e.State, Timer: t})
	}
}

// showChange tells of a client's command that was done.
func (g *group) showChange(cmd *timer.Command, r *timer.Result) {
	kind := TimerChanged
	switch cmd.Kind {
	case timer.Add, timer.Put:
		if r.Code == timer.Created {
			kind = TimerAdded
		} else if r.Code != timer.OK && r.Code != timer.Merged {
			return
		}
	case timer.Modify, timer.Fire, timer.Redrive:
		if r.Code != timer.OK {
			return
		}
	default:
		return
	}
	w := g.watched(cmd.Topic)
	if w == nil {
		return
	}
	if t := g.table.CopyWith(r.Handle, false); t != nil && t.Topic == cmd.Topic {
		w.Saw(&Event{Kind: kind, AtMs: g.table.ClockMs(), Timer: t})
	}
}
