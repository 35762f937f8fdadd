package sim

import (
	"time"

	"carillon/timer"
)

// breaker is one process's circuit breaker for a destination. It behaves like the one of package
// callback, on the simulated clock.
type breaker struct {
	failures int
	until    time.Duration // open until then, half open after it; 0: closed
	probing  bool
}

// blocked is how long no call is allowed; 0: a call may start. While the breaker is half open that
// call is the probe, and the caller records it.
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

// tell reports the end of a call to the breaker. probe is true for the probe of a half-open
// breaker.
func (b *breaker) tell(now time.Duration, p *timer.Breaker, probe, failed bool) {
	switch {
	case b.until != 0 && !probe: // the call began before the breaker opened
	case !failed:
		*b = breaker{}
	default:
		if b.failures++; probe || b.failures >= p.Failures {
			*b = breaker{until: now + time.Duration(p.OpenMs)*time.Millisecond}
		}
	}
}
