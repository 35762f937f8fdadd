package api

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of a token's quota.
const (
	minQuotaRate  = 0.001
	maxQuotaRate  = 1e6
	maxQuotaBurst = 1_000_000
)

// quotaRule is a token's quota in the auth file: so many a second, and at once.
type quotaRule struct {
	PerSecond float64
	Burst     int
}

// The actions that a token's quotas count, each on its own.
const (
	quotaAdds = iota // timers that are added or put whole
	// Every other change of a timer, each of a batch; changes by filter and pulls, each as one. The
	// end of a lease is free.
	quotaChanges
	quotaReads // requests that read
	quotaKinds
)

// quotaNames are their fields in the auth file.
var quotaNames = [quotaKinds]string{"quota", "quota_changes", "quota_reads"}

// fault says why a rule is not valid, and fills in a burst that was left out: the rate of one
// second, at least 1.
func (q *quotaRule) fault() string {
	if !(q.PerSecond >= minQuotaRate && q.PerSecond <= maxQuotaRate) {
		return "per_second: 0.001 to 1000000 is expected"
	}
	if q.Burst < 0 || q.Burst > maxQuotaBurst {
		return "burst: 1 to 1000000 is expected"
	}
	if q.Burst == 0 {
		q.Burst = max(1, int(math.Ceil(q.PerSecond)))
	}
	return ""
}

// quota counts the actions of a token on this node. Safe for use by any goroutine.
type quota struct {
	rule    quotaRule
	limiter *rate.Limiter
}

func newQuota(rule quotaRule) *quota {
	return &quota{rule, rate.NewLimiter(rate.Limit(rule.PerSecond), rule.Burst)}
}

// take takes one; if there is none left, it says when there will be.
func (q *quota) take(now time.Time) (wait time.Duration, ok bool) {
	if q.limiter.AllowN(now, 1) {
		return 0, true
	}
	return time.Duration((1 - q.limiter.TokensAt(now)) / q.rule.PerSecond * float64(time.Second)), false
}

// chargeVerb counts one change of a timer.
func (rq *request) chargeVerb(v verb) *problem {
	if v == vAdd || v == vPut {
		return rq.charge(quotaAdds)
	}
	return rq.charge(quotaChanges)
}

// charge counts one action, or says that the quota is used up.
func (rq *request) charge(kind int) *problem {
	if rq.who == nil || rq.who.quotas[kind] == nil {
		return nil
	}
	q := rq.who.quotas[kind]
	wait, ok := q.take(rq.s.cfg.Clock())
	if ok {
		return nil
	}
	what := [quotaKinds]string{"add %v timers", "make %v changes", "make %v reads"}[kind]
	p := failf(429, "quota", "this token may "+what+" a second at this node, %d at once", q.rule.PerSecond, q.rule.Burst)
	p.retryAfter = int(min(math.Ceil(wait.Seconds()), 3600))
	return p
}

// keepQuotas lets tokens that were there before go on with the rest of their quotas, as far as
// these are the same.
func keepQuotas(list []principal, before *principals) {
	for i := range list {
		p := &list[i]
		old := before.bySum[p.sum]
		for kind, q := range p.quotas {
			if old != nil && q != nil && old.quotas[kind] != nil && q.rule == old.quotas[kind].rule {
				p.quotas[kind] = old.quotas[kind]
			}
		}
	}
}
