package table

import (
	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

// scrub recomputes a table's sums in slices while entries are applied. Hash uses sums that only
// changes update. A recomputed sum therefore differs if memory has changed by itself or was
// overwritten.
type scrub struct {
	at           timer.Handle // the slots up to here are in the sums; 0: not started
	slots, blobs uint64
	walk         uint // number of completed walks
	bad          bool // damage was found that the sums do not cover
}

// lookupEach is the number of slots per id lookup, because a lookup takes as long as the rest of a
// slot's check. The next walk looks up other slots.
const lookupEach = 4

// addSlot and addBlob add to the sums, and to those of the scrub if it has visited the slot.
func (t *Table) addSlot(h timer.Handle, x uint64) {
	t.slotSum += x
	if h <= t.scrub.at {
		t.scrub.slots += x
	}
}

func (t *Table) addBlob(h timer.Handle, x uint64) {
	t.blobSum += x
	if h <= t.scrub.at {
		t.scrub.blobs += x
	}
}

// Scrub continues the walk for budget slots. It reports whether the walk is done and, if so,
// whether the table is as Apply made it.
func (t *Table) Scrub(budget int) (done, sound bool) {
	defer func() {
		if recover() != nil { // damaged data may cause any panic
			t.scrub, done, sound = scrub{walk: t.scrub.walk + 1}, true, false
		}
	}()
	for range max(budget, 1) {
		if t.scrub.at >= t.slab.high {
			s := t.scrub
			t.scrub = scrub{walk: s.walk + 1}
			return true, !s.bad && s.slots == t.slotSum && s.blobs == t.blobSum && t.sumClosed() == t.closedSum && t.sumDeliveries() == t.deliverySum
		}
		h := t.scrub.at + 1
		slots, blobs, ok := t.sumsOf(h)
		t.scrub.at, t.scrub.slots, t.scrub.blobs = h, t.scrub.slots+slots, t.scrub.blobs+blobs
		if ok && (uint(h)+t.scrub.walk)%lookupEach == 0 {
			ok = t.leadsTo(h)
		}
		t.scrub.bad = t.scrub.bad || !ok
	}
	return false, true
}

// leadsTo reports whether the index leads from the timer's id to its slot. It is true for
// superseded timers.
func (t *Table) leadsTo(h timer.Handle) bool {
	s := t.slab.at(h)
	if s.state() == 0 || t.chains[h].newer != 0 {
		return true
	}
	return t.Find(t.topics.rows[s.topic].id, t.view(s.ref).id) == h
}

// sumsOf returns a slot's parts of slotSum and blobSum. ok is false if a callback does not match
// its hash.
func (t *Table) sumsOf(h timer.Handle) (slots, blobs uint64, ok bool) {
	s := t.slab.at(h)
	slots = t.slotHash(h, s)
	if s.state() == 0 {
		return slots, 0, true
	}
	v := t.view(s.ref)
	blobs = t.blobHash(h, v.flags, v.target, v.body)
	ok = t.soundTarget(v.target)
	if s.run == 0 {
		return slots, blobs, ok
	}
	r := t.runs.at(s.run)
	blobs += t.errorSum(h, r)
	if r.successor != 0 {
		v := t.view(r.successor)
		blobs += t.blobHash(h, v.flags, v.target, v.body)
		ok = ok && t.soundTarget(v.target)
	}
	return slots, blobs, ok
}

// errorSum returns the part of the last error's text in blobSum.
func (t *Table) errorSum(h timer.Handle, r *attemptState) uint64 {
	if text := t.errorText(r); len(text) > 0 {
		return errorHash(h, text)
	}
	return 0
}

func (t *Table) soundTarget(row uint32) bool {
	if row == 0 {
		return true
	}
	g := t.targets.at(row)
	return xxhash.Sum64(g.bytes(&t.blobs)) == g.hash
}

func (t *Table) sumClosed() (sum uint64) {
	for _, tomb := range t.closedTopics {
		sum += tomb.hash()
	}
	return sum
}
