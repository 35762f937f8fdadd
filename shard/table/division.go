package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// A shard doubles (docs/adr/0067-shards-double.md): a part of its timers, the child's half, leaves
// it in the one entry that names them by slot. From then on they are foreign: still in their slots,
// frozen, and hidden from all that reads or changes timers here. Every replica makes the child of
// them (LoadChild). Later entries drop them. The child's timers keep their slots and numbers.

// division is what a table knows of its shard's doublings. All of it is replicated.
type division struct {
	shards  uint32       // of the cluster, by the last doubling of this one; 0: it had none
	lineage []ancestor   // of a child: whose numbers its timers have, in ascending order
	leaving *leavingHalf // nil: nothing foreign is here
}

// ancestor gave the numbers up to last, from the one before it on.
type ancestor struct {
	last  uint64
	shard timer.ShardID
}

// leavingHalf is the foreign half. To look a slot up is O(1). It takes one bit for each slot.
type leavingHalf struct {
	slots    []uint64     // a bit for each foreign slot
	high     timer.Handle // last slot at the division
	head     []byte       // with which the child begins; see appendStart
	finished finished     // of the foreign timers
	swept    timer.Handle // the foreign slots up to here are dropped
	sum      uint64       // of the hashes of the foreign slots
}

// foreign reports whether a slot's timer has left for the child.
func (d *division) foreign(h timer.Handle) bool { return d.leaving != nil && d.leaving.has(h) }

func (l *leavingHalf) has(h timer.Handle) bool {
	return h <= l.high && l.slots[h>>6]>>(h&63)&1 != 0
}

// count is how many slots are foreign.
func (l *leavingHalf) count() (n timer.Handle) {
	for _, word := range l.slots {
		n += timer.Handle(bits.OnesCount64(word))
	}
	return n
}

// set marks a slot as foreign, or as not foreign.
func (l *leavingHalf) set(h timer.Handle, is bool) {
	l.slots[h>>6] &^= 1 << (h & 63)
	if is {
		l.slots[h>>6] |= 1 << (h & 63)
		l.sum += content.Mix(uint64(h), 1)
	} else {
		l.sum -= content.Mix(uint64(h), 1)
	}
}

// DividedOf returns how many shards the cluster has by the last doubling of this shard; 0: it had
// none.
func (d *division) DividedOf() int { return int(d.shards) }

// Leaving reports whether timers of the child are here, and Swept whether some were dropped.
func (d *division) Leaving() bool { return d.leaving != nil }
func (d *division) Swept() bool   { return d.leaving == nil || d.leaving.swept > 0 }

// Foreign reports whether a slot's timer has left for the child.
func (d *division) Foreign(h timer.Handle) bool { return d.foreign(h) }

// originOf returns the shard that gave a number, if it is not this one; else 0.
func (d *division) originOf(seq uint64) timer.ShardID {
	for _, a := range d.lineage {
		if seq <= a.last {
			return a.shard
		}
	}
	return 0
}

// hash covers all of it. It is 0 in a table that was never divided.
func (d *division) hash() (x uint64) {
	if d.shards == 0 {
		return 0
	}
	x = content.Mix(uint64(d.shards), uint64(len(d.lineage)))
	for _, a := range d.lineage {
		x = content.Mix(content.Mix(x, a.last), uint64(a.shard))
	}
	if l := d.leaving; l != nil {
		x = content.Mix(content.Mix(x, l.sum), uint64(l.swept)<<32|uint64(l.high))
		x = content.Mix(content.Mix(x, hashOf(l.head)), uint64(l.finished.oldest)<<32|uint64(l.finished.newest))
	}
	return x
}

// Newer calls fn for the timers with a higher number than seq. It visits at most budget slots after
// from (0 at first) and returns the slot to continue after. fn must not change the table.
func (t *timers) Newer(seq uint64, from timer.Handle, budget int, fn func(h timer.Handle, topic timer.TopicID, id []byte)) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slots.High; budget-- {
		var s *slab.Slot
		if from, s = t.slots.Visit(from, t.slots.High); s.State() != 0 && s.Seq() > seq {
			fn(from, t.topics.rows[s.Topic].id, t.content.View(s.Ref).ID)
		}
	}
	return from, from >= t.slots.High
}

func (t *timers) LastSeq() uint64 { return t.seq }

// Divide makes the timers of some slots, one bit each, those of the child: the cluster has so many
// shards now.
func (b *Batch) Divide(of int, half []uint64) int {
	n := b.single(itemDivide)
	b.numbers(uint64(of), uint64(len(half)))
	for _, word := range half {
		b.buf = binary.LittleEndian.AppendUint64(b.buf, word)
	}
	return n
}

// Sweep drops the next foreign timers. It visits so many slots.
func (b *Batch) Sweep(slots int) int {
	n := b.single(itemSweep)
	b.numbers(uint64(slots))
	return n
}

// divide carries out Divide. Cost: O(slots), a few nanoseconds each, in addition to the finished
// timers.
func (t *Table) divide(of uint32, half []byte) timer.Result {
	if t.leaving != nil || of <= t.shards {
		return timer.Result{Code: timer.Skipped}
	}
	l := &leavingHalf{slots: make([]uint64, t.slots.High>>6+1), high: t.slots.High, head: t.appendStart(nil)}
	for i := range l.slots {
		if 8*i >= len(half) {
			break
		}
		l.slots[i] = binary.LittleEndian.Uint64(half[8*i:])
	}
	l.slots[len(l.slots)-1] &= 1<<(l.high&63+1) - 1 // no slot is above high
	for h := timer.Handle(0); h <= l.high; h++ {
		if !l.has(h) {
			continue
		}
		if h == 0 || t.slots.At(h).State() == 0 {
			l.slots[h>>6] &^= 1 << (h & 63)
			continue
		}
		l.sum += content.Mix(uint64(h), 1)
		t.uncountWait(h)
		t.WaitIn(h, nil, 0)
		t.countSlot(h, t.slots.At(h), -1)
	}
	t.finished.split(&t.updater, l)
	t.shards, t.leaving = of, l
	return timer.Result{Code: timer.OK}
}

// split moves the foreign timers of the list to the other half's, in the same order.
func (f *finished) split(u *updater, l *leavingHalf) {
	for h := f.oldest; h != 0; {
		next := timer.Handle(u.attempts.At(u.slots.At(h).Attempt).Newer)
		if l.has(h) {
			s := u.beginUpdate(h)
			f.remove(u, h, s)
			l.finished.push(u, h, s)
			u.endUpdate(h, s)
		}
		h = next
	}
}

// sweep carries out Sweep. After the last slot nothing is foreign, and the timers that are left
// take the memory that they need: this last step is O(slots), 0.1 µs for each timer.
func (t *Table) sweep(slots int) timer.Result {
	l := t.leaving
	if l == nil {
		return timer.Result{Code: timer.Skipped}
	}
	for ; slots > 0 && l.swept < l.high; slots-- {
		l.swept++
		if h := l.swept; l.has(h) {
			t.drop(h)
			l.set(h, false)
		}
	}
	if l.swept >= l.high {
		t.leaving, t.moving, t.moved = nil, true, 0
		t.wheel = pack(&t.slots, t.wheel)
	}
	return timer.Result{Code: timer.OK}
}

// appendStart writes what a child begins with in addition to its timers.
func (t *Table) appendStart(dst []byte) []byte {
	dst = encoding.AppendUvarints(dst, uint64(t.clockMs), t.seq, t.fence, uint64(t.leastVersion), uint64(t.restamped))
	dst = t.leaderships.append(t.closedTopics.append(dst))
	return t.deliveries.append(dst)
}

// append writes the part for a snapshot, of a table that was divided.
func (d *division) append(dst []byte) []byte {
	dst = encoding.AppendUvarints(dst, uint64(d.shards), uint64(len(d.lineage)))
	for _, a := range d.lineage {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, a.last), uint64(a.shard))
	}
	l := d.leaving
	if l == nil {
		return binary.AppendUvarint(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(l.high)+1)
	dst = encoding.AppendUvarints(dst, uint64(l.swept), uint64(l.finished.oldest), uint64(l.finished.newest), uint64(l.finished.bytes), uint64(len(l.head)))
	dst = append(dst, l.head...)
	for _, word := range l.slots {
		dst = binary.LittleEndian.AppendUint64(dst, word)
	}
	return dst
}

// maxLineage bounds the doublings of a cluster.
const maxLineage = 32

// division reads what append wrote.
func (l *loader) division() {
	d := &l.t.division
	d.shards = uint32(l.number(1<<32-1, "shards"))
	for n := l.number(maxLineage, "ancestors"); n > 0 && l.err == nil; n-- {
		a := ancestor{last: l.number(timer.MaxMs, "last number"), shard: timer.ShardID(l.number(1<<32-1, "ancestor"))}
		d.lineage = append(d.lineage, a)
	}
	high := uint64(l.t.slots.High)
	n := l.number(high+1, "slots at the division")
	if n == 0 || l.err != nil {
		if l.err == nil && d.shards == 0 {
			l.fail("no division")
		}
		return
	}
	h := &leavingHalf{high: timer.Handle(n - 1)}
	h.swept = timer.Handle(l.number(n-1, "last swept"))
	h.finished.oldest = timer.Handle(l.number(high, "oldest finished"))
	h.finished.newest = timer.Handle(l.number(high, "newest finished"))
	h.finished.bytes = int64(l.number(1<<62, "finished bytes"))
	h.head = slices.Clone(l.bytes(int(l.number(maxStart, "head"))))
	for len(h.slots) <= int(h.high>>6) && l.err == nil {
		if b := l.bytes(8); b != nil {
			h.slots = append(h.slots, binary.LittleEndian.Uint64(b))
		}
	}
	for at := timer.Handle(0); at <= h.high|63 && l.err == nil; at++ {
		switch is := h.slots[at>>6]>>(at&63)&1 != 0; {
		case is && (at <= h.swept || at > h.high):
			l.fail("handle %d is foreign", at)
		case is:
			h.sum += content.Mix(uint64(at), 1)
		}
	}
	if d.leaving = h; d.shards == 0 {
		l.fail("no division")
	}
}

// start reads what appendStart wrote into the table.
func (l *loader) start() {
	t := l.t
	t.clockMs = int64(l.number(timer.MaxMs, "clock"))
	t.seq = l.number(timer.MaxMs, "sequence")
	t.fence = l.number(1<<64-1, "fence")
	t.leastVersion = uint32(l.number(1<<32-1, "least version"))
	t.restamped = timer.Handle(l.number(uint64(noRestamp), "last restamped"))
	l.closed()
	l.leaderships()
	l.deliveries()
}

// BeginChild starts to save what LoadChild reads: the foreign timers of a table that is not swept.
// It is a snapshot in all else, but other slots have no records. The child's replicas find out
// whether memory was sound.
func (t *Table) BeginChild() *Snapshot {
	s := t.BeginSnapshot()
	s.child = true
	return s
}

// LoadChild reads what BeginChild of a table saves, and returns the table of its child. It is the
// same whenever after the division that began.
func LoadChild(parent, child timer.ShardID, r io.Reader) (*Table, error) {
	l := loader{r: bufio.NewReaderSize(r, 64<<10), targets: map[uint32][]byte{}}
	l.header(parent)
	t := l.t
	if l.err == nil && (t.leaving == nil || t.leaving.swept > 0) {
		l.fail("its division is over")
	}
	if l.err == nil {
		l.child, t.leaving = t.leaving, nil
		t.slots.Unused = int(t.slots.High) // about half; freeOthers counts
		t.id, t.finished = child, l.child.finished
		t.closedTopics, t.leaderships, t.deliveries = newClosedTopics(), leaderships{}, deliveries{}
		start := loader{r: bufio.NewReader(bytes.NewReader(l.child.head)), t: t}
		start.start()
		l.err = start.err
		t.lineage = append(t.lineage, ancestor{t.seq, parent})
		l.load()
	}
	if l.err != nil {
		return nil, fmt.Errorf("shard: load shard %d from a snapshot of shard %d: %w", child, parent, l.err)
	}
	return t, nil
}

// freeOthers makes the list of a child's free slots, in ascending order.
func (l *loader) freeOthers() {
	t := l.t
	t.slots.High, t.slots.Free, t.slots.Unused = l.child.high, 0, 0
	for h := t.slots.High; h > 0; h-- {
		if t.slots.Extend(h); t.slots.At(h).State() == 0 {
			t.slots.LoadFree(h, t.slots.Free)
			t.slots.Free = h
			t.slots.Unused++
		}
	}
}

func (d *division) memory() int64 {
	if d.leaving == nil {
		return 0
	}
	return 8*int64(cap(d.leaving.slots)) + int64(cap(d.leaving.head))
}
