package encoding

import (
	"carillon/timer"
)

func appendLeaseUpdate(dst []byte, u *timer.LeaseUpdate) []byte {
	c := Codec{Out: dst}
	c.leaseUpdate(u)
	return c.Out
}

func decodeLeaseUpdate(b []byte) (*timer.LeaseUpdate, error) {
	c, u := Reading(b), new(timer.LeaseUpdate)
	c.leaseUpdate(u)
	return u, c.Close()
}

func (c *Codec) leaseUpdate(u *timer.LeaseUpdate) {
	c.Flags("a claim", &u.HasDelay)
	Uint32(c, &u.Handle, "handle")
	c.Uvarints(&u.Seq, &u.Fence)
	if Signed(c, &u.LeaseMs, &u.DelayMs); min(u.LeaseMs, u.DelayMs) < 0 || max(u.LeaseMs, u.DelayMs) > timer.MaxMs {
		c.Fail("span of a claim out of range")
	}
	CutText(c, &u.Reason, MaxErr, "reason")
}
