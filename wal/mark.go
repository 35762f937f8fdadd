package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"carillon/vfs"
)

// Two small files say where a stream begins and, after a clean close, where it ends.
// Without FIRST the loss of the oldest generation could not be told from a drop; without
// END the loss of the last frames could not be told from a torn write.
const (
	firstName  = "FIRST"
	firstMagic = "CARFIRST"
	endName    = "END"
	endMagic   = "CARLOGEN"
	markBytes  = 40
)

// mark is a place between two frames.
type mark struct {
	gen      uint64
	seq      uint64 // of the frame after it
	prevHash uint32 // chain value before that frame
}

func encodeMark(magic string, m mark) []byte {
	b := make([]byte, 0, markBytes)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(frameVersion))
	b = binary.LittleEndian.AppendUint64(b, m.gen)
	b = binary.LittleEndian.AppendUint64(b, m.seq)
	b = binary.LittleEndian.AppendUint32(b, m.prevHash)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func decodeMark(magic string, b []byte) (mark, error) {
	switch {
	case len(b) < markBytes:
		return mark{}, errTruncated
	case len(b) > markBytes:
		return mark{}, errTrailing
	case xxhash.Sum64(b[:markBytes-8]) != binary.LittleEndian.Uint64(b[markBytes-8:]):
		return mark{}, errChecksum
	case string(b[:8]) != magic:
		return mark{}, errMagic
	case binary.LittleEndian.Uint32(b[8:]) != uint32(frameVersion):
		return mark{}, errVersion
	}
	return mark{
		gen:      binary.LittleEndian.Uint64(b[12:]),
		seq:      binary.LittleEndian.Uint64(b[20:]),
		prevHash: binary.LittleEndian.Uint32(b[28:]),
	}, nil
}

func writeMark(fsys vfs.FS, dir, name, magic string, m mark) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), encodeMark(magic, m))
}

// readMark reports a mark that is not there by found = false.
func readMark(fsys vfs.FS, dir, name, magic string) (m mark, found bool, err error) {
	path := filepath.Join(dir, name)
	b, err := vfs.ReadFile(fsys, path, nil, maxSegmentFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, false, nil
	}
	if err != nil {
		return mark{}, false, fmt.Errorf("wal: read %s: %w", path, err)
	}
	m, err = decodeMark(magic, b)
	if err != nil {
		return mark{}, false, &CorruptionError{Dir: dir, Segment: name, Err: err}
	}
	return m, true, nil
}
