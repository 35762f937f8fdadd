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

func timerCursor(k timer.SortKey, listing uint64) string {
	b := append(make([]byte, 0, 64), web.CursorTimers)
	b = binary.AppendVarint(b, k.SortMs)
	b = binary.AppendUvarint(b, k.Seq)
	b = append(b, k.ID...)
	if k.Topic != 0 {
		b = binary.AppendUvarint(append(b, 0), uint64(k.Topic)) // no id has a 0
	}
	return web.SealCursor(b, listing)
}

// parseTimerCursor reads a cursor of a listing of one topic, or of many.
func parseTimerCursor(s string, listing uint64, many bool) (*timer.SortKey, bool) {
	b, ok := web.OpenCursor(s, web.CursorTimers, listing)
	if !ok {
		return nil, false
	}
	var k timer.SortKey
	var n int
	if k.SortMs, n = binary.Varint(b); n <= 0 {
		return nil, false
	}
	b = b[n:]
	if k.Seq, n = binary.Uvarint(b); n <= 0 {
		return nil, false
	}
	id, topic := b[n:], []byte(nil)
	if many {
		id, topic, _ = bytes.Cut(id, []byte{0})
	}
	if k.ID = string(id); many {
		number, n := binary.Uvarint(topic)
		if n <= 0 || n != len(topic) || number == 0 || number > math.MaxUint32 {
			return nil, false
		}
		k.Topic = timer.TopicID(number)
	}
	return &k, web.ValidID(k.ID)
}
