package table

import (
	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

// scrub is a walk over a table that makes its sums anew, a slice at a time, while entries go on
// being applied. The sums that Hash is made of are kept by the changes alone; so what memory has
// changed by itself, or what something else has written over, shows as a sum that is another.
type scrub struct {
	at           timer.Handle // the slots up to here are in the sums; 0: no walk is under way
	slots, blobs uint64
	walk         uint // how many there were before
	bad          bool // something is wrong that the sums do not cover
}

// An id is looked up for each so many slots in a walk, others in the next: it takes as long as all
// else.
const lookupEach = 4

// addSlot and addBlob keep the sums, and those of a walk that has been there.
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

// Scrub goes on with the walk for so many slots. It says whether the walk is over, and then
// whether the table is what Apply has made of it.
func (t *Table) Scrub(budget int) (done, sound bool) {
	defer func() {
		if recover() != nil { // what is damaged may lead anywhere
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

// leadsTo says whether the id of a timer leads to its slot, if it is the newest of that id.
func (t *Table) leadsTo(h timer.Handle) bool {
	s := t.slab.at(h)
	if s.state() == 0 || t.chains[h].newer != 0 {
		return true
	}
	return t.Find(t.topics.rows[s.topic].id, t.view(s.ref).id) == h
}

// sumsOf are a slot's parts of slotSum and blobSum. It is not ok if a callback is not what its
// hash says.
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

// errorSum is what the text of the last error has in blobSum.
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
