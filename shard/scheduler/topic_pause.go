package scheduler

import "carillon/timer"

// Due timers of a paused topic leave the wheel like others, and wait in the topic's queues in their
// order. None is leased (proposer.choose, pulledTopics.mayPull), and a lease whose call has not
// started is returned (activeLeases.mayCall). Once the topic is resumed they go as its limits
// allow, but for occurrences of series that skip what they missed.

// followPause takes over that a topic was paused or resumed, while its policy is the same.
func (ct *changedTopics) followPause(q *topicQueue) {
	if !q.topic.Paused {
		ct.topics.join(q)
		return
	}
	ct.topics.returnSpares(q) // others may use its slots
	ct.topics.returnCredits(q)
}

// resumed reports that a topic was paused, and is not any more.
func resumed(from, to *timer.Topic) bool {
	return from != nil && from.Paused && to != nil && !to.Paused
}

// missedInPause has an occurrence skipped that was due while its topic was paused, if its series
// asks for it, and reports whether it did.
func (st *seriesTimes) missedInPause(q *topicQueue, e entry) bool {
	missed := q.resumedMs-e.dueMs > missedAfterMs && st.missed(e, false)
	if missed {
		st.skip(e)
	}
	return missed
}
