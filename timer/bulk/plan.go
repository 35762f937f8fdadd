package bulk

import (
	"carillon/timer"
)

// Plan decides how a bulk change treats one timer. With Change it returns the command, which
// applies only to the version in m.
type Plan func(m *timer.Ref) (*timer.Command, Decision)

// Decision is the kind of a Plan's result.
type Decision uint8

// Change sends the command. Leave counts the timer as already being as requested, Skip as one that
// cannot be changed now, NoURL as one that has no callback URL and needs one. Pass counts nothing:
// the timer is not meant.
const (
	Change Decision = iota
	Leave
	Skip
	NoURL
	Pass
)

// CancelEach cancels each timer in the version that the walk has met. Each occurrence of a series
// is answered for by itself.
func CancelEach(topic timer.TopicID) Plan {
	return func(m *timer.Ref) (*timer.Command, Decision) {
		return &timer.Command{Kind: timer.Cancel, Topic: topic, ID: m.ID, Seq: m.Seq, IfMatch: m.Version}, Change
	}
}

// PauseEach pauses each scheduled timer, and ResumeEach resumes it.
func PauseEach(topic timer.TopicID) Plan  { return holdEach(topic, true) }
func ResumeEach(topic timer.TopicID) Plan { return holdEach(topic, false) }

func holdEach(topic timer.TopicID, on bool) Plan {
	kind := timer.Resume
	if on {
		kind = timer.Pause
	}
	return func(m *timer.Ref) (*timer.Command, Decision) {
		switch {
		case m.Leased:
			return nil, Skip
		case m.Paused == on:
			return nil, Leave
		}
		return &timer.Command{Kind: kind, Topic: topic, ID: m.ID, Seq: m.Seq, IfMatch: m.Version}, Change
	}
}

// Move is the new due time of a reschedule.
type Move struct {
	By MoveBy
	Ms int64 // milliseconds to shift by, or the new time in Unix ms
}

// MoveBy is the meaning of Move.Ms.
type MoveBy uint8

// The kinds of move (API.md section 2).
const (
	NoMove MoveBy = iota
	MoveShift
	MoveAt
	MoveNotBefore
)

// Each moves the due time of a timer. A shift and a not-before give up an attempt that was asked
// for by hand, unless the new time has passed, and keep a retry that is later than the new time.
// No shift moves a timer beyond latestMs, and no not-before makes one due earlier.
func (mv Move) Each(topic timer.TopicID, latestMs int64) Plan {
	return func(m *timer.Ref) (*timer.Command, Decision) {
		if m.Leased {
			return nil, Skip
		}
		to := mv.Ms
		switch mv.By {
		case MoveShift:
			if to = timer.ClampMs(m.DueMs + mv.Ms); to > latestMs {
				return nil, Skip
			}
		case MoveNotBefore:
			if m.NextMs >= to {
				return nil, Leave
			}
			to = max(to, m.DueMs)
		default:
			if m.NextMs == to && m.DueMs == to {
				return nil, Leave // this also makes repeating the change cheap
			}
		}
		patch := &timer.Patch{Due: true, Spec: timer.Spec{DueMs: to}}
		return &timer.Command{Kind: timer.Modify, Topic: topic, ID: m.ID, Seq: m.Seq, IfMatch: m.Version, Patch: patch, Shift: mv.By != MoveAt}, Change
	}
}
