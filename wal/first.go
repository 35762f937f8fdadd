package wal

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
)

// The FIRST file names the oldest generation of a stream and where the chain stands at
// its start. Without it the loss of the oldest generation could not be told from a drop.
const (
	firstName  = "FIRST"
	firstBytes = 40
	firstMagic = "CARFIRST"
)

type firstMark struct {
	gen      uint64
	seq      uint64
	prevHash uint32
}

func encodeFirst(m firstMark) []byte {
	b := make([]byte, 0, firstBytes)
	b = append(b, firstMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(frameVersion))
	b = binary.LittleEndian.AppendUint64(b, m.gen)
	b = binary.LittleEndian.AppendUint64(b, m.seq)
	b = binary.LittleEndian.AppendUint32(b, m.prevHash)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func decodeFirst(b []byte) (firstMark, error) {
	switch {
	case len(b) < firstBytes:
		return firstMark{}, errTruncated
	case len(b) > firstBytes:
		return firstMark{}, errTrailing
	case xxhash.Sum64(b[:firstBytes-8]) != binary.LittleEndian.Uint64(b[firstBytes-8:]):
		return firstMark{}, errChecksum
	case string(b[:8]) != firstMagic:
		return firstMark{}, errMagic
	case binary.LittleEndian.Uint32(b[8:]) != uint32(frameVersion):
		return firstMark{}, errVersion
	}
	return firstMark{
		gen:      binary.LittleEndian.Uint64(b[12:]),
		seq:      binary.LittleEndian.Uint64(b[20:]),
		prevHash: binary.LittleEndian.Uint32(b[28:]),
	}, nil
}

func writeFirst(fsys FS, dir string, m firstMark) error {
	return WriteFileAtomic(fsys, filepath.Join(dir, firstName), encodeFirst(m))
}

func readFirst(fsys FS, dir string) (firstMark, error) {
	b, err := readFile(fsys, filepath.Join(dir, firstName), nil, 1<<20)
	if err != nil {
		return firstMark{}, fmt.Errorf("wal: read %s: %w", filepath.Join(dir, firstName), err)
	}
	m, err := decodeFirst(b)
	if err != nil {
		return firstMark{}, &CorruptionError{Dir: dir, Segment: firstName, Err: err}
	}
	return m, nil
}
