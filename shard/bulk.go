package shard

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
)

// Bulk is one change to all timers that a query selects: what is decided of each, for who walks the shards (see Walk) and has the
// commands done. It waits for nothing and asks nobody.
//
// Each command is for the version that was seen. A timer that changed in between is read and judged anew. A command that may or may
// not have been done is settled by reading, too, so that none is done twice.
type Bulk struct {
	Query Query
	Plan  Plan

	Matched, Changed, Skipped atomic.Int64 // timers so far; shards may be under way at once
}

// Plan says what to do with a timer: with Change, the command for just the version that was seen.
type Plan func(m *Mark) (*Command, Ruling)

// Ruling is what is to be done with one timer of a bulk change.
type Ruling uint8

// Skip counts the timer as one that cannot be changed now, Leave as one that is as it should be.
const (
	Change Ruling = iota
	Leave
	Skip
)

// Errand is one timer of a bulk change until it is settled.
type Errand struct {
	Command *Command

	mark  Mark
	tries int
	// unsure: a command was sent and there was no answer. It may be done, or may be yet.
	unsure bool
}

// errandTries is for one timer that keeps changing.
const errandTries = 8

// Turn is what comes next of an errand.
type Turn uint8

// Again: the command is to be sent once more. Reread: the timer is not as it was seen, see Bulk.Reread.
const (
	Settled Turn = iota
	Again
	Reread
)

// ID names the timer.
func (e *Errand) ID() string { return e.mark.ID }

// Begin judges a timer that a walk has met; nil: there is nothing to be done, and it is counted.
func (b *Bulk) Begin(m Mark) *Errand {
	e := &Errand{mark: m}
	if !b.judge(e) {
		return nil
	}
	return e
}

// judge finds the command for a timer as it was seen; false when there is none, and the timer is counted.
func (b *Bulk) judge(e *Errand) bool {
	var v Ruling
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

func (b *Bulk) count(n *atomic.Int64) {
	b.Matched.Add(1)
	n.Add(1)
}

// Take looks at what became of a command.
func (b *Bulk) Take(e *Errand, r *Result, err error) Turn {
	if err != nil {
		if !Transient(err) {
			e.unsure = true
		}
		return Again
	}
	switch r.Code {
	case OK, Prevented:
		b.count(&b.Changed)
	case InFlight, CancelInFlight:
		b.count(&b.Skipped)
	case Skipped: // of a dead letter: the command that had no answer may have done it
		if e.unsure {
			b.count(&b.Changed)
		} else {
			b.count(&b.Skipped)
		}
	case VersionMismatch:
		return Reread
	default: // it has ended meanwhile, or gone: it is not selected any more
		if e.unsure && r.Code == NotFound {
			b.count(&b.Changed)
		}
	}
	return Settled
}

// Reread judges a timer anew that was not as it was seen; nil: it is gone.
func (b *Bulk) Reread(e *Errand, t *Timer) Turn {
	if t != nil && e.unsure && e.Command.Kind == Modify {
		// The command that had no answer may be what changed it. A shift is not to be done twice.
		if t.Version == e.mark.Version+1 && t.DueMs == e.Command.Patch.Spec.DueMs {
			b.count(&b.Changed)
		} else {
			b.count(&b.Skipped)
		}
		return Settled
	}
	if t == nil || !b.Query.selected(t) {
		return Settled
	}
	if e.tries++; e.tries == errandTries {
		b.count(&b.Skipped)
		return Settled
	}
	e.mark = Mark{ID: e.mark.ID, Version: t.Version, Leased: t.State == Leased, DueMs: t.DueMs, NextMs: t.NextMs}
	if !b.judge(e) {
		return Settled
	}
	return Again
}

// selected says of a timer that was read by its id whether the query selects it.
func (q *Query) selected(t *Timer) bool {
	for _, label := range q.Labels {
		if !slices.Contains(t.Labels, label) {
			return false
		}
	}
	return q.States&(1<<t.State) != 0 && t.DueMs >= q.FromMs && (q.ToMs == 0 || t.DueMs < q.ToMs) && strings.HasPrefix(t.ID, q.IDPrefix)
}

// Transient says of an error that nothing was done, and that trying again may help.
func Transient(err error) bool {
	for _, known := range []error{ErrNoLeader, ErrOverloaded, ErrRecovering, ErrMemory, ErrLowDisk} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// CancelEach cancels what was seen, and no other version of it.
func CancelEach(topic TopicID) Plan {
	return func(m *Mark) (*Command, Ruling) {
		return &Command{Kind: Cancel, Topic: topic, ID: m.ID, IfMatch: m.Version}, Change
	}
}

// Move is where a reschedule takes a timer.
type Move struct {
	By MoveBy
	Ms int64 // by how much, or the time
}

// MoveBy is how a Move is meant.
type MoveBy uint8

// The ways of API.md section 2.
const (
	NoMove MoveBy = iota
	MoveShift
	MoveAt
	MoveNotBefore
)

// Each moves a timer from when its next attempt is: for one that has failed before, the postponement comes on top of its backoff.
// None is moved beyond latestMs by a shift.
func (v Move) Each(topic TopicID, latestMs int64) Plan {
	return func(m *Mark) (*Command, Ruling) {
		if m.Leased {
			return nil, Skip
		}
		to := v.Ms
		switch v.By {
		case MoveShift:
			if to = clampMs(m.NextMs + v.Ms); to > latestMs {
				return nil, Skip
			}
		case MoveNotBefore:
			if m.NextMs >= to {
				return nil, Leave
			}
		default:
			if m.NextMs == to && m.DueMs == to {
				return nil, Leave // also what makes repeating cheap
			}
		}
		patch := &Patch{Due: true, Spec: Spec{DueMs: to}}
		return &Command{Kind: Modify, Topic: topic, ID: m.ID, IfMatch: m.Version, Patch: patch}, Change
	}
}
