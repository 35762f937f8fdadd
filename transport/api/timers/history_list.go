package timers

import (
	"encoding/binary"
	"math"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"

	"github.com/cespare/xxhash/v2"
)

// overStates are the states that a history has.
const overStates = 1<<timer.Done | 1<<timer.Dead | 1<<timer.Cancelled

// History answers with a topic's ended timers, by their end.
func History(rq *web.Request) *web.Problem {
	q := &timer.HistoryQuery{}
	if id, given := rq.Query.Value("id"); given {
		if !web.ValidID(id) {
			rq.Query.Reject(web.BadName, "query: "+IDRule)
		}
		q.ID = id
	}
	q.FromMs, q.ToMs = rq.Query.Window("from", "to")
	q.States, q.Limit = rq.Query.States(timer.Done, overStates), rq.Query.Limit()
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	if full, keyed := topic.Policy.FullID(q.ID); keyed && q.ID != "" {
		e, err := lastEnded(rq, topic, full)
		if err != nil {
			return web.Fault(err)
		}
		if e != nil {
			q.ID = full
		}
	}
	q.Topic = topic.ID
	listing := historySum(q)
	rq.Query.Cursor(func(c string) (ok bool) {
		q.After, ok = parseHistoryCursor(c, listing)
		return ok
	})
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	if confine(rq, q, topic) {
		return rq.JSON(200, append(rq.Out(), `{"entries":[]}`...))
	}
	list, more, err := rq.Core.Timers.History(rq.Base, q)
	if err != nil {
		return web.Fault(err)
	}
	return answerHistory(rq, topic, list, more, listing)
}

// confine limits a query to the time that the topic keeps, and to the shard that a timer has. none
// reports that there can be nothing.
func confine(rq *web.Request, q *timer.HistoryQuery, topic *timer.Topic) (none bool) {
	q.FromMs = max(q.FromMs, rq.NowMs()-topic.Policy.HistoryMs)
	if q.ID != "" {
		q.Shards = []timer.ShardID{timer.ShardOf(topic, q.ID, rq.Engine.Shards())}
	}
	return topic.Policy.HistoryMs == 0 || q.ToMs != 0 && q.ToMs <= q.FromMs
}

func answerHistory(rq *web.Request, topic *timer.Topic, list []*timer.HistoryEntry, more bool, listing uint64) *web.Problem {
	o := web.Object{B: rq.Out()}
	w := NewWriter(topic)
	n := o.Page("entries", len(list), rq.Limits.ResponseBytes, func(b []byte, i int) []byte { return w.appendEntry(b, list[i]) })
	if n < len(list) || more && n > 0 {
		o.Text("next_cursor", historyCursor(list[n-1].Key, listing))
	}
	return rq.JSON(200, o.End())
}

// appendEntry writes a timer that has ended, and its attempts.
func (w *Writer) appendEntry(b []byte, e *timer.HistoryEntry) []byte {
	return appendAttemptLog(w.Append(b, e.Timer), e.Timer, e.Attempts)
}

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

// absolute reports whether the time was given as an instant.
func (tr *timerRequest) absolute() bool { return tr.given&spec.TimeFields != 0 && !tr.when.Delay }

// lateMs is how far past a change is due that was given an instant: more than a minute, which may
// be a mistake of the client's. 0: it is not late, or the change has not taken the instant.
func (tr *timerRequest) lateMs(r *timer.Result, nowMs int64) int64 {
	late := nowMs - tr.spec.DueMs
	ignored := r.Code == timer.Merged && (tr.cmd.Merge == timer.MergeKeep || tr.cmd.Merge == timer.MergeCollect && tr.cmd.MaxWaitMs == 0)
	if late <= timer.LateMs || !tr.absolute() || r.Code == timer.Same || ignored {
		return 0
	}
	return late
}

// tooLate turns "there is no such timer", and the end that memory knows, into the end that a read
// shows: a change that came after the end is 410, not 404.
func (tr *timerRequest) tooLate(rq *web.Request, topic *timer.Topic, code timer.Code, v verb) (timer.Code, error) {
	var found *timer.Timer
	if code == timer.OverDead {
		var err error
		found, err = rq.Core.Timers.Timer(rq.Base, tr.shard(rq, topic), topic.ID, tr.id)
		if err != nil || found == nil {
			return code, nil
		}
	}
	e, err := recall(rq, topic, tr.plain, found)
	switch {
	case err != nil || e == nil:
		return code, err
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
	b := append(make([]byte, 0, 64), web.CursorHistory)
	b = binary.AppendVarint(b, k.EndMs)
	for _, n := range [...]uint64{k.Index, uint64(k.Shard), uint64(k.Item)} {
		b = binary.AppendUvarint(b, n)
	}
	return web.SealCursor(b, listing)
}

func parseHistoryCursor(s string, listing uint64) (*timer.HistoryKey, bool) {
	p := web.OpenCursor(s, web.CursorHistory, listing)
	k := &timer.HistoryKey{EndMs: p.Varint(), Index: p.Uvarint(math.MaxUint64), Shard: timer.ShardID(p.Uvarint(math.MaxUint32)), Item: uint32(p.Uvarint(math.MaxUint32))}
	return k, p.OK && len(p.Rest) == 0
}
