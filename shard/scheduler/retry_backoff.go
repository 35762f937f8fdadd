package scheduler

import (
	"math"

	"carillon/internal/delivery"
	"carillon/timer"
)

// retryMs is how long the next attempt waits: as the receiver asked, or the backoff.
func retryMs(p *timer.Policy, own *timer.Retry, attempts int, a *delivery.Outcome, random float64) int64 {
	if a.RetryAfterMs > 0 {
		return a.RetryAfterMs
	}
	return backoffMs(p, own, attempts, random)
}

// backoffMs is min(max, min · multiplier^(n−1)) × (1 ± jitter), at least 1 ms.
func backoffMs(p *timer.Policy, own *timer.Retry, attempts int, random float64) int64 {
	least, most, factor, jitter := p.MinBackoffMs, p.MaxBackoffMs, p.Multiplier, p.Jitter
	if own.MinBackoffMs > 0 {
		least = own.MinBackoffMs
	}
	if own.MaxBackoffMs > 0 {
		most = own.MaxBackoffMs
	}
	if own.Multiplier > 0 {
		factor = own.Multiplier
	}
	if own.HasJitter {
		jitter = own.Jitter
	}
	wait := math.Min(float64(most), float64(least)*math.Pow(factor, float64(attempts-1)))
	wait *= 1 + jitter*(2*random-1)
	return max(1, int64(math.Ceil(wait)))
}
