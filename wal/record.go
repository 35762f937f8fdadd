package wal

import (
	"encoding/binary"
	"strconv"
)

// RecordType is the type of a record's body. Bodies are opaque to this package.
type RecordType uint8

// The types in use. Numbers are on disk: never reuse one.
const (
	RecordEntries          RecordType = 1 // raft entries of a shard
	RecordHardState        RecordType = 2 // raft term, vote, commit of a shard
	RecordSnapMark         RecordType = 3 // a snapshot file is complete
	RecordReplicaCreate    RecordType = 4 // a replica begins to exist here
	RecordReplicaTombstone RecordType = 5 // a replica was removed, its id is used up
	RecordNodeMeta         RecordType = 6 // reserved: not written, passed over
)

var recordNames = [...]string{1: "ENTRIES", 2: "HARDSTATE", 3: "SNAPMARK",
	4: "REPLICA_CREATE", 5: "REPLICA_TOMBSTONE", 6: "NODE_META"}

func (t RecordType) String() string {
	if int(t) < len(recordNames) && recordNames[t] != "" {
		return recordNames[t]
	}
	return "TYPE_" + strconv.Itoa(int(t))
}

// Record is one shard's part of a frame.
type Record struct {
	Type  RecordType
	Shard uint32
	Data  []byte
}

// recordHeaderBytes is type u8, shard u32, length u32. Lengths are fixed-width so
// that a body can be encoded in place and its length filled in afterwards.
const recordHeaderBytes = 1 + 4 + 4

// nextRecord splits the first record off b. ok is false if b does not start with a whole record.
func nextRecord(b []byte) (r Record, rest []byte, ok bool) {
	if len(b) < recordHeaderBytes {
		return Record{}, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b[5:]))
	if n > uint64(len(b)-recordHeaderBytes) {
		return Record{}, nil, false
	}
	end := recordHeaderBytes + int(n)
	r = Record{Type: RecordType(b[0]), Shard: binary.LittleEndian.Uint32(b[1:]),
		Data: b[recordHeaderBytes:end:end]}
	return r, b[end:], true
}

// checkRecords reports whether b is a sequence of whole records, and how many.
func checkRecords(b []byte) (count int, ok bool) {
	for len(b) > 0 {
		if _, b, ok = nextRecord(b); !ok {
			return 0, false
		}
		count++
	}
	return count, true
}
