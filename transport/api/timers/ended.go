package timers

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// recall finds in the history the last ended timer of an id; found is the one in the shard's
// memory. nil: the history has none, or none that ended after found. Memory keeps a dead letter for
// longer than a timer of its id that ended after it.
func recall(rq *web.Request, topic *timer.Topic, id string, found *timer.Timer) (*timer.HistoryEntry, error) {
	if found == nil {
		return lastOf(rq, topic, id)
	}
	if found.State != timer.Dead || rq.NowMs()-found.EndedMs <= timer.KeptMs {
		return nil, nil
	}
	e, err := lastOf(rq, topic, id)
	if err != nil || e == nil || e.Timer.EndedMs <= found.EndedMs {
		return nil, nil
	}
	return e, nil
}

// lastOf finds the last end of an id in the history, with the topic's own key or without; nil:
// there is none.
func lastOf(rq *web.Request, topic *timer.Topic, id string) (*timer.HistoryEntry, error) {
	if full, keyed := topic.Policy.FullID(id); keyed {
		if e, err := lastEnded(rq, topic, full); err != nil || e != nil {
			return e, err
		}
	}
	return lastEnded(rq, topic, id)
}

func lastEnded(rq *web.Request, topic *timer.Topic, id string) (*timer.HistoryEntry, error) {
	q := &timer.HistoryQuery{Topic: topic.ID, ID: id, States: overStates, Newest: true, Limit: 1}
	if confine(rq, q, topic) {
		return nil, nil
	}
	list, _, err := rq.Core.Timers.History(rq.Base, q)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// mayHaveEnded reports whether the history may know an end that memory has forgotten.
func mayHaveEnded(code timer.Code) bool { return code == timer.NotFound || code == timer.OverDead }

// endedLongAgo turns "there is no such timer", and the end that memory knows, into the end that a
// read shows: a change that came after the end is 410, not 404.
func (tr *timerRequest) endedLongAgo(rq *web.Request, topic *timer.Topic, res *timer.Result, v verb) error {
	if !mayHaveEnded(res.Code) {
		return nil
	}
	var found *timer.Timer
	if res.Code == timer.OverDead {
		var err error
		found, err = rq.Core.Timers.Timer(rq.Base, tr.shard(rq, topic), topic.ID, tr.id)
		if err != nil || found == nil {
			return nil
		}
	}
	e, err := recall(rq, topic, tr.plain, found)
	if err != nil || e == nil {
		return err
	}
	switch {
	case e.Timer.State == timer.Done:
		res.Code = timer.OverFired
	case e.Timer.State == timer.Dead:
		res.Code = timer.OverDead
	case v == vCancel:
		res.Code, res.Unchanged = timer.Prevented, true
	default:
		res.Code = timer.OverCancelled
	}
	return nil
}
