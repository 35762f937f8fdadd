package wal

import (
	"encoding/binary"
)

const (
	frameVersion uint8 = 1

	frameHeaderBytes = 42

	// MaxFrameBytes bounds a frame, header included.
	MaxFrameBytes = 64 << 20
)

// Offsets within the frame header.
const (
	offMark    = 0
	offHash    = 4
	offVersion = 12
	offFlags   = 13
	offSeq     = 14
	offPrev    = 22
	offSynced  = 26
	offWallMs  = 34
)

// salt is a stream's secret: random, drawn once, kept in FIRST and never shown. A frame begins with
// its mark and its hash is seeded with it, so bytes that a client wrote cannot be a frame.
type salt uint64

// mark is what each frame of the stream begins with. A reader that looks for frames finds no others
// by it, and so spends no time on a client's bytes.
func (s salt) mark() uint32 { return uint32(s) }

// Frame collects the records that are written, and become durable, together.
// Use NewFrame, and Reset to use one again.
type Frame struct {
	buf     []byte // header room, then records
	records int
}

// NewFrame returns an empty frame.
func NewFrame() *Frame {
	return &Frame{buf: make([]byte, frameHeaderBytes, 512)}
}

// Reset empties the frame and keeps its memory.
func (f *Frame) Reset() {
	f.buf = f.buf[:frameHeaderBytes]
	f.records = 0
}

// Append adds a record; data is copied.
func (f *Frame) Append(t RecordType, shard uint32, data []byte) {
	f.buf = append(f.recordHeader(t, shard, len(data)), data...)
	f.records++
}

// AppendFunc adds a record whose body encode appends to the slice it is given.
func (f *Frame) AppendFunc(t RecordType, shard uint32, encode func(dst []byte) []byte) {
	start := len(f.buf)
	f.buf = encode(f.recordHeader(t, shard, 0))
	n := len(f.buf) - start - recordHeaderBytes
	binary.LittleEndian.PutUint32(f.buf[start+5:], uint32(n))
	f.records++
}

func (f *Frame) recordHeader(t RecordType, shard uint32, n int) []byte {
	b := append(f.buf, byte(t))
	b = binary.LittleEndian.AppendUint32(b, shard)
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// Len returns the frame's size in bytes, header included.
func (f *Frame) Len() int { return len(f.buf) }

// Records returns the number of records.
func (f *Frame) Records() int { return f.records }

// header is the part of a frame that the writer fills in.
type header struct {
	seq      uint64 // 1 is the first frame of a stream; runs across generations
	prevHash uint32 // low half of the previous frame's hash: the chain
	synced   uint64 // all frames up to this one were durable when this one was written
	wallMs   uint64 // Unix time in milliseconds, for people only
}

// seal writes the header into b and returns the frame's hash.
func (s salt) seal(b []byte, h header) uint64 {
	binary.LittleEndian.PutUint32(b[offMark:], s.mark())
	b[offVersion] = frameVersion
	b[offFlags] = 0
	binary.LittleEndian.PutUint64(b[offSeq:], h.seq)
	binary.LittleEndian.PutUint32(b[offPrev:], h.prevHash)
	binary.LittleEndian.PutUint64(b[offSynced:], h.synced)
	binary.LittleEndian.PutUint64(b[offWallMs:], h.wallMs)
	sum := hashSeeded(uint64(s), b[offVersion:])
	binary.LittleEndian.PutUint64(b[offHash:], sum)
	return sum
}

// open verifies a frame by itself: mark, hash, version, records.
func (s salt) open(b []byte) (h header, hash uint64, err error) {
	if len(b) < frameHeaderBytes {
		return h, 0, errLength
	}
	if binary.LittleEndian.Uint32(b) != s.mark() {
		return h, 0, errMark
	}
	hash = binary.LittleEndian.Uint64(b[offHash:])
	if hashSeeded(uint64(s), b[offVersion:]) != hash {
		return h, 0, errChecksum
	}
	if b[offVersion] != frameVersion || b[offFlags] != 0 {
		return h, 0, errVersion
	}
	h = header{
		seq:      binary.LittleEndian.Uint64(b[offSeq:]),
		prevHash: binary.LittleEndian.Uint32(b[offPrev:]),
		synced:   binary.LittleEndian.Uint64(b[offSynced:]),
		wallMs:   binary.LittleEndian.Uint64(b[offWallMs:]),
	}
	return h, hash, nil
}
