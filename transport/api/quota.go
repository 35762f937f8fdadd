package api

import (
	"crypto/sha256"
	"math"
	"sync"
	"time"
)

// Bounds of a token's quota.
const (
	minQuotaRate  = 0.001
	maxQuotaRate  = 1e6
	maxQuotaBurst = 1_000_000
)

// quotaRule is what the auth file says of a token: adds a second, and at once.
type quotaRule struct {
	PerSecond float64 `yaml:"per_second"`
	Burst     int     `yaml:"burst"`
}

// fault says what is wrong with a rule, and fills in a burst that was left out: what one second brings, at least 1.
func (q *quotaRule) fault() string {
	if !(q.PerSecond >= minQuotaRate && q.PerSecond <= maxQuotaRate) {
		return "quota.per_second must be 0.001 to 1000000"
	}
	if q.Burst < 0 || q.Burst > maxQuotaBurst {
		return "quota.burst must be 1 to 1000000"
	}
	if q.Burst == 0 {
		q.Burst = max(1, int(math.Ceil(q.PerSecond)))
	}
	return ""
}

// quota counts a token's adds on this node. Safe for use by any goroutine.
type quota struct {
	rule quotaRule

	mu     sync.Mutex
	tokens float64
	at     time.Time // zero: nothing was taken yet
}

// take takes one add; if there is none left, it says when there will be.
func (q *quota) take(now time.Time) (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := float64(q.rule.Burst)
	if q.at.IsZero() {
		q.at, q.tokens = now, most
	}
	if passed := now.Sub(q.at); passed > 0 {
		q.tokens = min(most, q.tokens+passed.Seconds()*q.rule.PerSecond)
		q.at = now
	}
	const slack = 1e-9 // of adding up fractions
	if q.tokens < 1-slack {
		return time.Duration((1 - q.tokens) / q.rule.PerSecond * float64(time.Second)), false
	}
	q.tokens--
	return 0, true
}

// charge counts one add, or says that the token's quota is used up.
func (rq *request) charge(v verb) *problem {
	if v != vAdd && v != vPut || rq.who == nil || rq.who.quota == nil {
		return nil
	}
	wait, ok := rq.who.quota.take(rq.s.cfg.Clock())
	if ok {
		return nil
	}
	p := failf(429, "quota", "this token may add %v timers a second, %d at once", rq.who.quota.rule.PerSecond, rq.who.quota.rule.Burst)
	p.retryAfter = int(min(math.Ceil(wait.Seconds()), 3600))
	return p
}

// keepQuotas lets tokens that were there before go on with what is left of their quotas, as far as these are the same.
func keepQuotas(list, before []principal) {
	had := map[[sha256.Size]byte]*quota{}
	for i := range before {
		had[before[i].sum] = before[i].quota
	}
	for i := range list {
		p := &list[i]
		if old := had[p.sum]; p.quota != nil && old != nil && p.quota.rule == old.rule {
			p.quota = old
		}
	}
}
