package api

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"carillon/internal/secret"
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
	"delivery", "callback", "ack", "lease", "retry", "stop_on", "merge", "max_wait", "dedup", "serial", "key", "if_late",
	"concurrency", "rate", "breaker", "destination_concurrency", "spread", "history", "dead_retention", "secrets",
	"format", "signing_keys", "window",
}

var formats = []string{"plain", "cloudevents"}

// policy reads a topic's policy; absent fields have the default. stored is the policy that the
// topic has now, for values that come back as they were shown (REDACTED, fingerprints); nil when
// there is no such topic.
func (r *reader) policy(stored *timer.Policy) *timer.Policy {
	p := timer.DefaultPolicy()
	return r.policyOver(&p, stored)
}

// policyPatch reads the fields of a policy that are to change; null stands for the default. Those
// of callback, retry, rate, breaker and window change one by one.
func (r *reader) policyPatch(stored *timer.Policy) *timer.Policy {
	p := *stored
	r.resets = true
	if r.policyOver(&p, stored); r.Err() == nil && r.given == 0 {
		r.fail(bad(badRequest, "nothing to change"))
	}
	return &p
}

// policyOver reads the fields of a policy into p.
func (r *reader) policyOver(p *timer.Policy, stored *timer.Policy) *timer.Policy {
	r.refuse = refuseInPolicy
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
		switch {
		case !r.first(&r.given, 1<<i, "", name):
		case r.resets && r.Null():
			resetPolicy(p, policyFieldNames[i])
		default:
			r.policyField(p, policyFieldNames[i], stored)
		}
	}
	r.End()
	if p.MinBackoffMs > p.MaxBackoffMs {
		r.fail(r.refuse("retry: min_backoff is longer than max_backoff"))
	}
	return p
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
	case "key":
		if p.Key = r.Text(name); r.Err() == nil && !validKey(p.Key) {
			r.fail(r.refuse("key: must be 1–64 of A-Z a-z 0-9 _ . : @ -"))
		}
	case "if_late":
		p.RejectLate = r.choice(name, lateRules) == "reject"
	case "concurrency":
		p.Concurrency = int(r.ranged(name, 0, math.MaxInt32))
	case "rate":
		p.Rate = r.rate(p.Rate)
	case "spread":
		p.SpreadMs = r.rangedSpan(name, 0, maxSpreadMs)
	case "window":
		p.Window = r.window(p.Window)
	}
}

// resetPolicy gives a field of a policy its default.
func resetPolicy(p *timer.Policy, name string) {
	d := timer.DefaultPolicy()
	switch name {
	case "delivery":
		p.Pull = d.Pull
	case "ack":
		p.Report = d.Report
	case "lease":
		p.LeaseMs = d.LeaseMs
	case "callback":
		p.Callback = d.Callback
	case "retry":
		p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs, p.Multiplier, p.Jitter = d.MaxAttempts, d.MinBackoffMs, d.MaxBackoffMs, d.Multiplier, d.Jitter
	case "stop_on":
		p.StopOn = d.StopOn
	case "breaker":
		p.Breaker, p.OwnBreaker = d.Breaker, d.OwnBreaker
	case "destination_concurrency":
		p.DestinationConcurrency = d.DestinationConcurrency
	case "history":
		p.HistoryMs = d.HistoryMs
	case "dead_retention":
		p.DeadRetentionMs = d.DeadRetentionMs
	case "merge":
		p.Merge = d.Merge
	case "max_wait":
		p.MaxWaitMs = d.MaxWaitMs
	case "dedup":
		p.ByContent = d.ByContent
	case "secrets":
		p.Secrets = d.Secrets
	case "format":
		p.CloudEvents = d.CloudEvents
	case "signing_keys":
		p.SigningKeys = d.SigningKeys
	case "serial":
		p.Serial = d.Serial
	case "key":
		p.Key = d.Key
	case "if_late":
		p.RejectLate = d.RejectLate
	case "concurrency":
		p.Concurrency = d.Concurrency
	case "rate":
		p.Rate = d.Rate
	case "spread":
		p.SpreadMs = d.SpreadMs
	case "window":
		p.Window = d.Window
	}
}

// rate reads {"per_second", "burst"}. Without a burst it is the rate of one second.
func (r *reader) rate(rate timer.Rate) timer.Rate {
	var given field
	n := r.Open('{', "rate")
	for ; r.More(n, '}'); n++ {
		switch name := r.Key(); string(name) {
		case "per_second":
			if r.first(&given, 1, "rate.", name) && !reset(r, &rate.PerSecond, 0) {
				rate.PerSecond = r.Float("rate.per_second")
			}
		case "burst":
			if r.first(&given, 2, "rate.", name) && !reset(r, &rate.Burst, 0) {
				rate.Burst = int(r.ranged("rate.burst", 1, maxBurst))
			}
		default:
			r.fail(unknown(name, []string{"per_second", "burst"}))
		}
	}
	switch {
	case r.Err() != nil:
	case rate.PerSecond == 0 && given&1 == 0:
		r.fail(bad(badRequest, "rate.per_second: is required"))
	case !(rate.PerSecond >= minPerSecond && rate.PerSecond <= maxPerSecond):
		r.fail(r.refuse("rate.per_second: must be 0.001 to 1000000"))
	case rate.Burst == 0:
		rate.Burst = max(1, int(math.Ceil(rate.PerSecond)))
	}
	return rate
}

// reset reports that a value is null, and in a patch sets it to its default.
func reset[T any](r *reader, to *T, value T) bool {
	if !r.resets || !r.Null() {
		return false
	}
	*to = value
	return true
}

// policyCallback reads the callback. One that goes to another origin from now on loses its
// credentials, unless they are given anew.
func (r *reader) policyCallback(p *timer.Policy, stored *timer.Policy) {
	var given, null field
	cb := timer.Callback{}
	if r.callback(&cb, &given, &null); null != 0 && !r.resets {
		r.fail(badf(badRequest, "%s: must not be null", null.name()))
	}
	if r.Err() != nil {
		return
	}
	given |= null
	patch := timer.Patch{
		Spec: timer.Spec{Callback: cb},
		URL:  given&fURL != 0, Method: given&fMethod != 0, Headers: given&fHeaders != 0, Timeout: given&fTimeout != 0,
	}
	next := p.Callback
	patch.ApplyToCallback(&next)
	d := timer.DefaultPolicy().Callback
	if next.Method == "" {
		next.Method = d.Method
	}
	if next.TimeoutMs == 0 {
		next.TimeoutMs = d.TimeoutMs
	}
	if anyRedacted(cb.Headers) {
		var had timer.Callback
		if stored != nil {
			had = stored.Callback
		}
		var problem *problem
		if next.Headers, problem = unredact(cb.Headers, &had, next.URL); problem != nil {
			r.fail(problem)
		}
	}
	p.Callback = next
}

func (r *reader) policyRetry(p *timer.Policy) {
	var given, null field
	retry := timer.Retry{}
	if r.retry(&retry, &given, &null); null != 0 && !r.resets {
		r.fail(badf(badRequest, "%s: must not be null", null.name()))
	}
	d := timer.DefaultPolicy()
	choose(&p.MaxAttempts, fMaxAttempts, given, null, retry.MaxAttempts, d.MaxAttempts)
	choose(&p.MinBackoffMs, fMinBackoff, given, null, retry.MinBackoffMs, d.MinBackoffMs)
	choose(&p.MaxBackoffMs, fMaxBackoff, given, null, retry.MaxBackoffMs, d.MaxBackoffMs)
	choose(&p.Multiplier, fMultiplier, given, null, retry.Multiplier, d.Multiplier)
	choose(&p.Jitter, fJitter, given, null, retry.Jitter, d.Jitter)
}

// choose sets a field that was given to its value, or, if that is null, to its default.
func choose[T any](to *T, f, given, null field, value, byDefault T) {
	switch {
	case null&f != 0:
		*to = byDefault
	case given&f != 0:
		*to = value
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
		d := timer.DefaultPolicy().Breaker
		switch {
		case i == 0 && !reset(r, &b.Failures, d.Failures):
			b.Failures = int(r.ranged("breaker.failures", 1, maxBreakerFailures))
		case i == 1 && !reset(r, &b.WindowMs, d.WindowMs):
			b.WindowMs = r.rangedSpan("breaker.window", 1, maxBreakerMs)
		case i == 2 && !reset(r, &b.OpenMs, d.OpenMs):
			b.OpenMs = r.rangedSpan("breaker.open", 1, maxBreakerMs)
		case i == 3 && !reset(r, &b.Probes, d.Probes):
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
	if p.Key != "" {
		o.str("key", p.Key)
	}
	o.str("if_late", lateRules[index(p.RejectLate)])
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
	if p.Window != nil {
		o.name("window")
		o.b = appendWindow(o.b, p.Window)
	}
	return o.end()
}
