package wire

import (
	"math"

	"carillon/timer"
	"carillon/timer/encoding"
)

// AppendHistoryQuery encodes a query for a node's history of some shards.
func AppendHistoryQuery(dst []byte, q *timer.HistoryQuery) []byte {
	return request(dst, q, historyQuery)
}

func DecodeHistoryQuery(b []byte) (*timer.HistoryQuery, error) {
	q, err := asked(b, historyQuery)
	if err != nil {
		return nil, err
	}
	return &q, nil
}

func historyQuery(c *encoding.Codec, q *timer.HistoryQuery) {
	encoding.Uint32(c, &q.Topic, "topic")
	shardIDs(c, &q.Shards)
	timerID(c, &q.ID)
	encoding.Octet(c, &q.States)
	after, content := q.After != nil, q.Content != 0
	c.Flags("a history query", &after, &q.Newest, &q.Kept, &content)
	encoding.Signed(c, &q.FromMs, &q.ToMs)
	encoding.Number(c, &q.Limit, maxWireLimit, "limit")
	if after {
		historyKey(c, encoding.Made(c, &q.After))
	}
	if content {
		c.Fixed64(&q.Content)
	}
}

// shardIDs are in ascending order.
func shardIDs(c *encoding.Codec, ids *[]timer.ShardID) {
	last, first := timer.ShardID(0), true
	encoding.List(c, ids, maxOps, 1, "shards", func(c *encoding.Codec, id *timer.ShardID) {
		more := *id - last
		if encoding.Number(c, &more, uint64(math.MaxUint32-last), "shard"); c.Reads {
			*id = last + more
		}
		if more == 0 && !first {
			c.Fail("shards out of order")
		}
		last, first = *id, false
	})
}

func historyKey(c *encoding.Codec, k *timer.HistoryKey) {
	encoding.Signed(c, &k.EndMs)
	c.Uvarints(&k.Index)
	encoding.Uint32(c, &k.Shard, "shard")
	encoding.Uint32(c, &k.Item, "item")
}

// AppendHistory encodes a page of the history of some shards: the first entries that fit, at least
// one. more reports that there are entries beyond the list.
func AppendHistory(dst []byte, ids []timer.ShardID, list []*timer.HistoryEntry, more bool) []byte {
	start := len(dst)
	c := encoding.Codec{Out: append(dst, version, faultNone, encoding.Flag(more, 1))}
	shardIDs(&c, &ids)
	for _, e := range list {
		if len(c.Out)-start > answerBytes {
			c.Out[start+2] = 1
			break
		}
		c.Out = append(c.Out, 1)
		historyEntry(&c, e)
	}
	return append(c.Out, 0)
}

// DecodeHistory decodes the output of AppendHistory or AppendFailure.
func DecodeHistory(b []byte) (ids []timer.ShardID, list []*timer.HistoryEntry, more bool, err error) {
	c, err := openAnswer(b)
	if err != nil {
		return nil, nil, false, err
	}
	more = c.Number(1, "more") == 1
	shardIDs(&c, &ids)
	for c.Number(1, "presence") == 1 && c.Fault == "" {
		e := new(timer.HistoryEntry)
		historyEntry(&c, e)
		list = append(list, e)
	}
	if err := c.Close(); err != nil {
		return nil, nil, false, err
	}
	return ids, list, more, nil
}

func historyEntry(c *encoding.Codec, e *timer.HistoryEntry) {
	historyKey(c, &e.Key)
	c.Flags("an entry", &e.ByAttempt) // its last attempt ended the timer
	c.Timer(encoding.Made(c, &e.Timer))
	attempts(c, &e.Attempts)
}
