package web

import (
	"errors"

	"carillon/internal/secret"
	"carillon/timer"
)

func noTopic() *Problem { return Fail(404, UnknownTopic, "there is no such topic") }

// Fault is the problem that an engine's error is to the client.
func Fault(err error) *Problem {
	if leased, ok := errors.AsType[timer.LeasedError](err); ok {
		are := "are"
		if leased.Leased == 1 {
			are = "is"
		}
		return Failf(409, "in_flight", "delivery: cannot change while timers are leased, and %d %s; pause the topic and wait for them to end", leased.Leased, are)
	}
	const deletesNamed = "%s; ?force=true deletes it nevertheless, and their outcomes are not made"
	if used, ok := errors.AsType[timer.InUseError](err); ok {
		if used.Naming > 0 {
			return Failf(409, "in_use", deletesNamed, used.Error())
		}
		return Failf(409, "in_use", "%s; nothing was changed. PATCH changes the given fields only; ?force=true does it nevertheless", used.Error())
	}
	if _, failed := errors.AsType[timer.SnapshotError](err); failed {
		return Fail(503, Unavailable, err.Error())
	}
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return noTopic()
	case errors.Is(err, timer.ErrNotEmpty):
		return Fail(409, "not_empty", "the topic has timers or dead letters; ?force=true cancels and drops them")
	case errors.Is(err, timer.ErrNamed):
		return Failf(409, "in_use", deletesNamed, err)
	case errors.Is(err, timer.ErrOutcomeTopic):
		return Fail(422, UnknownOutcomeTopic, timer.ErrOutcomeTopic.Error())
	case errors.Is(err, timer.ErrNamedSerial):
		return Fail(422, UnknownOutcomeTopic, timer.ErrNamedSerial.Error())
	case errors.Is(err, timer.ErrTopicVersion):
		return Fail(412, "version_mismatch", "the topic has changed or is gone: it is not at that version; read it again")
	case errors.Is(err, timer.ErrTooManyTopics):
		return Fail(429, "quota", err.Error())
	case errors.Is(err, timer.ErrFeatureLevel):
		return Fail(409, "feature_level", err.Error())
	case errors.Is(err, timer.ErrNoLeader):
		// The new leader is a matter between nodes.
		return Fail(503, "no_leader", timer.ErrNoLeader.Error())
	case errors.Is(err, timer.ErrOverloaded), errors.Is(err, timer.ErrMemory):
		return Fail(503, "overloaded", err.Error())
	case errors.Is(err, timer.ErrLowDisk):
		goesOn := "; cancels and reads go on"
		if low, _ := errors.AsType[timer.LowDiskError](err); low.Lack != "" {
			goesOn = "; reads go on"
		}
		p := Fail(503, "low_disk", err.Error()+goesOn)
		p.RetryAfter = lowDiskRetry
		return p
	case errors.Is(err, timer.ErrUnknown), errors.Is(err, timer.ErrRecovering), errors.Is(err, timer.ErrHistory):
		return Fail(503, Unavailable, err.Error())
	case errors.Is(err, secret.ErrNoKeys):
		return Fail(503, Unavailable, err.Error())
	case errors.Is(err, timer.ErrStopped):
		return Fail(503, Unavailable, "the node is stopping; the change may or may not have taken effect")
	}
	p := Fail(503, Unavailable, "no answer from the shard; the change may or may not have taken effect")
	p.Cause = err
	return p
}
