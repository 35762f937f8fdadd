package shard

import (
	"encoding/binary"

	"carillon/timer"
)

// Flags of a history query.
const (
	historyAfter = 1 << iota
	historyNewest
	historyKept
	historyOfContent // a hash follows, last

	historyFlags = 1<<iota - 1
)

const entryByAttempt = 1 // a flag of an entry: the last attempt is what ended the timer

// AppendHistoryQuery encodes a question for the history that a node keeps of some shards.
func AppendHistoryQuery(dst []byte, q *timer.HistoryQuery) []byte {
	dst = binary.AppendUvarint(append(dst, wireVersion), uint64(q.Topic))
	dst = appendBlock(appendIDs(dst, q.Shards), q.ID)
	var flags byte
	if q.After != nil {
		flags |= historyAfter
	}
	if q.Newest {
		flags |= historyNewest
	}
	if q.Kept {
		flags |= historyKept
	}
	if q.Content != 0 {
		flags |= historyOfContent
	}
	dst = append(dst, q.States, flags)
	dst = binary.AppendVarint(dst, q.FromMs)
	dst = binary.AppendVarint(dst, q.ToMs)
	dst = binary.AppendUvarint(dst, uint64(min(max(q.Limit, 0), maxWireLimit)))
	if q.After != nil {
		dst = appendHistoryKey(dst, q.After)
	}
	if q.Content != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, q.Content)
	}
	return dst
}

// DecodeHistoryQuery decodes what AppendHistoryQuery wrote.
func DecodeHistoryQuery(b []byte) (*timer.HistoryQuery, error) {
	r := openWire(b)
	q := &timer.HistoryQuery{Topic: timer.TopicID(r.number(1<<32-1, "topic"))}
	q.Shards = r.ids()
	q.ID = string(r.block(maxID, "id"))
	q.States = r.byte()
	flags := r.byte()
	if flags&^historyFlags != 0 {
		r.fail("unknown flags of a history query")
	}
	q.Newest, q.Kept = flags&historyNewest != 0, flags&historyKept != 0
	q.FromMs, q.ToMs = r.varint(), r.varint()
	q.Limit = int(r.number(maxWireLimit, "limit"))
	if flags&historyAfter != 0 {
		k := r.historyKey()
		q.After = &k
	}
	if flags&historyOfContent != 0 {
		q.Content = r.u64()
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return q, nil
}

// appendIDs writes shards in rising order.
func appendIDs(dst []byte, ids []timer.ShardID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	last := timer.ShardID(0)
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(id-last))
		last = id
	}
	return dst
}

func (r *wireReader) ids() (ids []timer.ShardID) {
	last := uint64(0)
	for n := r.count(maxWireOps, 1, "shards"); n > 0 && r.fault == ""; n-- {
		d := r.number(1<<32-1-last, "shard")
		if d == 0 && len(ids) > 0 {
			r.fail("shards out of order")
		}
		last += d
		ids = append(ids, timer.ShardID(last))
	}
	return ids
}

func appendHistoryKey(dst []byte, k *timer.HistoryKey) []byte {
	dst = binary.AppendVarint(dst, k.EndMs)
	dst = binary.AppendUvarint(dst, k.Index)
	dst = binary.AppendUvarint(dst, uint64(k.Shard))
	return binary.AppendUvarint(dst, uint64(k.Item))
}

func (r *wireReader) historyKey() timer.HistoryKey {
	return timer.HistoryKey{
		EndMs: r.varint(), Index: r.uvarint(), Shard: timer.ShardID(r.number(1<<32-1, "shard")), Item: uint32(r.number(1<<32-1, "item")),
	}
}

// AppendHistory encodes a page of the history of some shards, the first of the list as far as they fit; at least one does. more
// says that the list went on in any case.
func AppendHistory(dst []byte, ids []timer.ShardID, list []*timer.HistoryEntry, more bool) []byte {
	start := len(dst)
	dst = append(dst, wireVersion, faultNone, 0)
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
	flag := byte(0)
	if e.ByAttempt {
		flag = entryByAttempt
	}
	dst = appendTimer(append(dst, flag), e.Timer)
	return appendAttempts(dst, e.Attempts)
}

// DecodeHistory decodes what AppendHistory or AppendFailure wrote.
func DecodeHistory(b []byte) (ids []timer.ShardID, list []*timer.HistoryEntry, more bool, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, nil, false, err
	}
	more = r.number(1, "more") == 1
	ids = r.ids()
	for r.number(1, "presence") == 1 && r.fault == "" {
		list = append(list, r.historyEntry())
	}
	if err := r.close(); err != nil {
		return nil, nil, false, err
	}
	return ids, list, more, nil
}

func (r *wireReader) historyEntry() *timer.HistoryEntry {
	e := &timer.HistoryEntry{Key: r.historyKey()}
	e.ByAttempt = r.number(entryByAttempt, "flags") == entryByAttempt
	e.Timer = r.timer()
	e.Attempts = r.attempts()
	return e
}
