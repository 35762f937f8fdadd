package encoding

import (
	"carillon/timer"
)

const leaseUpdateHasDelay = 1 // a flag of a lease update

func appendLeaseUpdate(dst []byte, c *timer.LeaseUpdate) []byte {
	flags := Flag(c.HasDelay, leaseUpdateHasDelay)
	dst = append(dst, flags)
	dst = AppendUvarints(dst, uint64(c.Handle), c.Seq, c.Fence)
	dst = AppendVarints(dst, c.LeaseMs, c.DelayMs)
	return AppendBlock(dst, Cut(c.Reason, MaxErr))
}

func decodeLeaseUpdate(b []byte) (*timer.LeaseUpdate, error) {
	r := Reader{Rest: b}
	c := new(timer.LeaseUpdate)
	flags := r.Byte()
	if flags&^leaseUpdateHasDelay != 0 {
		r.Fail("unknown flags of a claim")
	}
	c.HasDelay = flags&leaseUpdateHasDelay != 0
	c.Handle = timer.Handle(r.Number(1<<32-1, "handle"))
	c.Seq, c.Fence = r.Uvarint(), r.Uvarint()
	if c.LeaseMs, c.DelayMs = r.Varint(), r.Varint(); min(c.LeaseMs, c.DelayMs) < 0 || max(c.LeaseMs, c.DelayMs) > timer.MaxMs {
		r.Fail("span of a claim out of range")
	}
	c.Reason = string(r.Block(MaxErr, "reason"))
	return c, r.Close()
}
