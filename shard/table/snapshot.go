package table

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// The format of a table's snapshot (docs/formats/snapshot.md).
const (
	snapshotMagic   = "CTBL"
	snapshotVersion = 8
	neverDivided    = 7 // without division; still written by a table that never was
	neverRestored   = 6 // without leastVersion; still written if that is 0
	noDeliveries    = 5 // without deliveries; still written if there are none
)

// maxSparePending is the most capacity of pending that is kept for the next piece.
const maxSparePending = 64 << 10

// Kinds of records. A target comes before the first timer that uses it.
const (
	recordTarget = 1 + iota
	recordTimer  // without an attempt
	recordRun    // timer with an attempt
	recordFree
	recordEnd
	recordSuccessor // of the preceding timer
	recordArray     // of the preceding timer: it collects, or waits behind another
	recordAttempts  // of the preceding timer: the log of its attempts
)

// Snapshot writes a table's state as of BeginSnapshot in pieces, while entries are applied. A slot
// that is about to change is written first if it is not yet written.
//
// Slots written ahead stay in memory until the next call of Next, so the owner of a Snapshot must
// continue with it or abort it.
type Snapshot struct {
	t      *updater
	number uint32
	hash   uint64 // from the header
	high   timer.Handle
	cursor timer.Handle // the slots up to here are written
	saved  []uint64     // one bit per slot that was written ahead of the cursor
	// Sums of the written slots, and their expected values. They differ if memory has changed by
	// itself.
	slots, blobs, wantSlots, wantBlobs uint64
	// a table with two timers of one id could not be loaded
	ids, wantIDs int
	damaged      bool
	// child: only the foreign timers are written, see BeginChild. There are no sums to expect of
	// them: those of slots and contents are not made.
	child bool
	// pending is the output not yet handed out. Its order matters because a target number may be
	// redefined.
	pending []byte
}

// BeginSnapshot starts a snapshot of the current state. There may be only one at a time.
func (t *Table) BeginSnapshot() *Snapshot {
	if t.snap != nil {
		panic(fmt.Sprintf("shard: snapshot %d of shard %d begins while %d is under way", t.snapshots+1, t.id, t.snap.number))
	}
	t.snapshots++
	s := &Snapshot{t: &t.updater, number: t.snapshots, high: t.slots.High, saved: make([]uint64, t.slots.High>>6+1)}
	s.hash, s.wantSlots, s.wantBlobs = t.Hash(), t.slotSum, t.content.Sum()
	s.wantIDs = t.ids.Len()
	s.pending = t.appendHeader(nil, s.hash)
	t.snap = s
	return s
}

// Hash implements Saving. It returns the hash in the header.
func (s *Snapshot) Hash() uint64 { return s.hash }

// Held implements Saving. It returns the bytes held for slots written ahead.
func (s *Snapshot) Held() int64 { return int64(cap(s.pending)) + 8*int64(cap(s.saved)) }

func (s *Snapshot) Sound() bool {
	return !s.damaged && s.child || !s.damaged && s.slots == s.wantSlots && s.blobs == s.wantBlobs && s.ids == s.wantIDs
}

// Next implements Saving. It appends the next piece to dst, about budget bytes in addition to the
// slots written ahead. It reports whether the piece was the last.
func (s *Snapshot) Next(dst []byte, budget int) (out []byte, done bool) {
	dst = append(dst, s.pending...)
	if s.pending = s.pending[:0]; cap(s.pending) > maxSparePending {
		s.pending = nil
	}
	if s.t == nil {
		return dst, true
	}
	limit := len(dst) + budget
	for steps := max(budget, 1); steps > 0 && (len(dst) < limit || budget <= 0) && s.cursor < s.high; steps-- {
		s.cursor++
		if s.child {
			s.cursor = s.nextForeign(s.cursor)
		}
		if h := s.cursor; s.saved[h>>6]>>(h&63)&1 == 0 {
			dst = s.appendSlot(dst, h)
		}
	}
	if s.cursor < s.high {
		return dst, false
	}
	dst = binary.AppendUvarint(append(dst, recordEnd), uint64(s.high))
	s.Abort()
	return dst, true
}

// nextForeign returns the first foreign slot from h on, or high if none is below that.
func (s *Snapshot) nextForeign(h timer.Handle) timer.Handle {
	for l := s.t.leaving; l != nil && h <= l.high; h = (h | 63) + 1 {
		if word := l.slots[h>>6] >> (h & 63); word != 0 {
			return min(h+timer.Handle(bits.TrailingZeros64(word)), s.high)
		}
	}
	return s.high
}

// Abort ends the snapshot. It may be called at any time and repeatedly.
func (s *Snapshot) Abort() {
	if s.t != nil {
		s.t.snap = nil
	}
	s.t, s.saved, s.pending = nil, nil, nil
}

// keep writes a slot ahead of the cursor if it is not yet written.
func (s *Snapshot) keep(h timer.Handle) {
	if h <= s.cursor || h > s.high || s.saved[h>>6]>>(h&63)&1 != 0 || s.child && !s.t.foreign(h) {
		return
	}
	s.saved[h>>6] |= 1 << (h & 63)
	s.pending = s.appendSlot(s.pending, h)
}

func (t *Table) appendHeader(dst []byte, hash uint64) []byte {
	format := byte(snapshotVersion)
	switch {
	case t.division.shards != 0:
	case t.leastVersion != 0:
		format = neverDivided
	case len(t.deliveries.of) == 0:
		format = noDeliveries
	default:
		format = neverRestored
	}
	dst = append(append(dst, snapshotMagic...), format)
	dst = encoding.AppendUvarints(dst,
		uint64(t.id), uint64(t.clockMs), t.seq, t.fence,
		uint64(t.slots.High), uint64(t.slots.Free), uint64(t.slots.Unused),
		uint64(t.finished.oldest), uint64(t.finished.newest), uint64(t.finished.bytes))
	dst = t.leaderships.append(t.closedTopics.append(dst))
	dst = binary.AppendUvarint(dst, uint64(t.restamped))
	if format > noDeliveries {
		dst = t.deliveries.append(dst)
	}
	if format > neverRestored {
		dst = binary.AppendUvarint(dst, uint64(t.leastVersion))
	}
	if format > neverDivided {
		dst = t.division.append(dst)
	}
	return binary.LittleEndian.AppendUint64(append(dst, HashVersion), hash)
}

func (c *closedTopics) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.tombs)))
	for _, tomb := range c.tombs {
		dst = encoding.AppendUvarints(dst, uint64(tomb.topic), uint64(tomb.atMs))
	}
	return dst
}

func (l *leaderships) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(l.terms)))
	for _, r := range l.terms {
		dst = encoding.AppendUvarints(dst, r.from, r.owner)
	}
	return dst
}

func (d *deliveries) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(d.of)))
	for _, x := range d.of {
		dst = encoding.AppendUvarints(dst, uint64(x.topic), x.word())
	}
	return dst
}

func (s *Snapshot) appendSlot(dst []byte, h timer.Handle) []byte {
	t := s.t
	o := t.slots.At(h)
	if s.child && !t.foreign(h) {
		return dst
	}
	if !s.child {
		s.slots += t.slotHash(h, o)
	}
	if o.State() == 0 {
		return encoding.AppendUvarints(append(dst, recordFree), uint64(h), uint64(t.slots.NextFree(h)))
	}
	v := t.content.View(o.Ref)
	if !s.child {
		s.blobs += t.content.Hash(h, &v)
	}
	if !o.Chained() || t.chains[h].newer == 0 {
		s.ids++
	}
	dst = s.appendTarget(dst, v.Target)
	kind := byte(recordTimer)
	if o.Attempt != 0 {
		kind = recordRun
	}
	dst = append(dst, kind)
	dst = encoding.AppendUvarints(dst,
		uint64(h), o.Seq(), uint64(o.Attempts()), uint64(o.When()), o.Marks(),
		uint64(t.topics.rows[o.Topic].id), uint64(o.Rev), uint64(v.Target))
	dst = encoding.AppendBlock(append(dst, v.Flags), v.Body)
	if o.Attempt != 0 {
		r := t.attempts.At(o.Attempt)
		s.blobs += t.content.ErrorHash(h, r.ErrRef)
		dst = t.appendRun(dst, r)
	}
	if o.Chained() {
		l := t.chains[h]
		dst = encoding.AppendUvarints(dst, uint64(l.newer), uint64(l.older))
	}
	if o.Attempt != 0 && t.attempts.At(o.Attempt).Successor != 0 {
		dst = s.appendSuccessor(dst, h, t.attempts.At(o.Attempt).Successor)
	}
	if a, collects := t.arrays[h]; collects || t.isBehind(h, o) {
		dst = s.appendArray(dst, h, &a, collects)
	}
	if o.Attempt != 0 {
		if log := t.content.Attempts(t.attempts.At(o.Attempt).ErrRef); len(log) > 0 {
			dst = binary.AppendUvarint(append(dst, recordAttempts), uint64(h))
			dst = encoding.AppendBlock(dst, log)
		}
	}
	return dst
}

// appendTarget defines a callback override unless an earlier record defines it.
func (s *Snapshot) appendTarget(dst []byte, row uint32) []byte {
	b, sound := s.t.content.Define(row, s.number)
	if b == nil {
		return dst
	}
	s.damaged = s.damaged || !sound
	dst = binary.AppendUvarint(append(dst, recordTarget), uint64(row))
	return encoding.AppendBlock(dst, b)
}

func (s *Snapshot) appendSuccessor(dst []byte, h timer.Handle, ref uint32) []byte {
	v := s.t.content.View(ref)
	s.blobs += s.t.content.Hash(h, &v)
	dst = s.appendTarget(dst, v.Target)
	dst = append(encoding.AppendUvarints(append(dst, recordSuccessor), uint64(h), uint64(v.Target)), v.Flags)
	return encoding.AppendBlock(dst, v.Body)
}

// Flags of an array in a snapshot.
const (
	arrayBehind   = 1 << iota // the timer waits behind another
	arrayCollects             // count, payloads and names follow
	arrayClosed

	arrayFlags = 1<<iota - 1
)

func (s *Snapshot) appendArray(dst []byte, h timer.Handle, a *content.Array, collects bool) []byte {
	flags := encoding.Flag(s.t.chains[h].behind, arrayBehind) | encoding.Flag(collects, arrayCollects) |
		encoding.Flag(a.Closed, arrayClosed)
	dst = append(binary.AppendUvarint(append(dst, recordArray), uint64(h)), flags)
	if !collects {
		return dst
	}
	s.blobs += s.t.content.ArrayHash(h, a)
	dst = binary.AppendUvarint(dst, uint64(a.Count))
	payloads, names := s.t.content.Texts(a)
	return encoding.AppendBlock(encoding.AppendBlock(dst, payloads), names)
}

func (t *timers) appendRun(dst []byte, r *slab.Attempt) []byte {
	dst = binary.AppendUvarint(dst, r.Fence)
	dst = encoding.AppendVarints(dst, r.DueMs, r.EndedMs(), r.FiredMs, r.Lateness)
	dst = encoding.AppendUvarints(dst, uint64(r.Newer), uint64(r.Older), uint64(r.Status), uint64(r.DurMs), uint64(r.Holder))
	text, answer := t.content.Failure(r.ErrRef)
	return encoding.AppendFailure(dst, text, answer)
}
