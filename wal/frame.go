package wal

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

const (
	frameMagic   uint16 = 0xCA71
	frameVersion uint8  = 1

	frameHeaderBytes = 40

	// MaxFrameBytes bounds a frame, header included.
	MaxFrameBytes = 64 << 20
)

// Offsets within the frame header.
const (
	offMagic   = 0
	offVersion = 2
	offFlags   = 3
	offHash    = 4
	offSeq     = 12
	offPrev    = 20
	offSynced  = 24
	offWallMs  = 32
)

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
	splice   bool   // the last of some that were repaired: see flagSplice
}

// flagSplice marks the last of the frames that took the place of lost ones (DamagedStream.Mend).
// The frame behind it was written with the hash of the one that was lost; that value, a u32, stands
// before the records.
const flagSplice = 1

const spliceBytes = 4

// sealFrame writes the header into b and returns the frame's hash.
func sealFrame(b []byte, h header) uint64 {
	binary.LittleEndian.PutUint16(b[offMagic:], frameMagic)
	b[offVersion] = frameVersion
	b[offFlags] = 0
	if h.splice {
		b[offFlags] = flagSplice
	}
	binary.LittleEndian.PutUint64(b[offSeq:], h.seq)
	binary.LittleEndian.PutUint32(b[offPrev:], h.prevHash)
	binary.LittleEndian.PutUint64(b[offSynced:], h.synced)
	binary.LittleEndian.PutUint64(b[offWallMs:], h.wallMs)
	sum := hashFrame(b)
	binary.LittleEndian.PutUint64(b[offHash:], sum)
	return sum
}

// hashFrame covers every byte of the frame but the hash itself: the hash before it is the seed.
func hashFrame(b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(binary.LittleEndian.Uint32(b)))
	_, _ = d.Write(b[offHash+8:])
	return d.Sum64()
}

// openFrame verifies a frame by itself: magic, hash, version, records.
func openFrame(b []byte) (h header, hash uint64, err error) {
	if len(b) < frameHeaderBytes {
		return h, 0, errLength
	}
	if binary.LittleEndian.Uint16(b) != frameMagic {
		return h, 0, errMagic
	}
	hash = binary.LittleEndian.Uint64(b[offHash:])
	if hashFrame(b) != hash {
		return h, 0, errChecksum
	}
	if b[offVersion] != frameVersion || b[offFlags]&^flagSplice != 0 {
		return h, 0, errVersion
	}
	h = header{
		seq:      binary.LittleEndian.Uint64(b[offSeq:]),
		prevHash: binary.LittleEndian.Uint32(b[offPrev:]),
		synced:   binary.LittleEndian.Uint64(b[offSynced:]),
		wallMs:   binary.LittleEndian.Uint64(b[offWallMs:]),
		splice:   b[offFlags]&flagSplice != 0,
	}
	if h.splice && len(b) < frameHeaderBytes+spliceBytes {
		return h, 0, errRecords
	}
	return h, hash, nil
}
