package spec

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// RetryFieldNames are in the order of the bits.
var RetryFieldNames = []string{"max_attempts", "min_backoff", "max_backoff", "multiplier", "jitter"}

// ReadRetry reads the object of a retry policy.
func ReadRetry(r *web.Reader, p *timer.Retry, given, null *web.Fields) {
	r.Object("retry", RetryFieldNames, func(i int) {
		f := FMaxAttempts << i
		*given |= f
		if r.Null() {
			*null |= f
		} else {
			readRetryField(r, p, f)
		}
	})
	if p.MinBackoffMs != 0 && p.MaxBackoffMs != 0 && p.MinBackoffMs > p.MaxBackoffMs {
		r.Reject(r.OutOfRange("retry: min_backoff is longer than max_backoff"))
	}
}

func readRetryField(r *web.Reader, p *timer.Retry, f web.Fields) {
	switch f {
	case FMaxAttempts:
		p.MaxAttempts = int(r.Ranged("retry.max_attempts", 1, maxAttempts))
	case FMinBackoff:
		p.MinBackoffMs = r.RangedSpan("retry.min_backoff", 1, maxBackoffMs)
	case FMaxBackoff:
		p.MaxBackoffMs = r.RangedSpan("retry.max_backoff", 1, maxBackoffMs)
	case FMultiplier:
		p.Multiplier = r.Float("retry.multiplier")
		if !(p.Multiplier >= 1 && p.Multiplier <= maxMultiplier) {
			r.Reject(r.OutOfRange("retry.multiplier: must be 1 to 10"))
		}
	case FJitter:
		p.Jitter, p.HasJitter = r.Float("retry.jitter"), true
		if !(p.Jitter >= 0 && p.Jitter <= 1) {
			r.Reject(r.OutOfRange("retry.jitter: must be 0 to 1"))
		}
	}
}

// AppendRetry writes the fields of a retry policy that have a value.
func AppendRetry(b []byte, r *timer.Retry) []byte {
	o := web.Object{B: b}
	o.OptInteger("max_attempts", int64(r.MaxAttempts))
	o.OptSpan("min_backoff", r.MinBackoffMs)
	o.OptSpan("max_backoff", r.MaxBackoffMs)
	if r.Multiplier != 0 {
		o.Float("multiplier", r.Multiplier)
	}
	if r.HasJitter {
		o.Float("jitter", r.Jitter)
	}
	return o.End()
}
