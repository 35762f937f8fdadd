package shard

import (
	"encoding/binary"
	"slices"
)

// Flags of a command.
const (
	commandCreateOnly = 1 << iota
	commandForce
	commandAbsolute
	commandSpec    // a spec follows, to the end
	commandPatch   // a patch follows, to the end
	commandContent // tag and content are given
	commandDue     // DueMs is given
	commandMerge   // a merge rule and its longest wait are given
	commandNotLate
	commandPull

	commandFlags = 1<<iota - 1
)

// Bits of a patch.
const (
	patchDue = 1 << iota
	patchPayload
	patchContentType
	patchPriority
	patchLabels
	patchExpiry
	patchURL
	patchMethod
	patchHeaders
	patchTimeout
	patchMaxAttempts
	patchMinBackoff
	patchMaxBackoff
	patchMultiplier
	patchJitter
	patchRepeat

	patchBits = 1<<iota - 1
)

func appendCommand(dst []byte, c *Command) []byte {
	var flags uint16
	set := func(on bool, bit uint16) {
		if on {
			flags |= bit
		}
	}
	set(c.CreateOnly, commandCreateOnly)
	set(c.Force, commandForce)
	set(c.Absolute, commandAbsolute)
	set(c.NotLate, commandNotLate)
	set(c.Pull, commandPull)
	set(c.Spec != nil, commandSpec)
	set(c.Spec == nil && c.Patch != nil, commandPatch)
	set(c.Tag != 0 || c.Content != 0, commandContent)
	set(c.DueMs != 0, commandDue)
	set(c.Merge != MergeReject || c.MaxWaitMs != 0, commandMerge)

	dst = binary.AppendUvarint(append(dst, byte(c.Kind)), uint64(flags))
	dst = binary.AppendUvarint(dst, uint64(c.Topic))
	dst = append(append(dst, byte(len(c.ID))), c.ID...)
	dst = binary.AppendUvarint(dst, uint64(c.IfMatch))
	if flags&commandContent != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, c.Tag)
		dst = binary.LittleEndian.AppendUint64(dst, c.Content)
	}
	if flags&commandDue != 0 {
		dst = binary.AppendVarint(dst, c.DueMs)
	}
	if flags&commandMerge != 0 {
		dst = binary.AppendVarint(append(dst, byte(c.Merge)), c.MaxWaitMs)
	}
	switch {
	case c.Kind.claims():
		dst = appendClaim(dst, c.Claim)
	case c.Spec != nil:
		dst = appendSpec(dst, c.Spec)
	case c.Patch != nil:
		dst = appendPatch(dst, c.Patch)
	}
	return dst
}

// flags lists a patch's flags with their bits.
func (p *Patch) flags() [16]struct {
	set *bool
	bit uint64
} {
	return [16]struct {
		set *bool
		bit uint64
	}{
		{&p.Due, patchDue}, {&p.Payload, patchPayload}, {&p.ContentType, patchContentType},
		{&p.Priority, patchPriority}, {&p.Labels, patchLabels}, {&p.Expiry, patchExpiry},
		{&p.URL, patchURL}, {&p.Method, patchMethod}, {&p.Headers, patchHeaders}, {&p.Timeout, patchTimeout},
		{&p.MaxAttempts, patchMaxAttempts}, {&p.MinBackoff, patchMinBackoff}, {&p.MaxBackoff, patchMaxBackoff},
		{&p.Multiplier, patchMultiplier}, {&p.Jitter, patchJitter}, {&p.Repeat, patchRepeat},
	}
}

// appendPatch writes which fields are set, and a spec of only these.
func appendPatch(dst []byte, p *Patch) []byte {
	var bits uint64
	for _, f := range p.flags() {
		if *f.set {
			bits |= f.bit
		}
	}
	var only Spec
	p.applyTo(&only)
	only.Callback.Origin = p.Spec.Callback.Origin
	return appendSpec(binary.AppendUvarint(dst, bits), &only)
}

func decodePatch(b []byte) (*Patch, error) {
	r := reader{b: b}
	p := new(Patch)
	bits := r.number(patchBits, "patch bits")
	for _, f := range p.flags() {
		*f.set = bits&f.bit != 0
	}
	spec := r.spec()
	if err := r.err(); err != nil {
		return nil, err
	}
	if err := spec.decodeTo(&p.Spec); err != nil {
		return nil, err
	}
	return p, nil
}

// applyTo sets the patch's fields in s.
func (p *Patch) applyTo(s *Spec) {
	n := &p.Spec
	set(p.Due, &s.DueMs, n.DueMs)
	set(p.Payload, &s.Payload, n.Payload)
	set(p.Payload, &s.PayloadKind, n.PayloadKind)
	set(p.ContentType, &s.ContentType, n.ContentType)
	set(p.Priority, &s.Priority, n.Priority)
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
}

// ApplyToCallback sets the patch's fields in c. Headers that look secret are dropped where the URL goes to another origin,
// unless the patch gives them anew. The patch's own Origin is that of the topic's URL.
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
	if !p.Headers && slices.ContainsFunc(c.Headers, isSecret) && !SameOrigin(had, c.HeadersFor()) {
		c.Headers, c.Origin = withoutSecrets(c.Headers), ""
	}
}

func set[T any](on bool, to *T, v T) {
	if on {
		*to = v
	}
}

// change is a command as it lies in a batch: nothing is copied.
type change struct {
	kind    Kind
	flags   uint16
	topic   TopicID
	id      []byte
	ifMatch uint32
	tag     uint32
	content uint64
	dueMs   int64
	merge   Merge
	maxWait int64
	spec    specBytes
	patch   []byte // undecoded; nil none
	claim   []byte // undecoded; nil none
}

// specBytes is a spec as it lies in a batch.
type specBytes struct {
	dueMs    int64
	callback []byte
	rest     []byte
}

// spec reads a spec to the end of the block, without looking into callback and rest.
func (r *reader) spec() specBytes {
	s := specBytes{dueMs: r.varint()}
	s.callback = r.block(maxCallback, "callback")
	s.rest = r.take(len(r.b))
	return s
}

func (b *specBytes) decodeTo(s *Spec) (err error) {
	s.DueMs = b.dueMs
	if s.Callback, err = decodeCallback(b.callback); err != nil {
		return err
	}
	return decodeRest(s, b.rest, true)
}

// change reads a command to the end of the block.
func (r *reader) change(c *change) {
	*c = change{kind: Kind(r.byte()), flags: uint16(r.number(1<<16-1, "command flags"))}
	if (c.kind < Add || c.kind > Deliver) && !c.kind.claims() {
		r.fail("unknown command")
	}
	if c.flags&^commandFlags != 0 || c.flags&commandSpec != 0 && c.flags&commandPatch != 0 {
		r.fail("unknown command flags")
	}
	c.topic = TopicID(r.number(1<<32-1, "topic"))
	c.id = r.take(int(r.byte()))
	c.ifMatch = uint32(r.number(1<<32-1, "version"))
	if c.flags&commandContent != 0 {
		c.tag = r.u32()
		c.content = r.u64()
	}
	if c.flags&commandDue != 0 {
		c.dueMs = r.varint()
	}
	if c.flags&commandMerge != 0 {
		if c.merge, c.maxWait = Merge(r.byte()), r.varint(); c.merge > MergeDebounce || c.maxWait < 0 {
			r.fail("unknown merge rule")
		}
	}
	switch {
	case c.kind.claims():
		c.claim = r.take(len(r.b))
	case c.flags&commandSpec != 0:
		c.spec = r.spec()
	case c.flags&commandPatch != 0:
		c.patch = r.take(len(r.b))
	}
	if len(r.b) > 0 {
		r.fail("command is too long")
	}
	if (c.kind == Add || c.kind == Put) != (c.flags&commandSpec != 0) || c.kind == Modify && c.patch == nil {
		r.fail("command lacks its spec or patch")
	}
}
