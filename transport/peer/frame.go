package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// A frame on the wire, little-endian:
//
//	length u32 | xxh64 u64 | sequence u32 | kind u8 | payload
//
// length counts the payload only. The checksum covers all that follows it. The
// sequence counts the frames of one direction of one connection from 0, and wraps.
const (
	frameHeaderBytes = 17
	sumAt            = 4
	sequenceAt       = 12
	kindAt           = 16
)

// Kinds of frames. Which may come is a matter of the link and the direction.
const (
	kindHeartbeat = iota // empty
	kindFrame            // control: opaque
	kindCall             // id u64 | timeout ms u32 (0 = none) | method u8 | body
	kindReply            // id u64 | status u8 | code u8 | body or text
	kindOpen             // size u64 | header
	kindHave             // offset u64: continue from here
	kindChunk            // the next bytes of the file
	kindEnd              // status u8 | code u8 | text
)

var (
	errBadSum   = errors.New("frame with a bad checksum")
	errSequence = errors.New("frame out of sequence")
)

// appendFrame adds a frame that is not sealed yet.
func appendFrame(buf []byte, kind byte, head, body []byte) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(head)+len(body)))
	buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kind)
	buf = append(buf, head...)
	return append(buf, body...)
}

// seal numbers and checksums a batch of frames in place, and returns the next number.
// This is done just before the write, so that it costs no caller of Send anything.
func seal(batch []byte, sequence uint32) uint32 {
	for len(batch) > 0 {
		size := frameHeaderBytes + int(binary.LittleEndian.Uint32(batch))
		binary.LittleEndian.PutUint32(batch[sequenceAt:], sequence)
		binary.LittleEndian.PutUint64(batch[sumAt:], xxhash.Sum64(batch[sequenceAt:size]))
		sequence++
		batch = batch[size:]
	}
	return sequence
}

// readBufferBytes holds the usual batch of frames; only a larger frame is read into
// memory of its own.
const readBufferBytes = 64 << 10

// frameReader takes frames off a stream.
type frameReader struct {
	source   io.Reader
	max      int // payload bytes
	sequence uint32
	buf      []byte
	from, to int // unread bytes of buf
}

func newFrameReader(source io.Reader, maxPayload int) *frameReader {
	return &frameReader{source: source, max: maxPayload, buf: make([]byte, readBufferBytes)}
}

// next reads one frame. The payload is valid until the next call, unless it is owned.
func (r *frameReader) next() (kind byte, payload []byte, owned bool, err error) {
	if err := r.fill(frameHeaderBytes); err != nil {
		return 0, nil, false, err
	}
	length := int(binary.LittleEndian.Uint32(r.buf[r.from:]))
	if length > r.max {
		return 0, nil, false, fmt.Errorf("frame of %d bytes, the limit is %d", length, r.max)
	}
	sum := binary.LittleEndian.Uint64(r.buf[r.from+sumAt:])
	size := frameHeaderBytes + length
	var frame []byte
	if size <= len(r.buf) {
		if err := r.fill(size); err != nil {
			return 0, nil, false, err
		}
		frame = r.buf[r.from : r.from+size : r.from+size]
		r.from += size
	} else {
		frame, owned = make([]byte, size), true
		n := copy(frame, r.buf[r.from:r.to])
		r.from, r.to = 0, 0
		if _, err := io.ReadFull(r.source, frame[n:]); err != nil {
			return 0, nil, false, noEOF(err)
		}
	}
	if xxhash.Sum64(frame[sequenceAt:]) != sum {
		return 0, nil, false, errBadSum
	}
	if binary.LittleEndian.Uint32(frame[sequenceAt:]) != r.sequence {
		return 0, nil, false, errSequence
	}
	r.sequence++
	return frame[kindAt], frame[frameHeaderBytes:], owned, nil
}

// fill makes n bytes available at from. io.EOF means that the stream ended between frames.
func (r *frameReader) fill(n int) error {
	if r.to-r.from >= n {
		return nil
	}
	if r.from > 0 {
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	}
	for r.to < n {
		got, err := r.source.Read(r.buf[r.to:])
		r.to += got
		if err != nil && r.to < n {
			if r.to > 0 || n > frameHeaderBytes {
				return noEOF(err)
			}
			return err
		}
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
