package web

import (
	"errors"

	"carillon/timer"
)

// OutcomeTopic finds a topic that a timer or a policy names for outcomes: one that is there, is not
// serial, and that the token may add to.
func (rq *Request) OutcomeTopic(field, name string) (*timer.Topic, *Problem) {
	if !rq.Who.May(ScopeAdd) || !rq.Who.Sees(name) {
		return nil, unknownOutcomeTopic(field, name, "there is no such topic that this token may add to")
	}
	t, err := rq.Core.Topics.Named(rq.Base, name)
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return nil, unknownOutcomeTopic(field, name, "there is no such topic; make it first")
	case err != nil:
		return nil, Fault(err)
	case !t.TakesOutcomes():
		return nil, unknownOutcomeTopic(field, name, "the topic is serial, or it is being deleted")
	}
	return t, nil
}

func unknownOutcomeTopic(field, name, why string) *Problem {
	return Failf(422, UnknownOutcomeTopic, "%s: %s: %s", field, name, why)
}
