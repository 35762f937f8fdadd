package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
)

// Two small files record where a stream begins and, after a clean close, where it ends.
// Without FIRST the loss of the oldest generation could not be distinguished from a drop; without
// END the loss of the last frames could not be distinguished from a torn write. Both have the
// stream's salt.
const (
	firstName   = "FIRST"
	firstMagic  = "CARFIRST"
	endName     = "END"
	endMagic    = "CARLOGEN"
	boundsBytes = 48

	unsaltedBytes = boundsBytes - 8 // of builds before the first release
)

// bounds is a place between two frames.
type bounds struct {
	gen      uint64
	seq      uint64 // of the frame after it
	prevHash uint32 // chain value before that frame
	salt     salt   // of the stream
}

func encodeBounds(magic string, m bounds) []byte {
	b := make([]byte, 0, boundsBytes)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(frameVersion))
	b = binary.LittleEndian.AppendUint64(b, m.gen)
	b = binary.LittleEndian.AppendUint64(b, m.seq)
	b = binary.LittleEndian.AppendUint32(b, m.prevHash)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.salt))
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func decodeBounds(magic string, b []byte) (bounds, error) {
	switch {
	case len(b) == unsaltedBytes && string(b[:8]) == magic && xxhash.Sum64(b[:unsaltedBytes-8]) == binary.LittleEndian.Uint64(b[unsaltedBytes-8:]):
		return bounds{}, errBeforeFirst
	case len(b) < boundsBytes:
		return bounds{}, errTruncated
	case len(b) > boundsBytes:
		return bounds{}, errTrailing
	case xxhash.Sum64(b[:boundsBytes-8]) != binary.LittleEndian.Uint64(b[boundsBytes-8:]):
		return bounds{}, errChecksum
	case string(b[:8]) != magic:
		return bounds{}, errMagic
	case binary.LittleEndian.Uint32(b[8:]) != uint32(frameVersion):
		return bounds{}, errVersion
	}
	return bounds{
		gen:      binary.LittleEndian.Uint64(b[12:]),
		seq:      binary.LittleEndian.Uint64(b[20:]),
		prevHash: binary.LittleEndian.Uint32(b[28:]),
		salt:     salt(binary.LittleEndian.Uint64(b[32:])),
	}, nil
}

func writeBounds(fsys vfs.FS, dir, name, magic string, m bounds) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), encodeBounds(magic, m))
}

// readBounds reports a mark that is not there by found = false.
func readBounds(fsys vfs.FS, dir, name, magic string) (m bounds, found bool, err error) {
	path := filepath.Join(dir, name)
	b, err := vfs.ReadFile(fsys, path, nil, maxSegmentFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return bounds{}, false, nil
	}
	if err != nil {
		return bounds{}, false, fmt.Errorf("wal: read %s: %w", path, err)
	}
	m, err = decodeBounds(magic, b)
	if err != nil {
		return bounds{}, false, &CorruptionError{Dir: dir, Segment: name, Err: err}
	}
	return m, true, nil
}
