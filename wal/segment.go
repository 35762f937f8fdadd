package wal

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
)

const (
	segmentNameBytes = 20
	// maxSegmentFileBytes bounds how much a reader takes into memory at once.
	maxSegmentFileBytes = 512 << 20
	brokenSuffix        = ".broken"
)

// segmentName is the name that tidwall/wal gives a segment: its first index, 20 digits.
func segmentName(seq uint64) string { return fmt.Sprintf("%020d", seq) }

func parseSegmentName(name string) (seq uint64, ok bool) {
	if len(name) != segmentNameBytes {
		return 0, false
	}
	seq, err := strconv.ParseUint(name, 10, 64)
	return seq, err == nil && seq > 0
}

// appendEntry encodes an entry as it stands in a segment file: uvarint length, data.
func appendEntry(dst, data []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...)
}

func entryBytes(n int) int64 {
	size := int64(n) + 1
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// nextEntry splits the entry at the start of b off. A length of zero, one that is
// not minimally encoded and one above the bound are refused: zeros are never entries.
func nextEntry(b []byte) (data []byte, size int, err error) {
	n, k := binary.Uvarint(b)
	switch {
	case k == 0:
		return nil, 0, errTruncated
	case n == 0:
		return nil, 0, errZeros
	case k < 0 || k > 1 && b[k-1] == 0 || n > MaxFrameBytes || n < frameHeaderBytes:
		return nil, 0, errLength
	case n > uint64(len(b)-k):
		return nil, 0, errTruncated
	}
	end := k + int(n)
	return b[k:end:end], end, nil
}

// chain is where a reader stands in the sequence of frames.
type chain struct {
	next     uint64 // sequence number of the next frame
	prevHash uint32
	salt     salt
}

// scan walks the entries of a segment's bytes and calls visit for each good frame.
// It returns the offset after the last good one, and why it stopped there if that is
// not the end. An error of visit comes back as visitErr.
func (c *chain) scan(data []byte, visit func(off int, h header, records []byte) error) (end int, bad, visitErr error) {
	for end < len(data) {
		b, size, err := nextEntry(data[end:])
		if err != nil {
			return end, err, nil
		}
		h, records, err := c.admit(b)
		if err != nil {
			return end, err, nil
		}
		if err := visit(end, h, records); err != nil {
			return end, nil, err
		}
		end += size
	}
	return end, nil, nil
}

// admit verifies that b is the frame that comes next, and steps over it.
func (c *chain) admit(b []byte) (h header, records []byte, err error) {
	h, hash, err := c.salt.open(b)
	switch {
	case err != nil:
		return h, nil, err
	case h.seq != c.next || h.synced >= h.seq:
		return h, nil, errSeq
	case h.prevHash != c.prevHash:
		return h, nil, errChain
	}
	records = b[frameHeaderBytes:]
	if _, ok := checkRecords(records); !ok {
		return h, nil, errRecords
	}
	c.next++
	c.prevHash = uint32(hash)
	return h, records, nil
}

func genName(gen uint64) string { return fmt.Sprintf("%08d", gen) }

func parseGenName(name string) (gen uint64, ok bool) {
	if len(name) < 8 || len(name) > 19 {
		return 0, false
	}
	gen, err := strconv.ParseUint(name, 10, 64)
	return gen, err == nil && gen > 0 && genName(gen) == name
}

func genPath(dir string, gen uint64) string { return filepath.Join(dir, genName(gen)) }
