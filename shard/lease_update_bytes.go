package shard

import (
	"encoding/binary"

	"carillon/timer"
)

const leaseUpdateHasDelay = 1 // a flag of a claim

func appendLeaseUpdate(dst []byte, c *timer.LeaseUpdate) []byte {
	var flags byte
	if c.HasDelay {
		flags |= leaseUpdateHasDelay
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(c.Handle))
	dst = binary.AppendUvarint(dst, c.Seq)
	dst = binary.AppendUvarint(dst, c.Fence)
	dst = binary.AppendVarint(dst, c.LeaseMs)
	dst = binary.AppendVarint(dst, c.DelayMs)
	return appendBlock(dst, cut(c.Reason, maxErr))
}

func decodeLeaseUpdate(b []byte) (*timer.LeaseUpdate, error) {
	r := reader{b: b}
	c := new(timer.LeaseUpdate)
	flags := r.byte()
	if flags&^leaseUpdateHasDelay != 0 {
		r.fail("unknown flags of a claim")
	}
	c.HasDelay = flags&leaseUpdateHasDelay != 0
	c.Handle = timer.Handle(r.number(1<<32-1, "handle"))
	c.Seq, c.Fence = r.uvarint(), r.uvarint()
	if c.LeaseMs, c.DelayMs = r.varint(), r.varint(); min(c.LeaseMs, c.DelayMs) < 0 || max(c.LeaseMs, c.DelayMs) > timer.MaxMs {
		r.fail("span of a claim out of range")
	}
	c.Reason = string(r.block(maxErr, "reason"))
	return c, r.close()
}
