package history

import (
	"cmp"
	"encoding/binary"
	"errors"
)

// Event is one thing that became of a timer. Shard, Index and Item name it for ever.
type Event struct {
	Shard uint32 // below 65,536
	Index uint64 // of the shard's log entry that made it; below 2^48
	Item  uint32 // in the entry
	Topic uint32
	Seq   uint64 // the timer's number in its shard; below 2^48
	State uint8  // how the timer ended, 1–7; 0: an attempt that did not end the timer
	EndMs int64  // Unix ms, when; not negative
	ID    []byte // the timer's, at most 255 bytes
	Body  []byte
}

// Key is a place in the order of ends.
type Key struct {
	EndMs int64
	Index uint64
	Shard uint32
	Item  uint32
}

// Compare orders two keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.EndMs, o.EndMs), cmp.Compare(k.Index, o.Index), cmp.Compare(k.Shard, o.Shard), cmp.Compare(k.Item, o.Item))
}

// Key is the event's place.
func (e *Event) Key() Key { return Key{e.EndMs, e.Index, e.Shard, e.Item} }

// A record is its head and an event. The head is the file's mark, the length of the event, and its
// sum, each a u32.
const (
	recordHead  = 12
	recordFixed = 4 + 8 + 4 + 4 + 8 + 1 + 8 + 1 // of an event without its texts

	shardBits = 16
	seqBits   = 48
)

var errDamaged = errors.New("damaged")

// appendEvent writes a record; its mark and sum are those of a file, and not filled in yet.
func appendEvent(dst []byte, e *Event) []byte {
	size := recordFixed + len(e.ID) + len(e.Body)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, e.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, e.Index)
	dst = binary.LittleEndian.AppendUint32(dst, e.Item)
	dst = binary.LittleEndian.AppendUint32(dst, e.Topic)
	dst = binary.LittleEndian.AppendUint64(dst, e.Seq)
	dst = append(dst, e.State)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.EndMs))
	dst = append(dst, byte(len(e.ID)))
	return append(append(dst, e.ID...), e.Body...)
}

// recordSize is the length that a record's head gives to the rest.
func recordSize(head []byte) int { return int(binary.LittleEndian.Uint32(head[4:])) }

// sizeOf is recordSize of bytes that may be no record of the file: false.
func (s salt) sizeOf(head []byte) (size int, ok bool) {
	size = recordSize(head)
	return size, binary.LittleEndian.Uint32(head) == s.mark() && size >= recordFixed && size <= maxRecord
}

// seal fills in a record's mark and sum.
func (s salt) seal(record []byte) {
	binary.LittleEndian.PutUint32(record, s.mark())
	binary.LittleEndian.PutUint32(record[8:], s.sum(record[recordHead:]))
}

// decodeRecord reads the record at the front of b; its result lies in b. n is the record's length.
func (s salt) decodeRecord(b []byte, e *Event) (n int, err error) {
	if len(b) < recordHead {
		return 0, errDamaged
	}
	size, ok := s.sizeOf(b)
	if !ok || len(b)-recordHead < size {
		return 0, errDamaged
	}
	body := b[recordHead : recordHead+size]
	if s.sum(body) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, errDamaged
	}
	return recordHead + size, decodeEvent(body, e)
}

// decodeEvent reads the bytes after a record's head.
func decodeEvent(b []byte, e *Event) error {
	le := binary.LittleEndian
	*e = Event{
		Shard: le.Uint32(b), Index: le.Uint64(b[4:]), Item: le.Uint32(b[12:]), Topic: le.Uint32(b[16:]), Seq: le.Uint64(b[20:]),
		State: b[28], EndMs: int64(le.Uint64(b[29:])),
	}
	id, rest := int(b[37]), b[recordFixed:]
	if id > len(rest) || !e.valid() {
		return errDamaged
	}
	e.ID, e.Body = rest[:id:id], rest[id:]
	return nil
}

// valid reports whether an index can hold the event's numbers.
func (e *Event) valid() bool {
	return e.Shard < 1<<shardBits && e.Index < 1<<seqBits && e.Seq < 1<<seqBits && e.State < 8 && e.EndMs >= 0 && e.EndMs < 1<<55 &&
		len(e.ID) <= 255
}
