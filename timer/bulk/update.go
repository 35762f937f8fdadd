// Package bulk decides one change for each of the timers that a query selects, and counts what became of them. Its caller
// walks the shards and has the commands done.
package bulk

import (
	"slices"
	"strings"
	"sync/atomic"

	"carillon/timer"
)

// Bulk is one change to all timers that a query selects: what is decided of each, for who walks the shards (see Walk) and has the
// commands done. It waits for nothing and asks nobody.
//
// Each command is for the version that was seen. A timer that changed in between is read and judged anew. A command that may or may
// not have been done is settled by reading, too, so that none is done twice.
type Update struct {
	Query timer.Query
	Plan  Plan

	Matched, Changed, Skipped atomic.Int64 // timers so far; shards may be under way at once
}

// Errand is one timer of a bulk change until it is settled.
type Task struct {
	Command *timer.Command

	mark  timer.Ref
	tries int
	// unsure: a command was sent and there was no answer. It may be done, or may be yet.
	unsure bool
}

// errandTries is for one timer that keeps changing.
const taskTries = 8

// Turn is what comes next of an errand.
type Next uint8

// Again: the command is to be sent once more. Reread: the timer is not as it was seen, see Bulk.Reread.
const (
	Settled Next = iota
	Again
	Reread
)

// ID names the timer.
func (e *Task) ID() string { return e.mark.ID }

// Begin judges a timer that a walk has met; nil: there is nothing to be done, and it is counted.
func (b *Update) Begin(m timer.Ref) *Task {
	e := &Task{mark: m}
	if !b.judge(e) {
		return nil
	}
	return e
}

// judge finds the command for a timer as it was seen; false when there is none, and the timer is counted.
func (b *Update) judge(e *Task) bool {
	var v Decision
	switch e.Command, v = b.Plan(&e.mark); v {
	case Leave:
		b.Matched.Add(1)
		return false
	case Skip:
		b.count(&b.Skipped)
		return false
	}
	return true
}

func (b *Update) count(n *atomic.Int64) {
	b.Matched.Add(1)
	n.Add(1)
}

// Take looks at what became of a command.
func (b *Update) Take(e *Task, r *timer.Result, err error) Next {
	if err != nil {
		if !timer.Transient(err) {
			e.unsure = true
		}
		return Again
	}
	switch r.Code {
	case timer.OK, timer.Prevented:
		b.count(&b.Changed)
	case timer.InFlight, timer.CancelInFlight:
		b.count(&b.Skipped)
	case timer.Skipped: // of a dead letter: the command that had no answer may have done it
		if e.unsure {
			b.count(&b.Changed)
		} else {
			b.count(&b.Skipped)
		}
	case timer.VersionMismatch:
		return Reread
	default: // it has ended meanwhile, or gone: it is not selected any more
		if e.unsure && r.Code == timer.NotFound {
			b.count(&b.Changed)
		}
	}
	return Settled
}

// Reread judges a timer anew that was not as it was seen; nil: it is gone.
func (b *Update) Reread(e *Task, t *timer.Timer) Next {
	if t != nil && e.unsure && e.Command.Kind == timer.Modify {
		// The command that had no answer may be what changed it. A shift is not to be done twice.
		if t.Version == e.mark.Version+1 && t.DueMs == e.Command.Patch.Spec.DueMs {
			b.count(&b.Changed)
		} else {
			b.count(&b.Skipped)
		}
		return Settled
	}
	if t == nil || !selects(&b.Query, t) {
		return Settled
	}
	if e.tries++; e.tries == taskTries {
		b.count(&b.Skipped)
		return Settled
	}
	e.mark = timer.Ref{ID: e.mark.ID, Version: t.Version, Leased: t.State == timer.Leased, DueMs: t.DueMs, NextMs: t.NextMs}
	if !b.judge(e) {
		return Settled
	}
	return Again
}

// selects says of a timer that was read by its id whether the query selects it.
func selects(q *timer.Query, t *timer.Timer) bool {
	for _, label := range q.Labels {
		if !slices.Contains(t.Labels, label) {
			return false
		}
	}
	return q.States&(1<<t.State) != 0 && t.DueMs >= q.FromMs && (q.ToMs == 0 || t.DueMs < q.ToMs) && strings.HasPrefix(t.ID, q.IDPrefix)
}
