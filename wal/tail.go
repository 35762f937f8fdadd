package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// tailKind is the kind of bytes after the last good frame of the last segment.
type tailKind int

const (
	tailZero    tailKind = iota // nothing but zeros: space prepared and never used
	tailTorn                    // a write that was not finished and not promised to anybody
	tailDurable                 // damage to a frame that had been durable
)

// hashBudgetFactor bounds the bytes hashed while looking for later frames, as a
// multiple of the tail's size; a tail that needs more is made by hand, by somebody who has read the
// salt, and refused.
const hashBudgetFactor = 64

// classifyTail judges the bytes after the last good frame. want is the sequence
// number of the first bad frame. Unsynced writes may reach the disk in any order, so a
// valid frame after a bad one proves nothing; one whose syncedSeq covers the bad one does.
func classifyTail(s salt, tail []byte, want uint64) tailKind {
	if allZero(tail) {
		return tailZero
	}
	mark := binary.LittleEndian.AppendUint32(nil, s.mark())
	budget := hashBudgetFactor * len(tail)
	for at := 0; ; at++ {
		i := bytes.Index(tail[at:], mark)
		if i < 0 {
			return tailTorn
		}
		at += i
		durable, cost := provesDurable(s, tail, at, want)
		if durable {
			return tailDurable
		}
		if budget -= cost; budget < 0 {
			return tailDurable
		}
	}
}

// provesDurable reports whether a valid frame begins at offset at of tail and proves that
// frame want was durable. The entry's length stands in the one to four bytes before it.
// A frame of a newer version counts: it is whole, and this program must not cut it off.
func provesDurable(s salt, tail []byte, at int, want uint64) (durable bool, cost int) {
	if len(tail)-at < frameHeaderBytes {
		return false, 0
	}
	seq := binary.LittleEndian.Uint64(tail[at+offSeq:])
	synced := binary.LittleEndian.Uint64(tail[at+offSynced:])
	newer := tail[at+offVersion] != frameVersion
	if !newer && (seq < want || synced < want || synced >= seq) {
		return false, 0
	}
	for k := 1; k <= 4 && k <= at; k++ {
		b, size, err := nextEntry(tail[at-k:])
		if err != nil || size != k+len(b) {
			continue
		}
		cost += len(b)
		if _, _, err := s.open(b); err == nil || errors.Is(err, errVersion) {
			return true, cost
		}
	}
	return false, cost
}

func allZero(b []byte) bool { return len(trimZeros(b)) == 0 }

// trimZeros cuts the zeros at the end off.
func trimZeros(b []byte) []byte {
	var zero [4096]byte
	for len(b) >= len(zero) && bytes.Equal(b[len(b)-len(zero):], zero[:]) {
		b = b[:len(b)-len(zero)]
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}
