package encoding

import (
	"encoding/binary"

	"carillon/timer"
)

// Flags of a timer, of those that Codec.Timer names.
const (
	TimerCancelRequested = 1 << 0
	TimerAsked           = 1 << 3 // the time is last
	// TimerCollects: how many payloads the array has, and whether it is full, are last.
	TimerCollects = 1 << 6
	TimerOrigin   = 1 << 7 // the shard that gave the number is last
)

// Timer is a whole timer; after a fault it has no meaning.
func (c *Codec) Timer(t *timer.Timer) {
	Uint32(c, &t.Topic, "topic")
	Text(c, &t.ID, MaxID, "id")
	c.spec(&t.Spec)
	c.Uvarints(&t.Seq)
	c.Fixed32(&t.Tag)
	Uint32(c, &t.Version, "version")
	Octet(c, &t.State)
	if Octet(c, &t.Reason); t.State < timer.Scheduled || t.State > timer.Cancelled || t.Reason > timer.Refused {
		c.Fail("unknown state or reason")
	}
	var unused bool
	asked, collects, origin := t.AskedMs != 0, t.Collected != 0, t.Origin != 0
	made := t.Content != 0 || t.FirstMs != 0 || t.Occurrence != 0 // the history does not keep these
	c.Flags("a timer", &t.CancelRequested, &t.Successor, &unused, &asked, &made, &t.Paused, &collects, &origin)
	Signed(c, &t.NextMs, &t.CreatedMs, &t.UpdatedMs, &t.EndedMs, &t.FiredMs, &t.LatenessMs)
	Signed(c, &t.Attempts)
	c.Uvarints(&t.Fence)
	Signed(c, &t.LastStatus)
	if made {
		c.Fixed64(&t.Content)
		Signed(c, &t.FirstMs)
		Uint32(c, &t.Occurrence, "occurrence")
	}
	c.Failure(&t.LastError, &t.LastAnswer)
	if asked {
		Signed(c, &t.AskedMs)
	}
	if collects {
		word := collected(int(t.Collected), t.Full)
		if Number(c, &word, timer.MaxCollectMax<<1|1, "collected"); c.Reads {
			t.Collected, t.Full = uint16(word>>1), word&1 != 0
		}
	}
	if origin {
		Uint32(c, &t.Origin, "origin")
	}
}

// spec is a spec behind its length.
func (c *Codec) spec(s *timer.Spec) {
	if !c.Reads {
		out, at := OpenBlock(c.Out)
		c.Out = AppendSpec(out, s)
		CloseBlock(c.Out, at)
		return
	}
	body := Reader{Rest: c.Block(MaxBlock, "spec")}
	if c.Fault != "" {
		return
	}
	raw := body.Spec()
	if err := body.Err(); err != nil {
		c.Fail("spec " + body.Fault)
	} else if err := raw.DecodeTo(s); err != nil {
		c.Fail("spec cannot be read")
	}
}

// AppendCollected writes how many payloads an array has, and whether it is full.
func AppendCollected(dst []byte, n int, full bool) []byte {
	return binary.AppendUvarint(dst, collected(n, full))
}

func collected(n int, full bool) uint64 { return uint64(n)<<1 | uint64(Flag(full, 1)) }
