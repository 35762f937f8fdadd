package encoding

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
	commandOnce
	commandSeq // a number is given
	commandShift

	commandFlags = 1<<iota - 1
)

func AppendCommand(dst []byte, c *timer.Command) []byte {
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
	set(c.Shift, commandShift)
	set(c.Seq != 0, commandSeq)
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
	if flags&commandSeq != 0 {
		dst = binary.AppendUvarint(dst, c.Seq)
	}
	switch {
	case c.Kind.UpdatesLease():
		dst = appendLeaseUpdate(dst, c.Claim)
	case c.Spec != nil:
		dst = AppendSpec(dst, c.Spec)
	case c.Patch != nil:
		dst = AppendPatch(dst, c.Patch)
	}
	return dst
}

// shared is the number and the value of a command; their meaning depends on its kind. share is the
// reverse.
func shared(c *timer.Command) (number uint32, value int64) {
	switch {
	case c.Kind == timer.Deliver:
		return c.Turn, 0
	case c.Kind != timer.CloseTopic:
		return c.IfMatch, c.DueMs
	case c.Force:
		return c.Work, int64(c.From)
	}
	return 0, 0
}

func (c *Command) share(number uint32, value int64) {
	switch {
	case c.Kind == timer.Deliver:
		c.Turn = number
	case c.Kind != timer.CloseTopic:
		c.IfMatch, c.DueMs = number, value
	case c.Force:
		c.Work, c.From = number, timer.Handle(min(max(value, 0), MaxHandle))
	}
}

// patch is the set of a patch's changed fields.
func (c *Codec) patch(p *timer.Patch) {
	c.Flags("a patch", &p.Due, &p.Payload, &p.ContentType, &p.Priority, &p.Labels, &p.Expiry,
		&p.URL, &p.Method, &p.Headers, &p.Timeout, &p.MaxAttempts, &p.MinBackoff, &p.MaxBackoff,
		&p.Multiplier, &p.Jitter, &p.Repeat, &p.OnDone, &p.OnDead, &p.Weight)
}

// AppendPatch writes the set of changed fields, and a spec with only these.
func AppendPatch(dst []byte, p *timer.Patch) []byte {
	c := Codec{Out: dst}
	c.patch(p)
	var only timer.Spec
	p.Apply(&only)
	only.Callback.Origin = p.Spec.Callback.Origin
	return AppendSpec(c.Out, &only)
}

func DecodePatch(b []byte) (*timer.Patch, error) {
	c, p := Reading(b), new(timer.Patch)
	c.patch(p)
	spec := c.Spec()
	if err := c.Err(); err != nil {
		return nil, err
	}
	if err := spec.DecodeTo(&p.Spec); err != nil {
		return nil, err
	}
	return p, nil
}

// Command is a decoded command whose texts still lie in its batch.
type Command struct {
	timer.Command // but what follows
	ID            []byte
	Spec          SpecBytes
	Patch         []byte // not decoded; nil: none
	claim         []byte // not decoded; nil: none
}

// SpecBytes is a spec that lies in a batch.
type SpecBytes struct {
	DueMs    int64
	Callback []byte
	Rest     []byte
}

// Spec reads a spec up to the end of the block, without decoding callback and rest.
func (r *Reader) Spec() SpecBytes {
	s := SpecBytes{DueMs: r.Varint()}
	s.Callback = r.Block(MaxCallback, "callback")
	s.Rest = r.Take(len(r.Rest))
	return s
}

func (b *SpecBytes) DecodeTo(s *timer.Spec) (err error) {
	s.DueMs = b.DueMs
	if s.Callback, err = DecodeCallback(b.Callback); err != nil {
		return err
	}
	return DecodeRest(s, b.Rest, true)
}

// Command reads a command to the end of the block.
func (r *Reader) Command(c *Command) {
	*c = Command{}
	c.Kind = timer.Kind(r.Byte())
	flags := r.Number(1<<16-1, "command flags")
	if (c.Kind < timer.Add || c.Kind > timer.Resume) && !c.Kind.UpdatesLease() {
		r.Fail("unknown command")
	}
	if flags&^commandFlags != 0 || flags&commandSpec != 0 && flags&commandPatch != 0 {
		r.Fail("unknown command flags")
	}
	c.CreateOnly, c.Force, c.Absolute = flags&commandCreateOnly != 0, flags&commandForce != 0, flags&commandAbsolute != 0
	c.NotLate, c.Pull = flags&commandNotLate != 0, flags&commandPull != 0
	c.Once, c.Shift = flags&commandOnce != 0, flags&commandShift != 0
	c.Topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	c.ID = r.Take(int(r.Byte()))
	number, value := uint32(r.Number(1<<32-1, "version")), int64(0)
	if flags&commandContent != 0 {
		c.Tag = r.u32()
		c.Content = r.U64()
	}
	if flags&commandDue != 0 {
		value = r.Varint()
	}
	c.share(number, value)
	if flags&commandMerge != 0 {
		if c.Merge, c.MaxWaitMs = timer.Merge(r.Byte()), r.Varint(); c.Merge > timer.MergeCollect || c.MaxWaitMs < 0 {
			r.Fail("unknown merge rule")
		}
	}
	if flags&commandSeq != 0 {
		c.Seq = r.Uvarint()
	}
	switch {
	case c.Kind.UpdatesLease():
		c.claim = r.Take(len(r.Rest))
	case flags&commandSpec != 0:
		c.Spec = r.Spec()
	case flags&commandPatch != 0:
		c.Patch = r.Take(len(r.Rest))
	}
	if len(r.Rest) > 0 {
		r.Fail("command is too long")
	}
	if (c.Kind == timer.Add || c.Kind == timer.Put) != (flags&commandSpec != 0) || c.Kind == timer.Modify && c.Patch == nil {
		r.Fail("command lacks its spec or patch")
	}
}

// Copy copies the command out of its batch.
func (c *Command) Copy() (cmd *timer.Command, err error) {
	if c.Kind == timer.Add || c.Kind == timer.Put {
		both := &struct { // one allocation, because they live equally long
			cmd  timer.Command
			spec timer.Spec
		}{cmd: c.Command}
		cmd = &both.cmd
		cmd.Spec = &both.spec
		if err := c.Spec.DecodeTo(cmd.Spec); err != nil {
			return nil, err
		}
	} else {
		cmd = new(c.Command)
	}
	cmd.ID = string(c.ID)
	if c.Patch != nil {
		if cmd.Patch, err = DecodePatch(c.Patch); err != nil {
			return nil, err
		}
	}
	if c.claim != nil {
		if cmd.Claim, err = decodeLeaseUpdate(c.claim); err != nil {
			return nil, err
		}
	}
	return cmd, nil
}
