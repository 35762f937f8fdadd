package scheduler

import (
	"math"
	"slices"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// judge decides the outcome of an attempt by the topic's policy and the timer's own retry settings.
// attempts includes this one; random in [0,1) spreads the backoff. judge reads no clock: its
// decision is logged as it is.
func judge(p *timer.Policy, own *timer.Retry, attempts int, a *delivery.Outcome, random float64) table.Outcome {
	out := table.Outcome{StartedMs: a.StartedMs, EndedMs: a.EndedMs, Status: a.Status, Err: a.Err, Answer: a.Answer}
	switch {
	case a.NotSent:
		out.Kind = table.Release
		return out
	case p.Report && a.Err == "" && a.Status == 202:
		out.Kind, out.LeaseMs = table.Accepted, p.LeaseFor()
		return out
	case a.Err == "" && a.Status >= 200 && a.Status <= 299:
		out.Kind = table.Ack
		return out
	case slices.Contains(p.StopOn, a.Status):
		out.Kind, out.Reason = table.Kill, timer.Stopped
	case attempts >= maxAttempts(p, own):
		out.Kind, out.Reason = table.Kill, timer.MaxAttempts
		if a.Refused {
			out.Reason = timer.Refused
		}
	default:
		out.Kind = table.RetryLater
		out.NextMs = a.EndedMs + backoffMs(p, own, attempts, random)
		if a.RetryAfterMs > 0 {
			out.NextMs = a.EndedMs + a.RetryAfterMs
		}
		return out
	}
	out.RetainUntilMs = a.EndedMs + p.DeadRetentionMs
	return out
}

func maxAttempts(p *timer.Policy, own *timer.Retry) int {
	if own.MaxAttempts > 0 {
		return own.MaxAttempts
	}
	return p.MaxAttempts
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

// endBy shifts an attempt that ended in the future to end now: the clock may have been set back
// since it started. justNow: the call has just ended, so an end too far in the past is shifted as
// well.
func endBy(a *delivery.Outcome, nowMs int64, justNow bool) {
	if late := a.EndedMs - nowMs; late > table.ClockAheadMs || justNow && late < -table.EndSlackMs {
		a.StartedMs, a.EndedMs = a.StartedMs-late, nowMs
	}
}
