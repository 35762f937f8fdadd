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

// mostSlot is far above the capacity of a machine's memory.
const mostSlot = 1 << 28

// timerCursor is the place behind a timer, in the range of slots from from on; the zero key: the
// beginning of that.
func timerCursor(k timer.SortKey, from timer.Handle, listing uint64) string {
	b := append(make([]byte, 0, 64), web.CursorTimers)
	b = binary.AppendVarint(b, k.SortMs)
	b = binary.AppendUvarint(b, k.Seq)
	b = append(b, k.ID...)
	if k.Topic != 0 || from != 0 {
		b = binary.AppendUvarint(append(b, 0), uint64(k.Topic)) // no id has a 0
	}
	if from != 0 {
		b = binary.AppendUvarint(b, uint64(from))
	}
	return web.SealCursor(b, listing)
}

// parseTimerCursor has the query begin behind the place of a cursor.
func parseTimerCursor(s string, listing uint64, q *timer.Query) bool {
	b, ok := web.OpenCursor(s, web.CursorTimers, listing)
	if !ok {
		return false
	}
	var k timer.SortKey
	var n int
	if k.SortMs, n = binary.Varint(b); n <= 0 {
		return false
	}
	b = b[n:]
	if k.Seq, n = binary.Uvarint(b); n <= 0 {
		return false
	}
	id, rest := b[n:], []byte(nil)
	if !q.ManyTopics() {
		k.ID = string(id)
		q.After = &k
		return web.ValidID(k.ID)
	}
	id, rest, _ = bytes.Cut(id, []byte{0})
	topic, n := binary.Uvarint(rest)
	if n <= 0 || topic > math.MaxUint32 {
		return false
	}
	if rest = rest[n:]; len(rest) > 0 {
		from, n := binary.Uvarint(rest)
		if n != len(rest) || from == 0 || from > mostSlot {
			return false
		}
		q.Slots.From = timer.Handle(from)
	}
	if k.ID, k.Topic = string(id), timer.TopicID(topic); k == (timer.SortKey{}) {
		return q.Slots.From != 0
	}
	q.After = &k
	return topic != 0 && web.ValidID(k.ID)
}
