package encoding

import "carillon/timer"

// maxRepeat bounds an encoded repeat.
const maxRepeat = 2048

// appendRepeat writes a repeat behind its length.
func appendRepeat(dst []byte, p *timer.Repeat) []byte {
	c := Codec{Out: make([]byte, 0, 128)}
	c.repeat(p)
	return AppendBlock(dst, c.Out)
}

// DecodeRepeat reads the output of appendRepeat after its length, into an empty repeat.
func DecodeRepeat(p *timer.Repeat, b []byte) error {
	c := Reading(b)
	c.repeat(p)
	return c.Close()
}

func (c *Codec) repeat(p *timer.Repeat) {
	cron, every, until, count := p.Cron != "" || p.Zone != "", p.EveryMs != 0, p.UntilMs != 0, p.Count != 0
	c.Flags("a repeat", &cron, &every, &until, &count, &p.Overlap)
	if Octet(c, &p.CatchUp); p.CatchUp > timer.CatchUpAll {
		c.Fail("unknown catch-up")
	}
	if cron {
		Text(c, &p.Cron, maxRepeat, "cron")
		Text(c, &p.Zone, maxRepeat, "zone")
	}
	if every {
		Signed(c, &p.EveryMs)
	}
	if until {
		Signed(c, &p.UntilMs)
	}
	if count {
		Signed(c, &p.Count)
	}
}
