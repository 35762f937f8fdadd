package sim

import (
	"time"

	"carillon/timer"
)

// breaker is a destination's, as one process has it. It does what package callback's does, on the simulated clock.
type breaker struct {
	failures int
	until    time.Duration // open until then, and half open after; 0: closed
	probing  bool
}

// blocked is when to ask again; 0: a call may be made. While the breaker is half open that call is the probe, as the caller notes.
func (b *breaker) blocked(now time.Duration, p *timer.Breaker) time.Duration {
	switch open := time.Duration(p.OpenMs) * time.Millisecond; {
	case b.until == 0:
		return 0
	case now < b.until:
		return b.until - now
	case b.probing:
		return open / 8
	}
	return 0
}

// tell is how a call ended, made while the breaker was closed (or not: a probe).
func (b *breaker) tell(now time.Duration, p *timer.Breaker, probe, failed bool) {
	switch {
	case b.until != 0 && !probe: // it began before the breaker opened
	case !failed:
		*b = breaker{}
	default:
		if b.failures++; probe || b.failures >= p.Failures {
			*b = breaker{until: now + time.Duration(p.OpenMs)*time.Millisecond}
		}
	}
}
