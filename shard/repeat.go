package shard

import (
	"encoding/binary"
	"math"
)

// CatchUp says what becomes of occurrences whose time passed while the cluster was down, the topic paused, or the last one still ran.
// The values are part of the log format.
type CatchUp uint8

// The ways to catch up.
const (
	CatchUpOne  CatchUp = iota // one call for all that were missed
	CatchUpSkip                // none: on with the next one to come
	CatchUpAll                 // each, one after the other
)

// Repeat makes a timer a series of occurrences: by Cron in Zone, or Every. Bounds are the API's.
type Repeat struct {
	Cron    string // five fields; "": Every counts
	Zone    string // IANA; "" is UTC
	EveryMs int64  // from due to due
	UntilMs int64  // no occurrence is due after it; 0 = open
	Count   int64  // of occurrences; 0 = open
	CatchUp CatchUp
	Overlap bool // the next occurrence does not wait for the end of the last
}

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

// appendRepeat writes length, bits, catch-up and what the bits say is there.
func appendRepeat(dst []byte, p *Repeat) []byte {
	var room [128]byte
	var bits byte
	set := func(on bool, bit byte) {
		if on {
			bits |= bit
		}
	}
	set(p.Cron != "" || p.Zone != "", repeatCron)
	set(p.EveryMs != 0, repeatEvery)
	set(p.UntilMs != 0, repeatUntil)
	set(p.Count != 0, repeatCount)
	set(p.Overlap, repeatOverlap)
	b := append(room[:0], bits, byte(p.CatchUp))
	if bits&repeatCron != 0 {
		b = appendBlock(appendBlock(b, p.Cron), p.Zone)
	}
	for _, n := range [...]int64{p.EveryMs, p.UntilMs, p.Count} {
		if n != 0 {
			b = binary.AppendVarint(b, n)
		}
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func (p *Repeat) decode(b []byte) error {
	r := reader{b: b}
	bits := r.byte()
	if bits&^repeatBits != 0 {
		r.fail("unknown bits of a repeat")
	}
	*p = Repeat{CatchUp: CatchUp(r.byte()), Overlap: bits&repeatOverlap != 0}
	if p.CatchUp > CatchUpAll {
		r.fail("unknown catch-up")
	}
	if bits&repeatCron != 0 {
		p.Cron, p.Zone = string(r.block(maxRepeat, "cron")), string(r.block(maxRepeat, "zone"))
	}
	for _, f := range [...]struct {
		bit byte
		to  *int64
	}{{repeatEvery, &p.EveryMs}, {repeatUntil, &p.UntilMs}, {repeatCount, &p.Count}} {
		if bits&f.bit != 0 {
			*f.to = r.varint()
		}
	}
	if len(r.b) > 0 {
		r.fail("repeat is too long")
	}
	return r.err()
}

// after is the first occurrence later than ms; 0: none.
func (p *Repeat) after(c *calendar, dueMs, ms int64) int64 {
	if p.Cron != "" {
		return c.after(p.Cron, p.Zone, ms)
	}
	if p.EveryMs <= 0 || dueMs > math.MaxInt64/4 {
		return 0
	}
	steps := int64(1)
	if ms > dueMs {
		steps += (ms - dueMs) / p.EveryMs
	}
	return dueMs + steps*p.EveryMs
}

// nearest is the first occurrence later than ms of a series that has one at dueMs, which is not before it.
func (p *Repeat) nearest(c *calendar, dueMs, ms int64) int64 {
	next := p.after(c, dueMs, ms)
	if p.Cron == "" && p.EveryMs > 0 && dueMs > ms {
		next = dueMs - (dueMs-ms-1)/p.EveryMs*p.EveryMs
	}
	if next == 0 {
		return dueMs
	}
	return next
}

// last is the latest occurrence that is later than ms and not later than nowMs; 0: none.
func (p *Repeat) last(c *calendar, dueMs, ms, nowMs int64) int64 {
	low, found := ms, p.after(c, dueMs, ms)
	if found == 0 || found > nowMs {
		return 0
	}
	// Invariant: what comes after low is found, which is not later than nowMs; after nowMs there is none that is.
	for high := nowMs; high-low > 1; {
		mid := low + (high-low)/2
		if next := p.after(c, dueMs, mid); next != 0 && next <= nowMs {
			low, found = max(mid, next), next
		} else {
			high = mid
		}
	}
	return found
}

// next is when the occurrence after the one due at dueMs is due, as things stand at nowMs; 0: the series is over. startedMs is
// when the first attempt of this one started, 0 if none did: what fell due up to then is caught up by it, where one call does for all.
func (p *Repeat) next(c *calendar, dueMs, startedMs, nowMs int64) int64 {
	next := int64(0)
	switch p.CatchUp {
	case CatchUpAll:
		next = p.after(c, dueMs, dueMs)
	case CatchUpSkip:
		next = p.after(c, dueMs, max(dueMs, nowMs))
	default:
		from := max(dueMs, startedMs)
		if next = p.last(c, dueMs, from, nowMs); next == 0 {
			next = p.after(c, dueMs, from)
		}
	}
	if p.UntilMs != 0 && next > p.UntilMs {
		return 0
	}
	return next
}
