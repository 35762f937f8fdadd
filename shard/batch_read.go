package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFormat means that bytes are not what this version writes: damaged, or of a newer version.
var ErrFormat = errors.New("unreadable")

// reader takes values off the front of a block. After the first that is not there, every value is zero and
// fault says what was wrong; so callers check once.
type reader struct {
	b     []byte
	fault string
}

func (r *reader) fail(what string) {
	if r.fault == "" {
		r.fault = what
	}
	r.b = nil
}

func (r *reader) err() error {
	if r.fault == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrFormat, r.fault)
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("ends early")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) u16() uint16 {
	if v := r.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if v := r.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if v := r.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// take returns n bytes, a part of the block, or nil.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail("ends early")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// number reads a uvarint of at most limit.
func (r *reader) number(limit uint64, what string) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail(what + " out of range")
		return 0
	}
	return v
}

// block reads a length of at most limit and that many bytes.
func (r *reader) block(limit int, what string) []byte {
	return r.take(int(r.number(uint64(limit), what)))
}

func appendBlock(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// close ends reading: nothing may be left.
func (r *reader) close() error {
	if len(r.b) > 0 {
		r.fail("message is too long")
	}
	return r.err()
}

// count reads how many elements follow, each of at least size bytes.
func (r *reader) count(limit, size int, what string) int {
	return int(r.number(uint64(min(limit, len(r.b)/size)), what))
}

// maxBlock bounds a command or a spec.
const maxBlock = 1<<21 - 1

// openBlock leaves room for the length of what follows; closeBlock fills it in.
func openBlock(dst []byte) (out []byte, at int) {
	return append(dst, 0, 0, 0), len(dst) + 3
}

func closeBlock(b []byte, at int) {
	size := len(b) - at
	if size > maxBlock {
		panic(fmt.Sprintf("shard: block of %d bytes, at most %d fit", size, maxBlock))
	}
	b[at-3], b[at-2], b[at-1] = byte(size)|0x80, byte(size>>7)|0x80, byte(size>>14)
}

// cut shortens a text to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
