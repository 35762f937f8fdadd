package encoding

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFormat means that the bytes were not written by this version: they are damaged, or of a newer
// version.
var ErrFormat = errors.New("unreadable")

// Reader takes values off the front of a block. After the first fault every value is zero and Fault
// describes it, so callers check once.
type Reader struct {
	Rest  []byte
	Fault string
}

func (r *Reader) Fail(what string) {
	if r.Fault == "" {
		r.Fault = what
	}
	r.Rest = nil
}

func (r *Reader) Err() error {
	if r.Fault == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrFormat, r.Fault)
}

func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Fail("ends early")
		return 0
	}
	v := r.Rest[0]
	r.Rest = r.Rest[1:]
	return v
}

func (r *Reader) U16() uint16 {
	if v := r.Take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (r *Reader) u32() uint32 {
	if v := r.Take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (r *Reader) U64() uint64 {
	if v := r.Take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// Take returns n bytes, a part of the block, or nil.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.Rest) {
		r.Fail("ends early")
		return nil
	}
	v := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return v
}

func (r *Reader) Uvarint() uint64 {
	if len(r.Rest) > 0 && r.Rest[0] < 0x80 {
		v := r.Rest[0]
		r.Rest = r.Rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Fail("bad number")
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Number reads a uvarint of at most limit.
func (r *Reader) Number(limit uint64, what string) uint64 {
	v := r.Uvarint()
	if v > limit {
		r.Fail(what + " out of range")
		return 0
	}
	return v
}

// Block reads a length of at most limit and that many bytes.
func (r *Reader) Block(limit int, what string) []byte {
	return r.Take(int(r.Number(uint64(limit), what)))
}

// Flag returns the flag if it is on.
func Flag(on bool, flag byte) byte {
	if on {
		return flag
	}
	return 0
}

func AppendUvarints(dst []byte, all ...uint64) []byte {
	for _, n := range all {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

func AppendVarints(dst []byte, all ...int64) []byte {
	for _, n := range all {
		dst = binary.AppendVarint(dst, n)
	}
	return dst
}

func AppendBlock[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func UvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// Close ends reading. It is a fault if bytes are left.
func (r *Reader) Close() error {
	if len(r.Rest) > 0 {
		r.Fail("message is too long")
	}
	return r.Err()
}

// Count reads how many elements follow, each of at least size bytes.
func (r *Reader) Count(limit, size int, what string) int {
	return int(r.Number(uint64(min(limit, len(r.Rest)/size)), what))
}

// MaxBlock bounds a command or a spec.
const MaxBlock = 1<<21 - 1

// OpenBlock reserves room for the length of the following block; CloseBlock fills it in.
func OpenBlock(dst []byte) (out []byte, at int) {
	return append(dst, 0, 0, 0), len(dst) + 3
}

func CloseBlock(b []byte, at int) {
	size := len(b) - at
	if size > MaxBlock {
		panic(fmt.Sprintf("shard: block of %d bytes, at most %d fit", size, MaxBlock))
	}
	b[at-3], b[at-2], b[at-1] = byte(size)|0x80, byte(size>>7)|0x80, byte(size>>14)
}

// Cut shortens a text to at most n bytes, between two characters.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
