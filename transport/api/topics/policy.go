package topics

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// Bounds of a policy where API.md section 3 gives none.
const (
	maxStopOn          = 64
	maxBreakerFailures = 10_000
	maxBreakerMs       = int64(web.MsPerDay)
	maxProbes          = 1_000
	maxDestinationConc = 65_536
	maxSecrets         = 3
	minPerSecond       = 0.001
	maxPerSecond       = 1e6
	maxBurst           = 1_000_000
	maxSpreadMs        = 7 * web.MsPerDay
)

var PolicyFieldNames = []string{
	"delivery", "callback", "ack", "lease", "retry", "stop_on", "merge", "max_wait", "collect_max", "dedup", "serial", "key", "if_late",
	"concurrency", "rate", "breaker", "destination_concurrency", "spread", "history", "dead_retention", "secrets",
	"format", "signing_keys", "window", "on_done", "on_dead", "answers", "per_key", "batch",
}

var (
	formats     = []string{"plain", "cloudevents"}
	keptAnswers = []string{"failed", "none"}
)

// readPolicy reads a topic's policy; absent fields have the default. stored is the policy that the
// topic has now, for values that come back as they were shown (REDACTED, fingerprints); nil when
// there is no such topic.
func readPolicy(r *web.Reader, stored *timer.Policy) *timer.Policy {
	p := timer.DefaultPolicy()
	readOver(r, &p, stored)
	return &p
}

// readPatch reads the fields of a policy that are to change; null stands for the default. Those
// of callback, retry, rate, breaker, window, per_key and batch change one by one.
func readPatch(r *web.Reader, stored *timer.Policy) *timer.Policy {
	p := *stored
	r.Resets = true
	if given := readOver(r, &p, stored); r.Err() == nil && given == 0 {
		r.Reject(web.Bad(web.BadRequest, "nothing to change"))
	}
	return &p
}

func readOver(r *web.Reader, p, stored *timer.Policy) web.Fields {
	r.OutOfRange = web.RefuseInPolicy
	d := timer.DefaultPolicy()
	given := r.Body(PolicyFieldNames, func(name string) { readField(r, p, stored, &d, name) })
	if p.MinBackoffMs > p.MaxBackoffMs {
		r.Reject(r.OutOfRange("retry: min_backoff is longer than max_backoff"))
	}
	if p.Serial && p.PerKey != nil && p.PerKey.Concurrency > 1 {
		r.Reject(r.OutOfRange("per_key.concurrency: a serial topic runs one timer of a key at a time"))
	}
	if r.Err() == nil {
		r.Reject(batchProblem(p))
	}
	return given
}

// readField reads one field of a policy. In a patch null stands for the default, which d has.
func readField(r *web.Reader, p, stored, d *timer.Policy, name string) {
	switch {
	case name == "delivery" && !reset(r, &p.Pull, d.Pull):
		p.Pull = r.Choice(name, []string{"push", "pull"}) == "pull"
	case name == "ack" && !reset(r, &p.Report, d.Report):
		p.Report = r.Choice(name, []string{"response", "report"}) == "report"
	case name == "lease" && !reset(r, &p.LeaseMs, d.LeaseMs):
		p.LeaseMs = spec.ReadLease(r)
	case name == "callback" && !reset(r, &p.Callback, d.Callback):
		readCallback(r, p, stored)
	case name == "retry" && !reset(r, &p.Backoff, d.Backoff):
		readRetry(r, p)
	case name == "stop_on" && !reset(r, &p.StopOn, d.StopOn):
		p.StopOn = readStopOn(r)
	case name == "breaker" && reset(r, &p.Breaker, d.Breaker):
		p.OwnBreaker = d.OwnBreaker
	case name == "breaker":
		p.Breaker, p.OwnBreaker = readBreaker(r, p.Breaker), true
		if stored != nil && !stored.OwnBreaker && p.Breaker == stored.Breaker {
			p.OwnBreaker = false // the shared one, as it was shown
		}
	case name == "destination_concurrency" && !reset(r, &p.DestinationConcurrency, d.DestinationConcurrency):
		p.DestinationConcurrency = int(r.Ranged(name, 1, maxDestinationConc))
	case name == "history" && !reset(r, &p.HistoryMs, d.HistoryMs):
		p.HistoryMs = r.RangedSpan(name, 0, spec.MaxRetentionMs)
	case name == "dead_retention" && !reset(r, &p.DeadRetentionMs, d.DeadRetentionMs):
		p.DeadRetentionMs = r.RangedSpan(name, 0, spec.MaxRetentionMs)
	case name == "merge" && !reset(r, &p.Merge, d.Merge):
		p.Merge = spec.MergeRule(r.Choice(name, spec.MergeRules))
	case name == "max_wait" && !reset(r, &p.MaxWaitMs, d.MaxWaitMs):
		p.MaxWaitMs = spec.ReadMaxWait(r)
	case name == "collect_max" && !reset(r, &p.CollectMax, d.CollectMax):
		if p.CollectMax = spec.ReadCollectMax(r); p.CollectMax == timer.DefaultCollectMax {
			p.CollectMax = 0
		}
	case name == "dedup" && !reset(r, &p.ByContent, d.ByContent):
		p.ByContent = r.Choice(name, dedups) == "content"
	case name == "secrets" && !reset(r, &p.Secrets, d.Secrets):
		p.Secrets = secrets.read(r, stored)
	case name == "format" && !reset(r, &p.CloudEvents, d.CloudEvents):
		p.CloudEvents = r.Choice(name, formats) == "cloudevents"
	case name == "signing_keys" && !reset(r, &p.SigningKeys, d.SigningKeys):
		p.SigningKeys = signingKeys.read(r, stored)
	case name == "serial" && !reset(r, &p.Serial, d.Serial):
		p.Serial = r.Boolean(name)
	case name == "key" && !reset(r, &p.Key, d.Key):
		if p.Key = r.Text(name); r.Err() == nil && !web.ValidKey(p.Key) {
			r.Reject(r.OutOfRange("key: must be 1–64 of A-Z a-z 0-9 _ . : @ -"))
		}
	case name == "if_late" && !reset(r, &p.RejectLate, d.RejectLate):
		p.RejectLate = r.Choice(name, spec.LateRules) == "reject"
	case name == "concurrency" && !reset(r, &p.Concurrency, d.Concurrency):
		p.Concurrency = int(r.Ranged(name, 0, math.MaxInt32))
	case name == "rate" && !reset(r, &p.Rate, d.Rate):
		p.Rate = readRate(r, "rate", p.Rate)
	case name == "per_key" && !reset(r, &p.PerKey, d.PerKey):
		p.PerKey = readPerKey(r, p.PerKey)
	case name == "spread" && !reset(r, &p.SpreadMs, d.SpreadMs):
		p.SpreadMs = r.RangedSpan(name, 0, maxSpreadMs)
	case name == "window" && !reset(r, &p.Window, d.Window):
		p.Window = readWindow(r, p.Window)
	case name == "on_done":
		p.OnDone = spec.ReadOutcome(r, name)
	case name == "on_dead":
		p.OnDead = spec.ReadOutcome(r, name)
	case name == "answers" && !reset(r, &p.NoAnswers, d.NoAnswers):
		p.NoAnswers = r.Choice(name, keptAnswers) == "none"
	case name == "batch" && !reset(r, &p.Batch, d.Batch):
		p.Batch = readBatch(r, p.Batch)
	}
}

// readRate reads {"per_second", "burst"}. Without a burst it is the rate of one second.
func readRate(r *web.Reader, name string, rate timer.Rate) timer.Rate {
	given := r.Object(name, []string{"per_second", "burst"}, func(i int) {
		switch {
		case i == 0 && !reset(r, &rate.PerSecond, 0):
			rate.PerSecond = r.Float(name + ".per_second")
		case i == 1 && !reset(r, &rate.Burst, 0):
			rate.Burst = int(r.Ranged(name+".burst", 1, maxBurst))
		}
	})
	switch {
	case r.Err() != nil:
	case rate.PerSecond == 0 && given&1 == 0:
		r.Reject(web.Bad(web.BadRequest, name+".per_second: is required"))
	case !(rate.PerSecond >= minPerSecond && rate.PerSecond <= maxPerSecond):
		r.Reject(r.OutOfRange(name + ".per_second: must be 0.001 to 1000000"))
	case rate.Burst == 0:
		rate.Burst = max(1, int(math.Ceil(rate.PerSecond)))
	}
	return rate
}

// reset reports that a value is null, and in a patch sets it to its default.
func reset[T any](r *web.Reader, to *T, value T) bool {
	if !r.Resets || !r.Null() {
		return false
	}
	*to = value
	return true
}

// readCallback reads the callback. One that goes to another origin from now on loses its
// credentials, unless they are given again.
func readCallback(r *web.Reader, p *timer.Policy, stored *timer.Policy) {
	var given, null web.Fields
	cb := timer.Callback{}
	if spec.ReadCallback(r, &cb, &given, &null); null != 0 && !r.Resets {
		r.Reject(web.Badf(web.BadRequest, "%s: must not be null", spec.NameOf(null)))
	}
	if r.Err() != nil {
		return
	}
	given |= null
	patch := timer.Patch{
		Spec: timer.Spec{Callback: cb},
		URL:  given&spec.FURL != 0, Method: given&spec.FMethod != 0, Headers: given&spec.FHeaders != 0, Timeout: given&spec.FTimeout != 0,
	}
	next := p.Callback
	patch.ApplyToCallback(&next)
	d := timer.DefaultPolicy().Callback
	next.Method = cmp.Or(next.Method, d.Method)
	next.TimeoutMs = cmp.Or(next.TimeoutMs, d.TimeoutMs)
	if spec.AnyRedacted(cb.Headers) {
		var had timer.Callback
		if stored != nil {
			had = stored.Callback
		}
		var problem *web.Problem
		if next.Headers, problem = spec.Unredact(cb.Headers, &had, next.URL); problem != nil {
			r.Reject(problem)
		}
	}
	p.Callback = next
}

func readRetry(r *web.Reader, p *timer.Policy) {
	var given, null web.Fields
	retry := timer.Retry{}
	if spec.ReadRetry(r, &retry, &given, &null); null != 0 && !r.Resets {
		r.Reject(web.Badf(web.BadRequest, "%s: must not be null", spec.NameOf(null)))
	}
	d := timer.DefaultPolicy()
	choose(&p.MaxAttempts, spec.FMaxAttempts, given, null, retry.MaxAttempts, d.MaxAttempts)
	choose(&p.MinBackoffMs, spec.FMinBackoff, given, null, retry.MinBackoffMs, d.MinBackoffMs)
	choose(&p.MaxBackoffMs, spec.FMaxBackoff, given, null, retry.MaxBackoffMs, d.MaxBackoffMs)
	choose(&p.Multiplier, spec.FMultiplier, given, null, retry.Multiplier, d.Multiplier)
	choose(&p.Jitter, spec.FJitter, given, null, retry.Jitter, d.Jitter)
}

// choose sets a field that was given to its value, or, if that is null, to its default.
func choose[T any](to *T, f, given, null web.Fields, value, byDefault T) {
	switch {
	case null&f != 0:
		*to = byDefault
	case given&f != 0:
		*to = value
	}
}

func readStopOn(r *web.Reader) []int {
	out := []int{}
	n := r.Open('[', "stop_on")
	for ; r.More(n, ']'); n++ {
		v := r.Integer("stop_on")
		if v < 300 || v > 599 || n == maxStopOn {
			r.Reject(r.OutOfRange("stop_on: must be up to 64 statuses from 300 to 599"))
			return nil
		}
		if !slices.Contains(out, int(v)) {
			out = append(out, int(v))
		}
	}
	return out
}

var BreakerFieldNames = []string{"failures", "window", "open", "probes"}

func readBreaker(r *web.Reader, b timer.Breaker) timer.Breaker {
	d := timer.DefaultPolicy().Breaker
	r.Object("breaker", BreakerFieldNames, func(i int) {
		switch {
		case i == 0 && !reset(r, &b.Failures, d.Failures):
			b.Failures = int(r.Ranged("breaker.failures", 1, maxBreakerFailures))
		case i == 1 && !reset(r, &b.WindowMs, d.WindowMs):
			b.WindowMs = r.RangedSpan("breaker.window", 1, maxBreakerMs)
		case i == 2 && !reset(r, &b.OpenMs, d.OpenMs):
			b.OpenMs = r.RangedSpan("breaker.open", 1, maxBreakerMs)
		case i == 3 && !reset(r, &b.Probes, d.Probes):
			b.Probes = int(r.Ranged("breaker.probes", 1, maxProbes))
		}
	})
	return b
}

// index is 1 for true.
func index(on bool) int {
	if on {
		return 1
	}
	return 0
}

// AppendPolicy writes every field, such that the whole can be PUT back. A field without a value
// (rate, max_wait) is left out.
func AppendPolicy(b []byte, p *timer.Policy) []byte {
	o := web.Object{B: b}
	o.Text("delivery", [...]string{"push", "pull"}[index(p.Pull)])
	o.Name("callback")
	o.B = spec.AppendCallback(o.B, &p.Callback)
	o.Text("ack", [...]string{"response", "report"}[index(p.Report)])
	o.Span("lease", p.LeaseFor())
	o.Name("retry")
	o.B = spec.AppendRetry(o.B, &timer.Retry{
		MaxAttempts: p.MaxAttempts, MinBackoffMs: p.MinBackoffMs, MaxBackoffMs: p.MaxBackoffMs,
		Multiplier: p.Multiplier, Jitter: p.Jitter, HasJitter: true,
	})
	o.List("stop_on", len(p.StopOn), func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(p.StopOn[i]), 10) })
	o.Text("merge", spec.MergeRules[p.Merge])
	o.OptSpan("max_wait", p.MaxWaitMs)
	o.Integer("collect_max", int64(p.CollectFor()))
	o.Text("dedup", dedups[index(p.ByContent)])
	o.Boolean("serial", p.Serial)
	o.OptText("key", p.Key)
	o.Text("if_late", spec.LateRules[index(p.RejectLate)])
	o.Integer("concurrency", int64(p.Concurrency))
	appendRate(&o, p.Rate)
	o.Nest("breaker", func(o *web.Object) {
		o.Integer("failures", int64(p.Breaker.Failures))
		o.Span("window", p.Breaker.WindowMs)
		o.Span("open", p.Breaker.OpenMs)
		o.Integer("probes", int64(p.Breaker.Probes))
	})
	o.Integer("destination_concurrency", int64(p.DestinationConcurrency))
	if p.PerKey != nil {
		o.Nest("per_key", func(o *web.Object) { perKeyMembers(o, p.PerKey) })
	}
	o.Span("spread", p.SpreadMs)
	o.Span("history", p.HistoryMs)
	o.Span("dead_retention", p.DeadRetentionMs)
	o.Texts("secrets", secrets.names(p))
	o.Text("format", formats[index(p.CloudEvents)])
	o.Texts("signing_keys", signingKeys.names(p))
	if p.Window != nil {
		o.Nest("window", func(o *web.Object) { windowMembers(o, p.Window) })
	}
	for i, topic := range [...]string{p.OnDone, p.OnDead} {
		if topic != "" {
			o.Nest([...]string{"on_done", "on_dead"}[i], func(o *web.Object) { o.Text("topic", topic) })
		}
	}
	o.Text("answers", keptAnswers[index(p.NoAnswers)])
	if p.Batch != nil {
		o.Nest("batch", func(o *web.Object) { batchMembers(o, p.Batch) })
	}
	return o.End()
}

// findOutcomeTopics checks the topics that a policy names for outcomes and that known does not
// name.
func findOutcomeTopics(rq *web.Request, p, known *timer.Policy) *web.Problem {
	for i, name := range [...]string{p.OnDone, p.OnDead} {
		if name == "" || known != nil && known.Names(name) {
			continue
		}
		if _, p := rq.OutcomeTopic([...]string{"on_done", "on_dead"}[i], name); p != nil {
			return p
		}
	}
	return nil
}

// appendRate writes a rate, if there is one.
func appendRate(o *web.Object, r timer.Rate) {
	if r.PerSecond <= 0 {
		return
	}
	o.Nest("rate", func(o *web.Object) {
		o.Float("per_second", r.PerSecond)
		o.Integer("burst", int64(r.Burst))
	})
}

var dedups = []string{"id", "content"}
