package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// Flags of a history query.
const (
	historyAfter = 1 << iota
	historyNewest
	historyKept
	historyOfContent // a hash follows, last

	historyFlags = 1<<iota - 1
)

const entryByAttempt = 1 // a flag of an entry: its last attempt ended the timer

// AppendHistoryQuery encodes a query for a node's history of some shards.
func AppendHistoryQuery(dst []byte, q *timer.HistoryQuery) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(q.Topic))
	dst = encoding.AppendBlock(appendIDs(dst, q.Shards), q.ID)
	flags := encoding.Flag(q.After != nil, historyAfter) | encoding.Flag(q.Newest, historyNewest) |
		encoding.Flag(q.Kept, historyKept) | encoding.Flag(q.Content != 0, historyOfContent)
	dst = append(dst, q.States, flags)
	dst = encoding.AppendVarints(dst, q.FromMs, q.ToMs)
	dst = binary.AppendUvarint(dst, uint64(min(max(q.Limit, 0), maxWireLimit)))
	if q.After != nil {
		dst = appendHistoryKey(dst, q.After)
	}
	if q.Content != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, q.Content)
	}
	return dst
}

func DecodeHistoryQuery(b []byte) (*timer.HistoryQuery, error) {
	r := open(b)
	q := &timer.HistoryQuery{Topic: timer.TopicID(r.Number(1<<32-1, "topic"))}
	q.Shards = r.ids()
	q.ID = string(r.Block(encoding.MaxID, "id"))
	q.States = r.Byte()
	flags := r.Byte()
	if flags&^historyFlags != 0 {
		r.Fail("unknown flags of a history query")
	}
	q.Newest, q.Kept = flags&historyNewest != 0, flags&historyKept != 0
	q.FromMs, q.ToMs = r.Varint(), r.Varint()
	q.Limit = int(r.Number(maxWireLimit, "limit"))
	if flags&historyAfter != 0 {
		k := r.historyKey()
		q.After = &k
	}
	if flags&historyOfContent != 0 {
		q.Content = r.U64()
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return q, nil
}

// appendIDs encodes shards in ascending order.
func appendIDs(dst []byte, ids []timer.ShardID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	last := timer.ShardID(0)
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(id-last))
		last = id
	}
	return dst
}

func (r *reader) ids() (ids []timer.ShardID) {
	last := uint64(0)
	for n := r.Count(maxOps, 1, "shards"); n > 0 && r.Fault == ""; n-- {
		d := r.Number(1<<32-1-last, "shard")
		if d == 0 && len(ids) > 0 {
			r.Fail("shards out of order")
		}
		last += d
		ids = append(ids, timer.ShardID(last))
	}
	return ids
}

func appendHistoryKey(dst []byte, k *timer.HistoryKey) []byte {
	dst = binary.AppendVarint(dst, k.EndMs)
	dst = encoding.AppendUvarints(dst, k.Index, uint64(k.Shard))
	return binary.AppendUvarint(dst, uint64(k.Item))
}

func (r *reader) historyKey() timer.HistoryKey {
	return timer.HistoryKey{
		EndMs: r.Varint(), Index: r.Uvarint(), Shard: timer.ShardID(r.Number(1<<32-1, "shard")), Item: uint32(r.Number(1<<32-1, "item")),
	}
}

// AppendHistory encodes a page of the history of some shards: the first entries that fit, at least
// one. more reports that there are entries beyond the list.
func AppendHistory(dst []byte, ids []timer.ShardID, list []*timer.HistoryEntry, more bool) []byte {
	start := len(dst)
	dst = append(dst, version, faultNone, 0)
	if more {
		dst[start+2] = 1
	}
	dst = appendIDs(dst, ids)
	for _, e := range list {
		if len(dst)-start > answerBytes {
			dst[start+2] = 1
			break
		}
		dst = appendHistoryEntry(append(dst, 1), e)
	}
	return append(dst, 0)
}

func appendHistoryEntry(dst []byte, e *timer.HistoryEntry) []byte {
	dst = appendHistoryKey(dst, &e.Key)
	dst = encoding.AppendTimer(append(dst, encoding.Flag(e.ByAttempt, entryByAttempt)), e.Timer)
	return appendAttempts(dst, e.Attempts)
}

// DecodeHistory decodes the output of AppendHistory or AppendFailure.
func DecodeHistory(b []byte) (ids []timer.ShardID, list []*timer.HistoryEntry, more bool, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, nil, false, err
	}
	more = r.Number(1, "more") == 1
	ids = r.ids()
	for r.Number(1, "presence") == 1 && r.Fault == "" {
		list = append(list, r.historyEntry())
	}
	if err := r.Close(); err != nil {
		return nil, nil, false, err
	}
	return ids, list, more, nil
}

func (r *reader) historyEntry() *timer.HistoryEntry {
	e := &timer.HistoryEntry{Key: r.historyKey()}
	e.ByAttempt = r.Number(entryByAttempt, "flags") == entryByAttempt
	e.Timer = r.Timer()
	e.Attempts = r.attempts()
	return e
}
