// Package bulk decides the change for each of the timers that a query selects, and counts the
// results. Its caller walks the shards and executes the commands.
package bulk

import (
	"slices"
	"strings"
	"sync/atomic"

	"carillon/timer"
)

// Update is one change to all timers that a query selects. The caller walks the shards (see
// timer.ScanCursor) and executes the commands; Update itself does no I/O and never waits.
//
// Each command applies only to the version that the walk has met. A timer that has changed since is
// decided again by what it is now, as the shard answers. So is a command with an unknown outcome:
// no command takes effect twice.
type Update struct {
	Query timer.Query
	Plan  Plan
	// Shards are those to walk, of Of; nil: all.
	Shards map[timer.ShardID]bool
	Of     int
	// Skip is called for each timer that cannot be changed now, with the reason. Several shards may
	// call it at once. nil: it is only counted.
	Skip func(m *timer.Ref, why timer.Code)

	Matched, Changed, Skipped atomic.Int64 // timers so far; several shards may count at once
}

// Walks reports whether a shard is to be walked.
func (u *Update) Walks(id timer.ShardID) bool { return u.Shards == nil || u.Shards[id] }

// Task is one timer of a bulk change until its change is decided and done.
type Task struct {
	Command *timer.Command

	mark  timer.Ref
	tries int
	// whole: the answer to the command has the timer, because that has changed since it was met.
	whole bool
	// unsure: a command was sent without an answer. It may have taken effect, or may still do so.
	unsure bool
}

// taskTries bounds the work on one timer that keeps changing.
const taskTries = 8

// Brief reports whether the answer to the command need not have the timer.
func (t *Task) Brief() bool { return !t.whole }

// Begin decides about a timer that the walk has met; nil: there is nothing to do, and it is
// counted.
func (u *Update) Begin(m timer.Ref) *Task {
	e := &Task{mark: m}
	if !u.judge(e) {
		return nil
	}
	return e
}

// judge finds the command for a timer; false: there is none, and the timer is counted.
func (u *Update) judge(e *Task) bool {
	var v Decision
	switch e.Command, v = u.Plan(&e.mark); v {
	case Pass:
		return false
	case Leave:
		u.Matched.Add(1)
		return false
	case Skip:
		u.skip(e, timer.InFlight)
		return false
	case NoURL:
		u.skip(e, timer.NoCallback)
		return false
	}
	return true
}

func (u *Update) count(n *atomic.Int64) {
	u.Matched.Add(1)
	n.Add(1)
}

func (u *Update) skip(e *Task, why timer.Code) {
	u.count(&u.Skipped)
	if u.Skip != nil {
		u.Skip(&e.mark, why)
	}
}

// Take evaluates the answer to a command. again: the task has a command that is to be sent.
func (u *Update) Take(e *Task, r *timer.Result, err error) (again bool) {
	if err != nil {
		if !timer.Transient(err) {
			e.unsure = true
		}
		return true
	}
	switch r.Code {
	case timer.OK, timer.Prevented:
		u.count(&u.Changed)
	case timer.InFlight, timer.CancelInFlight, timer.InUse, timer.TooMany:
		u.skip(e, r.Code)
	case timer.Skipped: // a dead letter: the command without an answer may have changed it
		if e.unsure {
			u.count(&u.Changed)
		} else {
			u.skip(e, r.Code)
		}
	case timer.VersionMismatch:
		return u.reread(e, r.Timer)
	default: // it has ended or is gone: the query no longer selects it
		if e.unsure && r.Code == timer.NotFound {
			u.count(&u.Changed)
		}
	}
	return false
}

// reread decides again about a timer that has changed, or about the one that its id names now. Where
// the answer has no timer, the next one has: a read by the id may find another timer of the id.
func (u *Update) reread(e *Task, t *timer.Timer) (again bool) {
	if t != nil && e.unsure && e.Command.Kind == timer.Modify {
		// The command without an answer may have made this change. A shift must not happen twice.
		if t.Version == e.mark.Version+1 && t.DueMs == e.Command.Patch.Spec.DueMs {
			u.count(&u.Changed)
		} else {
			u.skip(e, timer.InFlight)
		}
		return false
	}
	if t != nil && !selects(&u.Query, t) {
		if e.unsure && t.Seq != e.mark.Seq { // the command without an answer may have ended it
			u.count(&u.Changed)
		}
		return false
	}
	if e.tries++; e.tries == taskTries {
		u.skip(e, timer.InFlight)
		return false
	}
	if e.whole = true; t == nil {
		return true
	}
	e.mark = timer.Ref{ID: e.mark.ID, Seq: t.Seq, Origin: t.Origin, Tag: t.Tag, Version: t.Version, Leased: t.State == timer.Leased, DueMs: t.DueMs, NextMs: t.NextMs, Paused: t.Paused}
	return u.judge(e)
}

// selects reports whether the query selects a timer that has changed.
func selects(q *timer.Query, t *timer.Timer) bool {
	for _, label := range q.Labels {
		if !slices.Contains(t.Labels, label) {
			return false
		}
	}
	return q.States&(1<<t.State) != 0 && t.DueMs >= q.FromMs && (q.ToMs == 0 || t.DueMs < q.ToMs) && strings.HasPrefix(t.ID, q.IDPrefix)
}
