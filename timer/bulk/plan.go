package bulk

import (
	"carillon/timer"
)

// Plan says what to do with a timer: with Change, the command for just the version that was seen.
type Plan func(m *timer.Ref) (*timer.Command, Decision)

// Ruling is what is to be done with one timer of a bulk change.
type Decision uint8

// Skip counts the timer as one that cannot be changed now, Leave as one that is as it should be.
const (
	Change Decision = iota
	Leave
	Skip
)

// CancelEach cancels what was seen, and no other version of it.
func CancelEach(topic timer.TopicID) Plan {
	return func(m *timer.Ref) (*timer.Command, Decision) {
		return &timer.Command{Kind: timer.Cancel, Topic: topic, ID: m.ID, IfMatch: m.Version}, Change
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
func (v Move) Each(topic timer.TopicID, latestMs int64) Plan {
	return func(m *timer.Ref) (*timer.Command, Decision) {
		if m.Leased {
			return nil, Skip
		}
		to := v.Ms
		switch v.By {
		case MoveShift:
			if to = timer.ClampMs(m.NextMs + v.Ms); to > latestMs {
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
		patch := &timer.Patch{Due: true, Spec: timer.Spec{DueMs: to}}
		return &timer.Command{Kind: timer.Modify, Topic: topic, ID: m.ID, IfMatch: m.Version, Patch: patch}, Change
	}
}
