package api

import (
	"strconv"

	"carillon/timer"
	"carillon/timer/recurrence"
)

// shownTimes is how many due times of a series a dry run shows.
const shownTimes = 5

// maxNext is how many of them a read shows at most.
const maxNext = 100

// preview says what a command would do, by its timer as it stands.
func (rq *request) preview(id timer.ShardID, cmd *timer.Command) (timer.Result, error) {
	var cur *timer.Timer
	if cmd.Topic != 0 {
		var err error
		cur, err = rq.core.Timers.Timer(rq.s.base, id, cmd.Topic, cmd.ID)
		rq.nameLeader(id)
		if err != nil {
			return timer.Result{}, err
		}
	}
	return timer.Preview(cmd, cur, rq.s.nowMs()), nil
}

// topicToBe is the request's topic, or the one that would be made for it: that has no number.
func (rq *request) topicToBe() (*timer.Topic, *problem) {
	t, p := rq.lateTopic(nil)
	switch {
	case t != nil || p != nil:
		return t, p
	case rq.who != nil && !rq.who.may(scopeTopics):
		return nil, rq.mayNotMake()
	}
	return rq.newTopic(), nil
}

// newTopic is the topic that an add would make, without a number.
func (rq *request) newTopic() *timer.Topic {
	return &timer.Topic{Name: rq.topic, Policy: timer.DefaultPolicy(), AutoCreated: true}
}

// answerPreview answers with a timer as it would be. It has no uid, and an id only if it is known.
func (rq *request) answerPreview(in *timerRequest, topic *timer.Topic, res *timer.Result) {
	w := rq.timerWriter(topic)
	w.preview, w.merged = true, res.Code == timer.Merged
	w.unnamed = in.unnamed && !topic.Policy.ByContent
	rq.json(200, rq.appendNext(w.append(rq.out(), res.Timer), res.Timer, shownTimes))
}

// next reads how many times of a series a read is to show; 0: none.
func (q query) next() (int, *problem) {
	v, given := q.value("next")
	if !given {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxNext || strconv.Itoa(n) != v {
		return 0, badf(badRequest, "query: next must be 1 to %d", maxNext)
	}
	return n, nil
}

// appendNext adds to the object of a timer that is a series its next due times.
func (rq *request) appendNext(b []byte, t *timer.Timer, n int) []byte {
	if n == 0 || t.Repeat == nil {
		return b
	}
	var calendar recurrence.Calendar
	times := calendar.Coming(t, rq.s.nowMs(), n)
	b = append(b[:len(b)-1], `,"next":`...)
	list := array{b: b}
	for _, ms := range times {
		list.next()
		list.b = append(appendInstant(append(list.b, '"'), ms), '"')
	}
	list = array{b: append(list.end(), `,"next_ms":`...)}
	for _, ms := range times {
		list.next()
		list.b = strconv.AppendInt(list.b, ms, 10)
	}
	return append(list.end(), '}')
}
