package table

import (
	"encoding/binary"
	"fmt"

	"carillon/timer"
)

// The format of a table's snapshot (docs/formats/snapshot.md).
const (
	snapshotMagic   = "CTBL"
	snapshotVersion = 7
	neverRestored   = 6 // without leastVersion; still written if that is 0
	noDeliveries    = 5 // without deliveries; still written if there are none
)

// maxSparePending is the most capacity of pending that is kept for the next piece.
const maxSparePending = 64 << 10

// Kinds of records. A target comes before the first timer that uses it.
const (
	recordTarget = 1 + iota
	recordTimer  // without an attemptState
	recordRun    // timer with an attemptState
	recordFree
	recordEnd
	recordSuccessor // of the preceding timer
)

// Snapshot writes a table's state as of BeginSnapshot in pieces, while entries are applied. A slot
// that is about to change is written first if it is not yet written.
//
// Slots written ahead stay in memory until the next call of Next, so the owner of a Snapshot must
// go on with it or abort it.
type Snapshot struct {
	t      *Table
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
	s := &Snapshot{t: t, number: t.snapshots, high: t.slab.high, saved: make([]uint64, t.slab.high>>6+1)}
	s.hash, s.wantSlots, s.wantBlobs = t.Hash(), t.slotSum, t.blobSum
	s.wantIDs = t.ids.count
	s.pending = t.appendHeader(nil, s.hash)
	t.snap = s
	return s
}

// Hash implements Saving. It returns the hash in the header.
func (s *Snapshot) Hash() uint64 { return s.hash }

// Held implements Saving. It returns the bytes held for slots written ahead.
func (s *Snapshot) Held() int64 { return int64(cap(s.pending)) + 8*int64(cap(s.saved)) }

// Sound implements Saving.
func (s *Snapshot) Sound() bool {
	return !s.damaged && s.slots == s.wantSlots && s.blobs == s.wantBlobs && s.ids == s.wantIDs
}

// Next implements Saving. It appends the next piece to dst, about budget bytes besides the slots
// written ahead. It reports whether the piece was the last.
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

// Abort ends the snapshot. It may be called at any time and repeatedly.
func (s *Snapshot) Abort() {
	if s.t != nil {
		s.t.snap = nil
	}
	s.t, s.saved, s.pending = nil, nil, nil
}

// keep writes a slot ahead of the cursor if it is not yet written.
func (s *Snapshot) keep(h timer.Handle) {
	if h <= s.cursor || h > s.high || s.saved[h>>6]>>(h&63)&1 != 0 {
		return
	}
	s.saved[h>>6] |= 1 << (h & 63)
	s.pending = s.appendSlot(s.pending, h)
}

func (t *Table) appendHeader(dst []byte, hash uint64) []byte {
	format := byte(snapshotVersion)
	switch {
	case t.leastVersion != 0:
	case len(t.deliveries) == 0:
		format = noDeliveries
	default:
		format = neverRestored
	}
	dst = append(append(dst, snapshotMagic...), format)
	for _, v := range [...]uint64{
		uint64(t.id), uint64(t.clockMs), t.seq, t.fence,
		uint64(t.slab.high), uint64(t.slab.free), uint64(t.slab.unused),
		uint64(t.finished.oldest), uint64(t.finished.newest), uint64(t.finished.bytes),
		uint64(len(t.closedTopics)),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, tomb := range t.closedTopics {
		dst = binary.AppendUvarint(dst, uint64(tomb.topic))
		dst = binary.AppendUvarint(dst, uint64(tomb.atMs))
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.leaderships)))
	for _, r := range t.leaderships {
		dst = binary.AppendUvarint(dst, r.from)
		dst = binary.AppendUvarint(dst, r.owner)
	}
	dst = binary.AppendUvarint(dst, uint64(t.restamped))
	if format > noDeliveries {
		dst = t.appendDeliveries(dst)
	}
	if format > neverRestored {
		dst = binary.AppendUvarint(dst, uint64(t.leastVersion))
	}
	return binary.LittleEndian.AppendUint64(append(dst, HashVersion), hash)
}

func (t *Table) appendDeliveries(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(t.deliveries)))
	for _, topic := range t.delivered() {
		d := t.deliveries[topic]
		dst = binary.AppendUvarint(dst, uint64(topic))
		dst = binary.AppendUvarint(dst, d.word())
	}
	return dst
}

func (s *Snapshot) appendSlot(dst []byte, h timer.Handle) []byte {
	t := s.t
	o := t.slab.at(h)
	s.slots += t.slotHash(h, o)
	if o.state() == 0 {
		dst = binary.AppendUvarint(append(dst, recordFree), uint64(h))
		return binary.AppendUvarint(dst, uint64(o.ref))
	}
	v := t.view(o.ref)
	s.blobs += t.blobHash(h, v.flags, v.target, v.body)
	if !o.chained() || t.chains[h].newer == 0 {
		s.ids++
	}
	dst = s.appendTarget(dst, v.target)
	kind := byte(recordTimer)
	if o.run != 0 {
		kind = recordRun
	}
	dst = append(dst, kind)
	for _, n := range [...]uint64{
		uint64(h), o.seq(), uint64(o.attempts()), uint64(o.when()), o.whenMarks & lowMask,
		uint64(t.topics.rows[o.topic].id), uint64(o.rev), uint64(v.target),
	} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(append(dst, v.flags), uint64(len(v.body)))
	dst = append(dst, v.body...)
	if o.run != 0 {
		r := t.runs.at(o.run)
		s.blobs += t.errorSum(h, r)
		dst = t.appendRun(dst, r)
	}
	if o.chained() {
		l := t.chains[h]
		dst = binary.AppendUvarint(dst, uint64(l.newer))
		dst = binary.AppendUvarint(dst, uint64(l.older))
	}
	if o.run != 0 && t.runs.at(o.run).successor != 0 {
		dst = s.appendSuccessor(dst, h, t.runs.at(o.run).successor)
	}
	return dst
}

// appendTarget defines a callback override unless an earlier record defines it.
func (s *Snapshot) appendTarget(dst []byte, row uint32) []byte {
	if row == 0 {
		return dst
	}
	g := s.t.targets.at(row)
	if g.saved == s.number {
		return dst
	}
	g.saved = s.number
	b := g.bytes(&s.t.blobs)
	s.damaged = s.damaged || !s.t.soundTarget(row)
	dst = binary.AppendUvarint(append(dst, recordTarget), uint64(row))
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

func (s *Snapshot) appendSuccessor(dst []byte, h timer.Handle, ref uint32) []byte {
	v := s.t.view(ref)
	s.blobs += s.t.blobHash(h, v.flags, v.target, v.body)
	dst = s.appendTarget(dst, v.target)
	dst = binary.AppendUvarint(append(dst, recordSuccessor), uint64(h))
	dst = binary.AppendUvarint(dst, uint64(v.target))
	dst = binary.AppendUvarint(append(dst, v.flags), uint64(len(v.body)))
	return append(dst, v.body...)
}

func (t *Table) appendRun(dst []byte, r *attemptState) []byte {
	dst = binary.AppendUvarint(dst, r.fence)
	for _, n := range [...]int64{r.dueMs, r.dueOrEndMs, r.firedMs, r.lateness} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, n := range [...]uint32{r.newer, r.older, uint32(r.status), r.durMs, uint32(r.holder)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	text := t.errorText(r)
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}
