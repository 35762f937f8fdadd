package encoding

import (
	"encoding/binary"
	"math"

	"carillon/timer"
)

// Codec writes a message or reads one. A function that takes a Codec and a message names the fields
// in their order, and so describes both directions. A Codec that writes leaves the message as it
// is; one that reads behaves as a Reader.
type Codec struct {
	Reader
	Out   []byte // what was written
	Reads bool
}

// Reading returns a Codec that reads a message.
func Reading(b []byte) Codec { return Codec{Reader: Reader{Rest: b}, Reads: true} }

// Number is a uvarint. What is beyond the limit is written as the limit.
func Number[T ~int | ~int64 | ~uint16 | ~uint32 | ~uint64](c *Codec, v *T, limit uint64, what string) {
	if c.Reads {
		*v = T(c.Reader.Number(limit, what))
		return
	}
	c.Out = binary.AppendUvarint(c.Out, min(uint64(max(*v, 0)), limit))
}

// Uint32 is a uvarint.
func Uint32[T ~uint32](c *Codec, v *T, what string) { Number(c, v, math.MaxUint32, what) }

// Uvarints are numbers without a limit.
func (c *Codec) Uvarints(all ...*uint64) {
	for _, v := range all {
		Number(c, v, math.MaxUint64, "")
	}
}

// Signed are numbers with a sign.
func Signed[T ~int | ~int64](c *Codec, all ...*T) {
	for _, v := range all {
		if c.Reads {
			*v = T(c.Varint())
		} else {
			c.Out = binary.AppendVarint(c.Out, int64(*v))
		}
	}
}

func Octet[T ~uint8](c *Codec, v *T) {
	if c.Reads {
		*v = T(c.Byte())
		return
	}
	c.Out = append(c.Out, byte(*v))
}

// Fixed32 and Fixed64 have all their bytes.
func (c *Codec) Fixed32(v *uint32) {
	if c.Reads {
		*v = c.u32()
		return
	}
	c.Out = binary.LittleEndian.AppendUint32(c.Out, *v)
}

func (c *Codec) Fixed64(v *uint64) {
	if c.Reads {
		*v = c.U64()
		return
	}
	c.Out = binary.LittleEndian.AppendUint64(c.Out, *v)
}

// Flags are the bits of a byte, from the lowest on; more than eight are those of a uvarint.
func (c *Codec) Flags(what string, all ...*bool) {
	var bits uint64
	for i, on := range all {
		if *on {
			bits |= 1 << i
		}
	}
	switch short := len(all) <= 8; {
	case !c.Reads && short:
		c.Out = append(c.Out, byte(bits))
		return
	case !c.Reads:
		c.Out = binary.AppendUvarint(c.Out, bits)
		return
	case short:
		bits = uint64(c.Byte())
	default:
		bits = c.Uvarint()
	}
	if bits>>len(all) != 0 {
		c.Fail("unknown flags of " + what)
	}
	for i, on := range all {
		*on = bits>>i&1 != 0
	}
}

// Text follows its length. Bytes that were read are a part of the message.
func Text[T ~string | ~[]byte](c *Codec, v *T, limit int, what string) {
	if c.Reads {
		*v = T(c.Block(limit, what))
		return
	}
	c.Out = AppendBlock(c.Out, *v)
}

// CutText is a text of which at most so many bytes are written.
func CutText(c *Codec, v *string, limit int, what string) {
	cut := Cut(*v, limit)
	if Text(c, &cut, limit, what); c.Reads {
		*v = cut
	}
}

// List is up to most elements of at least size bytes each, which follow their number.
func List[T any](c *Codec, list *[]T, most, size int, what string, each func(*Codec, *T)) {
	n := len(*list)
	if !c.Reads {
		c.Out = binary.AppendUvarint(c.Out, uint64(n))
	} else if n = c.Count(most, size, what); n > 0 {
		*list = make([]T, n)
	}
	for i := 0; i < n && (!c.Reads || c.Fault == ""); i++ {
		each(c, &(*list)[i])
	}
}

// Made returns what a message points to; a Codec that reads makes it.
func Made[T any](c *Codec, p **T) *T {
	if c.Reads {
		*p = new(T)
	}
	return *p
}

// Failure is an attempt's error and answer.
func (c *Codec) Failure(text *string, a **timer.Answer) {
	if c.Reads {
		*text, *a = c.Reader.Failure()
		return
	}
	c.Out = AppendError(c.Out, *text, *a)
}
