package api

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"carillon/secret"
	"carillon/timer"
	"carillon/transport/callback"
)

// Bounds of a policy where API.md section 3 gives none.
const (
	maxStopOn          = 64
	maxBreakerFailures = 10_000
	maxBreakerMs       = int64(msPerDay)
	maxProbes          = 1_000
	maxDestinationConc = 65_536
	maxRetentionMs     = 3653 * msPerDay
	maxSecrets         = 3
	minPerSecond       = 0.001
	maxPerSecond       = 1e6
	maxBurst           = 1_000_000
	maxSpreadMs        = 7 * msPerDay
	fingerprintPrefix  = secret.FingerprintPrefix
)

var policyFieldNames = []string{
	"delivery", "callback", "ack", "lease", "retry", "stop_on", "merge", "max_wait", "dedup", "serial", "ordered",
	"concurrency", "rate", "breaker", "destination_concurrency", "spread", "history", "dead_retention", "secrets",
	"format", "signing_keys",
}

var formats = []string{"plain", "cloudevents"}

// policy reads a topic's policy; absent fields have the default. stored is the policy that the
// topic has now, for values that come back as they were shown (REDACTED, fingerprints); nil when
// there is no such topic.
func (r *reader) policy(stored *timer.Policy) *timer.Policy {
	r.refuse = refuseInPolicy
	p := timer.DefaultPolicy()
	var given field
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return nil
		}
		i := slices.Index(policyFieldNames, string(name))
		if i < 0 {
			r.fail(unknown(name, policyFieldNames))
			return nil
		}
		if r.first(&given, 1<<i, "", name) {
			r.policyField(&p, policyFieldNames[i], stored)
		}
	}
	r.End()
	if p.MinBackoffMs > p.MaxBackoffMs {
		r.fail(r.refuse("retry: min_backoff is longer than max_backoff"))
	}
	return &p
}

func (r *reader) policyField(p *timer.Policy, name string, stored *timer.Policy) {
	switch name {
	case "delivery":
		p.Pull = r.choice(name, []string{"push", "pull"}) == "pull"
	case "ack":
		p.Report = r.choice(name, []string{"response", "report"}) == "report"
	case "lease":
		p.LeaseMs = r.lease()
	case "callback":
		r.policyCallback(p, stored)
	case "retry":
		r.policyRetry(p)
	case "stop_on":
		p.StopOn = r.stopOn()
	case "breaker":
		p.Breaker, p.OwnBreaker = r.breaker(p.Breaker), true
		if stored != nil && !stored.OwnBreaker && p.Breaker == stored.Breaker {
			p.OwnBreaker = false // the shared one, as it was shown
		}
	case "destination_concurrency":
		p.DestinationConcurrency = int(r.ranged(name, 1, maxDestinationConc))
	case "history":
		p.HistoryMs = r.retention(name)
	case "dead_retention":
		p.DeadRetentionMs = r.retention(name)
	case "merge":
		p.Merge = mergeRule(r.choice(name, mergeRules))
	case "max_wait":
		p.MaxWaitMs = r.maxWait()
	case "dedup":
		p.ByContent = r.choice(name, dedups) == "content"
	case "secrets":
		p.Secrets = r.secrets(stored)
	case "format":
		p.CloudEvents = r.choice(name, formats) == "cloudevents"
	case "signing_keys":
		p.SigningKeys = r.signingKeys(stored)
	case "serial":
		p.Serial = r.Boolean(name)
	case "ordered":
		p.Ordered = r.Boolean(name)
	case "concurrency":
		p.Concurrency = int(r.ranged(name, 0, math.MaxInt32))
	case "rate":
		p.Rate = r.rate()
	case "spread":
		p.SpreadMs = r.rangedSpan(name, 0, maxSpreadMs)
	}
}

// rate reads {"per_second", "burst"}. Without a burst it is the rate of one second.
func (r *reader) rate() (rate timer.Rate) {
	var given field
	n := r.Open('{', "rate")
	for ; r.More(n, '}'); n++ {
		switch name := r.Key(); string(name) {
		case "per_second":
			if r.first(&given, 1, "rate.", name) {
				rate.PerSecond = r.Float("rate.per_second")
			}
		case "burst":
			if r.first(&given, 2, "rate.", name) {
				rate.Burst = int(r.ranged("rate.burst", 1, maxBurst))
			}
		default:
			r.fail(unknown(name, []string{"per_second", "burst"}))
		}
	}
	switch {
	case r.Err() != nil:
	case given&1 == 0:
		r.fail(bad(badRequest, "rate.per_second: is required"))
	case !(rate.PerSecond >= minPerSecond && rate.PerSecond <= maxPerSecond):
		r.fail(r.refuse("rate.per_second: must be 0.001 to 1000000"))
	case rate.Burst == 0:
		rate.Burst = max(1, int(math.Ceil(rate.PerSecond)))
	}
	return rate
}

func (r *reader) policyCallback(p *timer.Policy, stored *timer.Policy) {
	var given, null field
	cb := p.Callback
	r.callback(&cb, &given, &null)
	if null != 0 {
		r.fail(badf(badRequest, "%s: must not be null", null.name()))
	}
	if r.Err() == nil && anyRedacted(cb.Headers) {
		var had timer.Callback
		if stored != nil {
			had = stored.Callback
		}
		var problem *problem
		if cb.Headers, problem = unredact(cb.Headers, &had, cb.URL); problem != nil {
			r.fail(problem)
		}
	}
	p.Callback = cb
}

func (r *reader) policyRetry(p *timer.Policy) {
	var given, null field
	retry := timer.Retry{}
	r.retry(&retry, &given, &null)
	if null != 0 {
		r.fail(badf(badRequest, "%s: must not be null", null.name()))
	}
	if given&fMaxAttempts != 0 {
		p.MaxAttempts = retry.MaxAttempts
	}
	if given&fMinBackoff != 0 {
		p.MinBackoffMs = retry.MinBackoffMs
	}
	if given&fMaxBackoff != 0 {
		p.MaxBackoffMs = retry.MaxBackoffMs
	}
	if given&fMultiplier != 0 {
		p.Multiplier = retry.Multiplier
	}
	if given&fJitter != 0 {
		p.Jitter = retry.Jitter
	}
}

func (r *reader) stopOn() []int {
	out := []int{}
	n := r.Open('[', "stop_on")
	for ; r.More(n, ']'); n++ {
		v := r.Integer("stop_on")
		if v < 300 || v > 599 || n == maxStopOn {
			r.fail(r.refuse("stop_on: must be up to 64 statuses from 300 to 599"))
			return nil
		}
		if !slices.Contains(out, int(v)) {
			out = append(out, int(v))
		}
	}
	return out
}

var breakerFieldNames = []string{"failures", "window", "open", "probes"}

func (r *reader) breaker(b timer.Breaker) timer.Breaker {
	var given field
	n := r.Open('{', "breaker")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		i := slices.Index(breakerFieldNames, string(name))
		if i < 0 {
			r.fail(unknown(name, breakerFieldNames))
			return b
		}
		if !r.first(&given, 1<<i, "breaker.", name) {
			return b
		}
		switch i {
		case 0:
			b.Failures = int(r.ranged("breaker.failures", 1, maxBreakerFailures))
		case 1:
			b.WindowMs = r.rangedSpan("breaker.window", 1, maxBreakerMs)
		case 2:
			b.OpenMs = r.rangedSpan("breaker.open", 1, maxBreakerMs)
		case 3:
			b.Probes = int(r.ranged("breaker.probes", 1, maxProbes))
		}
	}
	return b
}

func (r *reader) ranged(name string, low, high int64) int64 {
	v := r.Integer(name)
	if v < low || v > high {
		r.fail(r.refuse(fmt.Sprintf("%s: must be %d to %d", name, low, high)))
	}
	return v
}

func (r *reader) rangedSpan(name string, low, high int64) int64 {
	ms := r.span(name)
	if ms < low || ms > high {
		r.fail(r.refuse(fmt.Sprintf("%s: must be %s to %s", name, appendSpan(nil, low), appendSpan(nil, high))))
	}
	return ms
}

func (r *reader) retention(name string) int64 { return r.rangedSpan(name, 0, maxRetentionMs) }

// secrets reads signing secrets. A fingerprint keeps the stored secret that it is of. No fault says
// a secret back.
func (r *reader) secrets(stored *timer.Policy) []string {
	var out []string
	n := r.Open('[', "secrets")
	for ; r.More(n, ']'); n++ {
		s := r.Text("secrets")
		if r.Err() != nil {
			return nil
		}
		if n == maxSecrets {
			r.fail(r.refuse("secrets: more than 3"))
			return nil
		}
		if strings.HasPrefix(s, fingerprintPrefix) {
			kept := ""
			if stored != nil {
				for _, have := range stored.Secrets {
					if fingerprint(have) == s {
						kept = have
					}
				}
			}
			if kept == "" {
				r.fail(r.refuse("secrets: a fingerprint that no stored secret has"))
			}
			s = kept
		} else if _, err := callback.ParseSecret(s); err != nil {
			r.fail(r.refuse("secrets: each must be whsec_ and 24 to 64 bytes in base64"))
		}
		out = append(out, s)
	}
	return out
}

// fingerprint is shown in the place of a secret: enough to tell one from another, nothing to sign
// with.
func fingerprint(kept string) string { return secret.Fingerprint(kept) }

// index is 1 for true.
func index(on bool) int {
	if on {
		return 1
	}
	return 0
}

// appendPolicy writes every field, such that the whole can be PUT back. A field without a value
// (rate, max_wait) is left out.
func appendPolicy(b []byte, p *timer.Policy) []byte {
	o := object{b: b}
	o.str("delivery", [...]string{"push", "pull"}[index(p.Pull)])
	o.name("callback")
	o.b = appendCallback(o.b, &p.Callback)
	o.str("ack", [...]string{"response", "report"}[index(p.Report)])
	o.span("lease", p.LeaseFor())
	o.name("retry")
	o.b = appendRetry(o.b, &timer.Retry{
		MaxAttempts: p.MaxAttempts, MinBackoffMs: p.MinBackoffMs, MaxBackoffMs: p.MaxBackoffMs,
		Multiplier: p.Multiplier, Jitter: p.Jitter, HasJitter: true,
	})
	o.name("stop_on")
	codes := array{b: o.b}
	for _, c := range p.StopOn {
		codes.next()
		codes.b = appendInt(codes.b, int64(c))
	}
	o.b = codes.end()
	o.str("merge", mergeRules[p.Merge])
	if p.MaxWaitMs != 0 {
		o.span("max_wait", p.MaxWaitMs)
	}
	dedup := "id"
	if p.ByContent {
		dedup = "content"
	}
	o.str("dedup", dedup)
	o.boolean("serial", p.Serial)
	o.boolean("ordered", p.Ordered)
	o.integer("concurrency", int64(p.Concurrency))
	if p.Rate.PerSecond > 0 {
		o.name("rate")
		rate := object{b: o.b}
		rate.float("per_second", p.Rate.PerSecond)
		rate.integer("burst", int64(p.Rate.Burst))
		o.b = rate.end()
	}
	o.name("breaker")
	br := object{b: o.b}
	br.integer("failures", int64(p.Breaker.Failures))
	br.span("window", p.Breaker.WindowMs)
	br.span("open", p.Breaker.OpenMs)
	br.integer("probes", int64(p.Breaker.Probes))
	o.b = br.end()
	o.integer("destination_concurrency", int64(p.DestinationConcurrency))
	o.span("spread", p.SpreadMs)
	o.span("history", p.HistoryMs)
	o.span("dead_retention", p.DeadRetentionMs)
	o.texts("secrets", fingerprints(p))
	o.str("format", formats[index(p.CloudEvents)])
	o.texts("signing_keys", publicKeys(p))
	return o.end()
}
