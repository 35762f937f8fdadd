package web

import (
	"cmp"
	"math"

	"golang.org/x/time/rate"
)

// Bounds of a token's quota.
const (
	minQuotaRate  = 0.001
	maxQuotaRate  = 1e6
	maxQuotaBurst = 1_000_000
)

// QuotaRule is a token's quota in the auth file: so many a second, and at once.
type QuotaRule struct {
	PerSecond float64
	Burst     int
}

// The actions that a token's quotas count, each on its own.
const (
	QuotaAdds = iota // timers that are added or put whole
	// Every other change of a timer, each of a batch; changes by filter and pulls, each as one. The
	// end of a lease is free.
	QuotaChanges
	QuotaReads // requests that read
	quotaKinds
)

// QuotaNames are their fields in the auth file.
var QuotaNames = [quotaKinds]string{"quota", "quota_changes", "quota_reads"}

// Fault is why a rule is not valid, and fills in a burst that was left out: the rate of one
// second, at least 1.
func (q *QuotaRule) Fault() string {
	if !(q.PerSecond >= minQuotaRate && q.PerSecond <= maxQuotaRate) {
		return "per_second: 0.001 to 1000000 is expected"
	}
	if q.Burst < 0 || q.Burst > maxQuotaBurst {
		return "burst: 1 to 1000000 is expected"
	}
	q.Burst = cmp.Or(q.Burst, max(1, int(math.Ceil(q.PerSecond))))
	return ""
}

// Quota counts the actions of a token on this node. Safe for use by any goroutine.
type Quota struct {
	Rule    QuotaRule
	limiter *rate.Limiter
}

// NewQuota is a quota of which nothing is used.
func NewQuota(rule QuotaRule) *Quota {
	return &Quota{rule, rate.NewLimiter(rate.Limit(rule.PerSecond), rule.Burst)}
}

// Charge counts one action, or refuses it when the quota is used up.
func (rq *Request) Charge(kind int) *Problem {
	if rq.Who == nil || rq.Who.Quotas[kind] == nil {
		return nil
	}
	q := rq.Who.Quotas[kind]
	now := rq.Now()
	if q.limiter.AllowN(now, 1) {
		return nil
	}
	what := [quotaKinds]string{"add %v timers", "make %v changes", "make %v reads"}[kind]
	p := Failf(429, "quota", "this token may "+what+" a second at this node, %d at once", q.Rule.PerSecond, q.Rule.Burst)
	p.RetryAfter = q.retryAfter(now)
	return p
}
