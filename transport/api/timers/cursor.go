package timers

import (
	"bytes"
	"encoding/binary"
	"math"

	"carillon/timer"
	"carillon/transport/api/web"

	"github.com/cespare/xxhash/v2"
)

// listingSum stands for the selection of a listing of timers; the page's size is free to change
// between pages.
func listingSum(q *timer.Query) uint64 {
	b := make([]byte, 0, 128)
	b = binary.AppendUvarint(b, uint64(q.Topic))
	b = append(b, q.States, byte(q.Reason))
	if q.ByEnd {
		b = append(b, 1)
	}
	b = binary.AppendVarint(b, q.FromMs)
	b = binary.AppendVarint(b, q.ToMs)
	b = append(append(b, q.IDPrefix...), 0)
	if q.WholeID {
		b = append(b, 1)
	}
	for _, l := range q.Labels {
		b = append(append(b, l...), 0)
	}
	if q.ManyTopics() { // which they are may change between two pages
		b = append(b, 1)
	}
	return xxhash.Sum64(b)
}

// timerCursor is the place behind a timer, in a range of slots; the zero key: the beginning of
// that.
func timerCursor(k timer.SortKey, slots timer.SlotRange, listing uint64) string {
	b := append(make([]byte, 0, 64), web.CursorTimers)
	b = binary.AppendVarint(b, k.SortMs)
	b = binary.AppendUvarint(b, k.Seq)
	b = append(b, k.ID...)
	if k.Topic != 0 || slots.From != 0 {
		b = binary.AppendUvarint(append(b, 0), uint64(k.Topic)) // no id has a 0
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(slots.From)), uint64(slots.To))
	}
	return web.SealCursor(b, listing)
}

// parseTimerCursor has the query begin behind the place of a cursor.
func parseTimerCursor(s string, listing uint64, q *timer.Query) bool {
	p := web.OpenCursor(s, web.CursorTimers, listing)
	k := timer.SortKey{SortMs: p.Varint(), Seq: p.Uvarint(math.MaxUint64)}
	if !q.ManyTopics() {
		k.ID = string(p.Rest)
		q.After = &k
		return p.OK && web.ValidID(k.ID)
	}
	id, rest, _ := bytes.Cut(p.Rest, []byte{0})
	p.Rest = rest
	topic, from, to := p.Uvarint(math.MaxUint32), p.Uvarint(math.MaxUint32), p.Uvarint(math.MaxUint32)
	if !p.OK || len(p.Rest) != 0 || to != 0 && to <= from {
		return false
	}
	q.Slots = timer.SlotRange{From: timer.Handle(from), To: timer.Handle(to)}
	if k.ID, k.Topic = string(id), timer.TopicID(topic); k == (timer.SortKey{}) {
		return q.Slots.From != 0
	}
	q.After = &k
	return topic != 0 && web.ValidID(k.ID)
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
