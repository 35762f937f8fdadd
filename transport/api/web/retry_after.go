package web

import (
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

const lowDiskRetry = 30 // seconds: room does not come by itself within a moment

// retryable: the same request may succeed later without anything else having changed.
func (p *Problem) retryable() bool { return p.Status == 503 || p.Status == 429 || p.Status == 408 }

// RetrySeconds is the value of Retry-After where the same request may succeed after a while; else
// 0.
func (p *Problem) RetrySeconds() int {
	if p.Status == 503 || p.Status == 429 {
		return max(1, p.RetryAfter)
	}
	return 0
}

func (p *Problem) setRetryAfter(h *fasthttp.ResponseHeader) {
	if seconds := p.RetrySeconds(); seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
}

// retryAfter is in how many seconds a used up quota has one action again, an hour at most.
func (q *Quota) retryAfter(now time.Time) int {
	wait := time.Duration((1 - q.limiter.TokensAt(now)) / q.Rule.PerSecond * float64(time.Second))
	return int(min(math.Ceil(wait.Seconds()), 3600))
}
