package shard

import (
	"encoding/binary"

	"carillon/timer"
)

// Flags of a command.
const (
	commandCreateOnly = 1 << iota
	commandForce
	commandAbsolute
	commandSpec    // a spec follows, to the end
	commandPatch   // a patch follows, to the end
	commandContent // tag and content are given
	commandDue     // the value is given: see shared
	commandMerge   // a merge rule and its longest wait are given
	commandNotLate
	commandPull
	commandOnce // LevelConventions

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

func appendCommand(dst []byte, c *timer.Command) []byte {
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
	set(c.Once, commandOnce)
	set(c.Spec != nil, commandSpec)
	set(c.Spec == nil && c.Patch != nil, commandPatch)
	set(c.Tag != 0 || c.Content != 0, commandContent)
	number, value := shared(c)
	set(value != 0, commandDue)
	set(c.Merge != timer.MergeReject || c.MaxWaitMs != 0, commandMerge)

	dst = binary.AppendUvarint(append(dst, byte(c.Kind)), uint64(flags))
	dst = binary.AppendUvarint(dst, uint64(c.Topic))
	dst = append(append(dst, byte(len(c.ID))), c.ID...)
	dst = binary.AppendUvarint(dst, uint64(number))
	if flags&commandContent != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, c.Tag)
		dst = binary.LittleEndian.AppendUint64(dst, c.Content)
	}
	if flags&commandDue != 0 {
		dst = binary.AppendVarint(dst, value)
	}
	if flags&commandMerge != 0 {
		dst = binary.AppendVarint(append(dst, byte(c.Merge)), c.MaxWaitMs)
	}
	switch {
	case c.Kind.UpdatesLease():
		dst = appendLeaseUpdate(dst, c.Claim)
	case c.Spec != nil:
		dst = appendSpec(dst, c.Spec)
	case c.Patch != nil:
		dst = appendPatch(dst, c.Patch)
	}
	return dst
}

// shared is the number and the value of a command, which mean something else for each kind. share is the other direction.
func shared(c *timer.Command) (number uint32, value int64) {
	switch {
	case c.Kind == timer.Deliver:
		return c.Turn, 0
	case c.Kind != timer.CloseTopic:
		return c.IfMatch, c.DueMs
	case c.Force:
		return c.Work, int64(c.From)
	}
	return 0, int64(c.MinFence)
}

func (c *change) share(number uint32, value int64) {
	switch {
	case c.kind == timer.Deliver:
		c.turn = number
	case c.kind != timer.CloseTopic:
		c.ifMatch, c.dueMs = number, value
	case c.flags&commandForce != 0:
		c.work, c.from = number, timer.Handle(min(max(value, 0), maxHandle))
	default:
		c.minFence = uint64(max(value, 0))
	}
}

// patchFields lists a patch's flags with their bits.
func patchFields(p *timer.Patch) [16]struct {
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
func appendPatch(dst []byte, p *timer.Patch) []byte {
	var bits uint64
	for _, f := range patchFields(p) {
		if *f.set {
			bits |= f.bit
		}
	}
	var only timer.Spec
	p.Apply(&only)
	only.Callback.Origin = p.Spec.Callback.Origin
	return appendSpec(binary.AppendUvarint(dst, bits), &only)
}

func decodePatch(b []byte) (*timer.Patch, error) {
	r := reader{b: b}
	p := new(timer.Patch)
	bits := r.number(patchBits, "patch bits")
	for _, f := range patchFields(p) {
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

// change is a command as it lies in a batch: nothing is copied.
type change struct {
	kind     timer.Kind
	flags    uint16
	topic    timer.TopicID
	id       []byte
	ifMatch  uint32
	turn     uint32
	work     uint32
	from     timer.Handle
	tag      uint32
	content  uint64
	dueMs    int64
	minFence uint64
	merge    timer.Merge
	maxWait  int64
	spec     specBytes
	patch    []byte // undecoded; nil none
	claim    []byte // undecoded; nil none
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

func (b *specBytes) decodeTo(s *timer.Spec) (err error) {
	s.DueMs = b.dueMs
	if s.Callback, err = decodeCallback(b.callback); err != nil {
		return err
	}
	return decodeRest(s, b.rest, true)
}

// change reads a command to the end of the block.
func (r *reader) change(c *change) {
	*c = change{kind: timer.Kind(r.byte()), flags: uint16(r.number(1<<16-1, "command flags"))}
	if (c.kind < timer.Add || c.kind > timer.Deliver) && !c.kind.UpdatesLease() {
		r.fail("unknown command")
	}
	if c.flags&^commandFlags != 0 || c.flags&commandSpec != 0 && c.flags&commandPatch != 0 {
		r.fail("unknown command flags")
	}
	c.topic = timer.TopicID(r.number(1<<32-1, "topic"))
	c.id = r.take(int(r.byte()))
	number, value := uint32(r.number(1<<32-1, "version")), int64(0)
	if c.flags&commandContent != 0 {
		c.tag = r.u32()
		c.content = r.u64()
	}
	if c.flags&commandDue != 0 {
		value = r.varint()
	}
	c.share(number, value)
	if c.flags&commandMerge != 0 {
		if c.merge, c.maxWait = timer.Merge(r.byte()), r.varint(); c.merge > timer.MergeDebounce || c.maxWait < 0 {
			r.fail("unknown merge rule")
		}
	}
	switch {
	case c.kind.UpdatesLease():
		c.claim = r.take(len(r.b))
	case c.flags&commandSpec != 0:
		c.spec = r.spec()
	case c.flags&commandPatch != 0:
		c.patch = r.take(len(r.b))
	}
	if len(r.b) > 0 {
		r.fail("command is too long")
	}
	if (c.kind == timer.Add || c.kind == timer.Put) != (c.flags&commandSpec != 0) || c.kind == timer.Modify && c.patch == nil {
		r.fail("command lacks its spec or patch")
	}
}

// command copies a command out of the bytes that it lies in.
func (c *change) command() (cmd *timer.Command, err error) {
	if c.flags&commandSpec != 0 {
		both := new(struct { // they live and die together
			cmd  timer.Command
			spec timer.Spec
		})
		cmd, both.cmd.Spec = &both.cmd, &both.spec
		if err := c.spec.decodeTo(cmd.Spec); err != nil {
			return nil, err
		}
	} else {
		cmd = new(timer.Command)
	}
	if c.flags&commandPatch != 0 {
		if cmd.Patch, err = decodePatch(c.patch); err != nil {
			return nil, err
		}
	}
	if c.claim != nil {
		if cmd.Claim, err = decodeLeaseUpdate(c.claim); err != nil {
			return nil, err
		}
	}
	cmd.Kind, cmd.Topic, cmd.ID, cmd.IfMatch = c.kind, c.topic, string(c.id), c.ifMatch
	cmd.CreateOnly = c.flags&commandCreateOnly != 0
	cmd.Force = c.flags&commandForce != 0
	cmd.Work, cmd.From, cmd.MinFence = c.work, c.from, c.minFence
	cmd.Turn, cmd.Pull = c.turn, c.flags&commandPull != 0
	cmd.Once = c.flags&commandOnce != 0
	cmd.Absolute, cmd.NotLate = c.flags&commandAbsolute != 0, c.flags&commandNotLate != 0
	cmd.Tag, cmd.Content, cmd.DueMs = c.tag, c.content, c.dueMs
	cmd.Merge, cmd.MaxWaitMs = c.merge, c.maxWait
	return cmd, nil
}
