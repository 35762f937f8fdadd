// Package events makes events of the changes that entries make to timers, and has the interfaces of
// those that take them.
package events

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Watcher observes the lives of timers. Its methods are called on workers and must not block.
type Watcher interface {
	// Watches reports whether an observer asked for the events of a topic. A topic without
	// observers costs only this call.
	Watches(topic timer.TopicID) bool
	// Saw takes an event. The watcher owns it from then on.
	Saw(e *Event)
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	TimerAdded   EventKind = 1 + iota // created
	TimerChanged                      // by a client: replaced, patched, merged, fired or redriven
	AttemptEnded                      // see Event.State
	TimerDied                         // became a dead letter
	TimerCancelled
)

// Event is one step in a timer's life. The shard's leader reports it once a majority has it on
// stable storage. Around a change of leaders it may be reported twice, or never.
type Event struct {
	Kind  EventKind
	AtMs  int64
	State timer.State // in which the timer ended; 0: it continues
	// Timer is the timer at that time, without its payload. If it no longer exists, little more
	// than its topic and id is set.
	Timer   *timer.Timer
	Attempt timer.HistoryAttempt // of AttemptEnded
}

// Watched returns who watches a topic; nil: nobody does.
type Watched func(topic timer.TopicID) Watcher

// Ended reports the attempts and ends that an entry caused.
func Ended(t *table.Table, list []table.HistoryEvent, watched Watched) {
	for i := range list {
		e := &list[i]
		w := watched(e.Topic)
		if w == nil {
			continue
		}
		if e.State != 0 {
			showEnd(w, e)
			continue
		}
		attempt, err := table.DecodeHistoryAttempt(e.Body)
		if err != nil {
			continue // cannot happen: this build has just made it
		}
		seen := &Event{Kind: AttemptEnded, AtMs: e.EndMs, Attempt: attempt}
		seen.Timer = t.CopyWith(t.Find(e.Topic, e.ID), false)
		if seen.Timer == nil || seen.Timer.Seq != e.Seq {
			seen.Timer = &timer.Timer{Topic: e.Topic, ID: string(e.ID), Seq: e.Seq, State: timer.Scheduled, LatenessMs: -1}
		}
		w.Saw(seen)
	}
}

func showEnd(w Watcher, e *table.HistoryEvent) {
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

// Changed reports a client's command that took effect.
func Changed(t *table.Table, cmd *timer.Command, r *timer.Result, watched Watched) {
	if r.Unchanged {
		return
	}
	kind := TimerChanged
	switch cmd.Kind {
	case timer.Add, timer.Put:
		if r.Code == timer.Created {
			kind = TimerAdded
		} else if r.Code != timer.OK && r.Code != timer.Merged {
			return
		}
	case timer.Modify, timer.Fire, timer.Redrive, timer.Pause, timer.Resume:
		if r.Code != timer.OK {
			return
		}
	default:
		return
	}
	w := watched(cmd.Topic)
	if w == nil {
		return
	}
	if changed := t.CopyWith(r.Handle, false); changed != nil && changed.Topic == cmd.Topic {
		w.Saw(&Event{Kind: kind, AtMs: t.ClockMs(), Timer: changed})
	}
}

// Made reports the outcomes that an applied entry has made.
func Made(t *table.Table, outcomes []timer.Handle, watched Watched) {
	for _, h := range outcomes {
		if w := watched(t.Due(h).Topic); w != nil {
			w.Saw(&Event{Kind: TimerAdded, AtMs: t.ClockMs(), Timer: t.CopyWith(h, false)})
		}
	}
}

// History receives the events of timers on every live replica, in the order in which entries are
// applied. A restart repeats those of entries that the log still has. Shards call concurrently,
// each from one goroutine at a time.
type History interface {
	// Record takes the events of one applied entry. They are valid only until it returns. It must
	// not block.
	Record(id timer.ShardID, index uint64, events []table.HistoryEvent)
}
