package wheel

import "math/bits"

// Advance moves time forward to now, and makes the timers due that become due on the way. It does
// at most budget units of work: one for each timer that cascades, one for each tick at which timers
// become due. It returns how many it did and whether time has reached now. If not, time stands
// somewhere before; call again. Between the calls everything is consistent and every method may be
// used; the budget must exceed the number of timers added for the ticks just ahead in between, or
// time stays behind. A now that is not after Now changes nothing. Empty stretches cost nothing.
func (w *Wheel) Advance(now Tick, budget int) (spent int, done bool) {
	for w.now < now {
		start, b, ok := w.next()
		if !ok || start > now {
			w.now = now
			break
		}
		w.now = start - 1 // nothing starts in between
		if spent >= budget {
			return spent, false
		}
		if b >= slots {
			w.cascade = b
			spent += w.moveDown(b, start, budget-spent)
			if !w.empty(b) {
				return spent, false
			}
			b = 0 // start is a multiple of 64
		}
		if !w.empty(b) {
			if spent >= budget {
				return spent, false
			}
			spent++
		}
		w.enter(start, b)
	}
	return spent, true
}

// enter completes the step to tick start: the timers of its level-0 slot are due.
func (w *Wheel) enter(start Tick, slot int) {
	if w.cascade == bucketFar {
		w.splice(bucketLater, bucketFar)
	}
	w.cascade = 0
	w.now = start
	w.due += int(w.lowest[slot])
	w.lowest[slot] = 0
	w.splice(slot, bucketDue)
}

// moveDown moves at most budget timers from the front of bucket b, which begins at
// tick start, to where they belong from then on. It returns how many it moved.
func (w *Wheel) moveDown(b int, start Tick, budget int) int {
	h := w.lists[b].head
	moved := 0
	for moved < budget && h&bucketLink == 0 {
		n := w.node(h)
		w.hint(n)
		next, when := n.next, n.when()
		to := bucketAt(when, start)
		if to == bucketFar {
			to = bucketLater // far itself must run empty
		}
		w.pushAt(to, h, n, when)
		h = next
		moved++
	}
	if moved > 0 {
		w.setHead(b, h)
	}
	return moved
}

// Next returns a tick before which no timer becomes due and no cascade is needed:
// Advance has nothing to do until then. It is the tick of the earliest timer when
// that is in level 0 (within now's block of 64 ms), else the start of the first
// slot that is not empty. Timers that are due already do not count; it returns
// false when there are no others.
func (w *Wheel) Next() (Tick, bool) {
	start, _, ok := w.next()
	return start, ok
}

// next returns the first tick after now at which a bucket that is not empty
// starts, and the bucket. Since slots up to now's digit are empty on every level,
// the lowest slot of the lowest level in use is the one.
func (w *Wheel) next() (start Tick, b int, ok bool) {
	if w.cascade != 0 {
		return w.now + 1, w.cascade, true
	}
	for level := range levels {
		row := w.bitmaps[level]
		if row == 0 {
			continue
		}
		slot, shift := bits.TrailingZeros64(row), level*slotBits
		block := w.now >> (shift + slotBits) << slotBits
		return (block | Tick(slot)) << shift, level*slots + slot, true
	}
	if w.empty(bucketFar) {
		return 0, 0, false
	}
	return (w.now>>spanBits + 1) << spanBits, bucketFar, true
}
