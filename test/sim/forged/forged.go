// Package forged makes bytes that have the form of ours: what a client may write who has read
// docs/formats and knows no secret. Tests and the simulator put them where clients' bytes go, and
// look for them to come back as data.
//
// It is a second writing of the formats on purpose, and imports nothing of ours. The tests of the
// packages that read a format hold that its form here is right.
package forged

import (
	"bytes"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

var le = binary.LittleEndian

// Salt is one that anybody may guess, and that a log or file without a salt would have.
const Salt = 0

// Forms are bytes of every format that holds clients' bytes.
func Forms() map[string][]byte {
	return map[string][]byte{
		"log frames":     append(LogFrame(2, 1), LogFrame(1<<62, 1<<61)...),
		"history record": HistoryRecord(1, 1<<40, "forged"),
		"history file":   append(HistoryHead(), HistoryTail(40)...),
		"snapshot":       Snapshot(1, 9, 2),
		"peer frames":    append(PeerFrame(0, 1), PeerFrame(1, 7)...),
		"backup":         Backup(),
	}
}

// Payload is one of the forms by a number, then two frames of a log: one near that number, and one far
// ahead that says that all before it was durable. Of each eighth there are so many that they fill
// sectors of a disk. It is always the same for one number.
func Payload(number uint64) []byte {
	forms := [...][]byte{
		HistoryRecord(1, 1<<40, "forged"), Snapshot(uint32(number), number, 2), PeerFrame(uint32(number), 1), Backup(), HistoryTail(number), nil,
	}
	b := append(forms[number%uint64(len(forms))], LogFrame(number+1, number)...)
	b = append(b, LogFrame(1<<62, 1<<61)...)
	if number%8 == 0 {
		b = append(b, bytes.Repeat(LogFrame(1<<62, 1<<61), 25)...)
	}
	return b
}

func seeded(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b)
	return d.Sum64()
}

// LogFrame is an entry of a log's segment: a frame with one record of shard 1.
func LogFrame(seq, synced uint64) []byte {
	body := []byte{1, 0} // version, flags
	body = le.AppendUint64(body, seq)
	body = le.AppendUint32(body, 77) // hash of the frame before
	body = le.AppendUint64(body, synced)
	body = le.AppendUint64(body, 1)
	record := []byte("forged")
	body = append(body, 1)
	body = le.AppendUint32(body, 1)
	body = append(le.AppendUint32(body, uint32(len(record))), record...)
	frame := le.AppendUint32(nil, Salt)
	frame = append(le.AppendUint64(frame, seeded(Salt, body)), body...)
	return append(binary.AppendUvarint(nil, uint64(len(frame))), frame...)
}

// HistoryHead is the beginning of a file of the history, of number 1.
func HistoryHead() []byte {
	b := le.AppendUint32([]byte("CHST"), 1)
	for _, v := range [...]uint64{1, 0, Salt} {
		b = le.AppendUint64(b, v)
	}
	return le.AppendUint64(b, seeded(Salt, b))
}

// HistoryRecord is an end of a timer of topic 1, as it lies in a file of the history.
func HistoryRecord(shard uint32, index uint64, id string) []byte {
	event := le.AppendUint32(nil, shard)
	event = le.AppendUint64(event, index)
	event = le.AppendUint32(event, 0)
	event = le.AppendUint32(event, 1)
	event = le.AppendUint64(event, 1)
	event = append(event, 3) // done
	event = le.AppendUint64(event, 1_800_000_000_000)
	event = append(append(event, byte(len(id))), id...)
	event = append(event, "forged"...)
	b := le.AppendUint32(nil, uint32(Salt))
	b = le.AppendUint32(b, uint32(len(event)))
	b = le.AppendUint32(b, uint32(seeded(Salt, event)))
	return append(b, event...)
}

// HistoryTail is the end of a sealed file of the history whose records end there: it has none.
func HistoryTail(records uint64) []byte {
	tail := le.AppendUint32([]byte("CHSX"), 1)
	tail = le.AppendUint64(tail, records)
	for range 6 { // ends, attempts, shards, bytes of the filter; the least and the greatest end
		tail = le.AppendUint32(tail, 0)
	}
	tail = append(tail, 0, 0, 0, 0, 0, 0, 0, 0)
	tail = le.AppendUint64(tail, seeded(Salt, nil))
	return le.AppendUint64(tail, seeded(Salt, tail))
}

// Snapshot is a snapshot file, its state one word.
func Snapshot(shard uint32, index, term uint64) []byte {
	b := le.AppendUint32([]byte("CARSNAP1"), 1)
	b = le.AppendUint32(b, shard)
	b = le.AppendUint64(b, index)
	b = le.AppendUint64(b, term)
	b = le.AppendUint32(b, 0) // membership
	seed := xxhash.Sum64(b)
	b = le.AppendUint64(b, seed)
	state := []byte("forged")
	b = le.AppendUint32(b, uint32(len(state)))
	b = append(le.AppendUint64(b, seeded(seed, state)), state...)
	footer := le.AppendUint32(nil, 0xFFFFFFFF)
	for _, v := range [...]uint64{1, uint64(len(state)), 5, xxhash.Sum64(state)} {
		footer = le.AppendUint64(footer, v)
	}
	return append(b, le.AppendUint64(footer, seeded(seed, footer))...)
}

// PeerFrame is a frame between nodes, as that number of a connection's.
func PeerFrame(sequence uint32, kind byte) []byte {
	payload := []byte("forged")
	rest := append(append(le.AppendUint32(nil, sequence), kind), payload...)
	b := le.AppendUint32(nil, uint32(len(payload)))
	return append(le.AppendUint64(b, xxhash.Sum64(rest)), rest...)
}

// Backup is a backup's beginning, with the head alone.
func Backup() []byte {
	head := `{"version":1,"cluster_id":"forged","shards":1,"feature_level":1,"release":"forged","time_ms":1}`
	record := append(le.AppendUint32([]byte{1}, uint32(len(head))), head...)
	return append([]byte("CARBKUP1"), le.AppendUint64(record, seeded(0, record))...)
}
