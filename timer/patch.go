package timer

// Apply sets the patch's fields in s.
func (p *Patch) Apply(s *Spec) {
	n := &p.Spec
	set(p.Due, &s.DueMs, n.DueMs)
	set(p.Payload, &s.Payload, n.Payload)
	set(p.Payload, &s.PayloadKind, n.PayloadKind)
	set(p.ContentType, &s.ContentType, n.ContentType)
	set(p.Priority, &s.Priority, n.Priority)
	set(p.Weight, &s.Weight, n.Weight)
	set(p.Labels, &s.Labels, n.Labels)
	set(p.Expiry, &s.ExpiresAfterMs, n.ExpiresAfterMs)
	set(p.Expiry, &s.HasExpiry, n.HasExpiry)
	set(p.Repeat, &s.Repeat, n.Repeat)
	p.ApplyToCallback(&s.Callback)
	set(p.MaxAttempts, &s.Retry.MaxAttempts, n.Retry.MaxAttempts)
	set(p.MinBackoff, &s.Retry.MinBackoffMs, n.Retry.MinBackoffMs)
	set(p.MaxBackoff, &s.Retry.MaxBackoffMs, n.Retry.MaxBackoffMs)
	set(p.Multiplier, &s.Retry.Multiplier, n.Retry.Multiplier)
	set(p.Jitter, &s.Retry.Jitter, n.Retry.Jitter)
	set(p.Jitter, &s.Retry.HasJitter, n.Retry.HasJitter)
	set(p.OnDone, &s.OnDone, n.OnDone)
	set(p.OnDead, &s.OnDead, n.OnDead)
}

// ApplyTo is Apply for a timer of this content. An outcome stays without an outcome.
func (p *Patch) ApplyTo(s *Spec, content uint64) {
	outcome := IsOutcome(content, s.OnDone, s.OnDead)
	if p.Apply(s); outcome {
		s.OnDone, s.OnDead = &OutcomeTopic{}, &OutcomeTopic{}
	}
}

// ApplyToCallback sets the patch's fields in c. Secret headers are dropped if the URL changes to
// another origin, unless the patch gives them again. The patch's own Origin is that of the topic's
// URL.
func (p *Patch) ApplyToCallback(c *Callback) {
	n := &p.Spec.Callback
	had := c.HeadersFor()
	set(p.URL, &c.URL, n.URL)
	set(p.Method, &c.Method, n.Method)
	set(p.Headers, &c.Headers, n.Headers)
	set(p.Headers, &c.HasHeaders, n.HasHeaders)
	set(p.Timeout, &c.TimeoutMs, n.TimeoutMs)
	if !p.URL && !p.Headers {
		return
	}
	c.BindTo(n.Origin)
	if !p.Headers {
		c.dropForeignSecrets(had)
	}
}

func set[T any](on bool, to *T, v T) {
	if on {
		*to = v
	}
}

// Patch changes the fields whose Set flag is true, all at once.
type Patch struct {
	Spec Spec // new values, used only where a flag below is set

	Due     bool
	Payload bool // payload and kind; NoPayload makes it empty
	// ContentType, Priority, Labels and Expiry are replaced as a whole.
	ContentType, Priority, Labels, Expiry bool
	Weight                                bool
	// as a whole; nil ends the series with the pending occurrence
	Repeat         bool
	OnDone, OnDead bool

	// Callback and Retry change by field. A field with its flag set gets the new value, or the
	// topic's default if the new value is zero.
	URL, Method, Headers, Timeout                           bool
	MaxAttempts, MinBackoff, MaxBackoff, Multiplier, Jitter bool
}

// Topics are the topics that the patch names for outcomes; 0: none.
func (p *Patch) Topics() []TopicID {
	var list []TopicID
	for _, o := range [...]*OutcomeTopic{p.Spec.OnDone, p.Spec.OnDead} {
		if o != nil {
			list = append(list, o.ID)
		}
	}
	return list
}

// BindTo records the topic's URL in a patch that changes the timer's URL or headers.
func (p *Patch) BindTo(url string) {
	if p.URL || p.Headers {
		p.Spec.Callback.Origin = originOf(url)
	}
}
