package api

import (
	"encoding/binary"
	"strings"

	"carillon/timer"

	"github.com/cespare/xxhash/v2"
)

// overStates are the states that a history has.
const overStates = 1<<timer.Done | 1<<timer.Dead | 1<<timer.Cancelled

// listHistory answers with a topic's ended timers, by their end.
func (rq *request) listHistory() *problem {
	q := &timer.HistoryQuery{States: overStates}
	if id, given := rq.query.value("id"); given {
		if !validID(id) {
			return bad(badName, "query: "+idRule)
		}
		q.ID = id
	}
	var window timer.Query
	if p := rq.window(&window, "from", "to"); p != nil {
		return p
	}
	q.FromMs, q.ToMs = window.FromMs, window.ToMs
	if list, given := rq.query.value("state"); given {
		q.States = 0
		for name := range strings.SplitSeq(list, ",") {
			state := stateOf(name)
			if 1<<state&overStates == 0 {
				return bad(badRequest, "query: state must be a comma list of done, dead, cancelled")
			}
			q.States |= 1 << state
		}
	}
	limit, p := rq.query.limit()
	if p != nil {
		return p
	}
	topic, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	if full, keyed := topic.Policy.FullID(q.ID); keyed && q.ID != "" {
		e, err := rq.recallExactly(topic, full)
		if err != nil {
			return engineFault(err)
		}
		if e != nil {
			q.ID = full
		}
	}
	q.Topic, q.Limit = topic.ID, limit
	listing := historySum(q)
	if c, given := rq.query.value("cursor"); given {
		var ok bool
		if q.After, ok = parseHistoryCursor(c, listing); !ok {
			return bad(badRequest, "query: cursor is not one of this listing")
		}
	}
	if rq.confine(q, topic) {
		rq.json(200, append(rq.out(), `{"entries":[]}`...))
		return nil
	}
	list, more, err := rq.core.Timers.History(rq.s.base, q)
	if err != nil {
		return engineFault(err)
	}
	rq.answerHistory(topic, list, more, listing)
	return nil
}

// confine limits a query to the time that the topic keeps, and to the shard that a timer has. none
// says that there can be nothing.
func (rq *request) confine(q *timer.HistoryQuery, topic *timer.Topic) (none bool) {
	q.FromMs = max(q.FromMs, rq.s.nowMs()-topic.Policy.HistoryMs)
	if q.ID != "" {
		q.Shards = []timer.ShardID{timer.ShardOf(topic, q.ID, rq.s.cfg.Engine.Shards())}
	}
	return topic.Policy.HistoryMs == 0 || q.ToMs != 0 && q.ToMs <= q.FromMs
}

func (rq *request) answerHistory(topic *timer.Topic, list []*timer.HistoryEntry, more bool, listing uint64) {
	o := object{b: rq.out()}
	o.name("entries")
	entries := array{b: o.b}
	w := rq.timerWriter(topic)
	var last timer.HistoryKey
	for i, e := range list {
		if i > 0 && len(entries.b) > rq.s.cfg.Limits.ResponseBytes {
			more = true
			break
		}
		entries.next()
		entries.b = w.appendEntry(entries.b, e)
		last = e.Key
	}
	o.b = entries.end()
	if more && len(list) > 0 {
		o.str("next_cursor", historyCursor(last, listing))
	}
	rq.json(200, o.end())
}

// appendEntry writes a timer that has ended, when it did, and its attempts.
func (w *timerWriter) appendEntry(b []byte, e *timer.HistoryEntry) []byte {
	b = w.append(b, e.Timer)
	b = appendTime(b[:len(b)-1], "ended", e.Timer.EndedMs)
	return appendAttemptLog(append(b, '}'), e.Timer, e.Attempts)
}

// recall finds a timer that has ended and is in the shard's memory no more; nil when the history
// has none of that id, with the topic's own key or without.
func (rq *request) recall(topic *timer.Topic, id string) (*timer.HistoryEntry, error) {
	if full, keyed := topic.Policy.FullID(id); keyed {
		if e, err := rq.recallExactly(topic, full); err != nil || e != nil {
			return e, err
		}
	}
	return rq.recallExactly(topic, id)
}

func (rq *request) recallExactly(topic *timer.Topic, id string) (*timer.HistoryEntry, error) {
	q := &timer.HistoryQuery{Topic: topic.ID, ID: id, States: overStates, Newest: true, Limit: 1}
	if rq.confine(q, topic) {
		return nil, nil
	}
	list, _, err := rq.core.Timers.History(rq.s.base, q)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// lateRules are the values of if_late.
var lateRules = []string{"fire", "reject"}

// absolute says that the time was given as an instant.
func (in *timerRequest) absolute() bool { return in.given&timeFields != 0 && !in.when.delay }

// pastMs is how long an instant must be over for an add of it to count as one that may be repeated.
// Adds for this very moment, which are a little late when they arrive, are spared the search: an
// add that they may repeat has ended within the time for which the shard remembers it.
const pastMs = 2000

// maybeMade says of an add that its instant is past, so that it may be a repeated one whose timer
// the shard has forgotten.
func (rq *request) maybeMade(in *timerRequest, topic *timer.Topic, v verb) bool {
	return v == vAdd && topic.ID != 0 && in.absolute() && rq.s.nowMs()-in.when.ms > pastMs && (!in.unnamed || topic.Policy.ByContent)
}

// madeBefore finds the outcome of an add that maybeMade has, if it was made before: a client that
// had no answer may repeat it at any time. It is nil where the shard still remembers the timer,
// since the shard's answer is in order with all changes, where it cannot be found, or where it was
// cancelled: then the add makes a new one, unless the request has an Idempotency-Key.
func (rq *request) madeBefore(in *timerRequest, topic *timer.Topic) (*timer.Timer, error) {
	t, err := rq.core.Timers.Timer(rq.s.base, in.shard(rq, topic), topic.ID, in.id)
	if err != nil || t != nil && !t.State.Over() {
		return nil, err
	}
	q := &timer.HistoryQuery{Topic: topic.ID, ID: in.id, Content: in.cmd.Content, States: overStates, Newest: true, Limit: 1, Sure: true}
	if rq.confine(q, topic) {
		return nil, nil
	}
	list, _, err := rq.core.Timers.History(rq.s.base, q)
	if err != nil || len(list) == 0 || list[0].Timer.State == timer.Cancelled && !in.repeated {
		return nil, err
	}
	return list[0].Timer, nil
}

// tooLate turns "there is no such timer" into the end that the history knows: a change that came
// after the end is 410, not 404.
func (rq *request) tooLate(topic *timer.Topic, id string, v verb) (timer.Code, error) {
	e, err := rq.recall(topic, id)
	switch {
	case err != nil || e == nil:
		return timer.NotFound, err
	case e.Timer.State == timer.Done:
		return timer.OverFired, nil
	case e.Timer.State == timer.Dead:
		return timer.OverDead, nil
	case v == vCancel:
		return timer.Prevented, nil
	}
	return timer.OverCancelled, nil
}

// historySum stands for the selection of a listing of history, as listingSum does for timers.
func historySum(q *timer.HistoryQuery) uint64 {
	b := make([]byte, 0, 160)
	b = binary.AppendUvarint(b, uint64(q.Topic))
	b = append(b, q.States)
	b = binary.AppendVarint(b, q.FromMs)
	b = binary.AppendVarint(b, q.ToMs)
	return xxhash.Sum64(append(append(b, "history:"...), q.ID...))
}

func historyCursor(k timer.HistoryKey, listing uint64) string {
	b := append(make([]byte, 0, 64), cursorHistory)
	b = binary.AppendVarint(b, k.EndMs)
	for _, n := range [...]uint64{k.Index, uint64(k.Shard), uint64(k.Item)} {
		b = binary.AppendUvarint(b, n)
	}
	return sealCursor(b, listing)
}

func parseHistoryCursor(s string, listing uint64) (*timer.HistoryKey, bool) {
	b, ok := openCursor(s, cursorHistory, listing)
	if !ok {
		return nil, false
	}
	end, n := binary.Varint(b)
	if n <= 0 {
		return nil, false
	}
	b = b[n:]
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], n = binary.Uvarint(b); n <= 0 {
			return nil, false
		}
		b = b[n:]
	}
	k := &timer.HistoryKey{EndMs: end, Index: numbers[0], Shard: timer.ShardID(numbers[1]), Item: uint32(numbers[2])}
	return k, len(b) == 0 && numbers[1] < 1<<32 && numbers[2] < 1<<32
}
