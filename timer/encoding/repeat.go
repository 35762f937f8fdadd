package encoding

import (
	"encoding/binary"

	"carillon/timer"
)

// maxRepeat bounds an encoded repeat.
const maxRepeat = 2048

// Bits of an encoded repeat.
const (
	repeatCron = 1 << iota
	repeatEvery
	repeatUntil
	repeatCount
	repeatOverlap

	repeatBits = 1<<iota - 1
)

// appendRepeat writes length, bits, catch-up and the fields that the bits name.
func appendRepeat(dst []byte, p *timer.Repeat) []byte {
	var room [128]byte
	bits := Flag(p.Cron != "" || p.Zone != "", repeatCron) | Flag(p.EveryMs != 0, repeatEvery) | Flag(p.UntilMs != 0, repeatUntil) |
		Flag(p.Count != 0, repeatCount) | Flag(p.Overlap, repeatOverlap)
	b := append(room[:0], bits, byte(p.CatchUp))
	if bits&repeatCron != 0 {
		b = AppendBlock(AppendBlock(b, p.Cron), p.Zone)
	}
	for _, n := range [...]int64{p.EveryMs, p.UntilMs, p.Count} {
		if n != 0 {
			b = binary.AppendVarint(b, n)
		}
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// DecodeRepeat reads the output of appendRepeat after its length.
func DecodeRepeat(p *timer.Repeat, b []byte) error {
	r := Reader{Rest: b}
	bits := r.Byte()
	if bits&^repeatBits != 0 {
		r.Fail("unknown bits of a repeat")
	}
	*p = timer.Repeat{CatchUp: timer.CatchUp(r.Byte()), Overlap: bits&repeatOverlap != 0}
	if p.CatchUp > timer.CatchUpAll {
		r.Fail("unknown catch-up")
	}
	if bits&repeatCron != 0 {
		p.Cron, p.Zone = string(r.Block(maxRepeat, "cron")), string(r.Block(maxRepeat, "zone"))
	}
	for _, f := range [...]struct {
		bit byte
		to  *int64
	}{{repeatEvery, &p.EveryMs}, {repeatUntil, &p.UntilMs}, {repeatCount, &p.Count}} {
		if bits&f.bit != 0 {
			*f.to = r.Varint()
		}
	}
	if len(r.Rest) > 0 {
		r.Fail("repeat is too long")
	}
	return r.Err()
}
