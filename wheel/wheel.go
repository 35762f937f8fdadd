package wheel

import "fmt"

// Tick is a time in milliseconds since the Unix epoch.
type Tick int64

// Handle names a timer: its slot number in the caller's table. 0 means none.
// Handles should be dense, since memory is kept up to the highest one.
type Handle uint32

// Wheel holds timers by their tick. Make one with New. It must not be copied or
// used by two goroutines at once.
type Wheel struct {
	// Invariant of now: a timer is in the due list exactly when its tick is <= now; any other is in
	// bucketAt(tick, now), or, while a cascade is under way, possibly in bucketAt(tick, now+1)
	// already. Hence slots at or before now's own digit are empty on every level.
	now Tick

	// cascade is the bucket that starts at now+1 and is being moved down.
	// 0 means none: bucket 0, as all of level 0, never cascades.
	// Only one bucket can start at a tick: any bucket whose tick range begins there differs from
	// now in the same highest digit.
	cascade int

	count int // timers in the wheel, due ones included
	due   int // timers in the due list

	// bitmaps has one row per level and one for far, later and due.
	// Invariant: a bit is set exactly when its bucket's list is not empty.
	bitmaps [rows]uint64
	lists   [buckets]bucket

	// lowest counts the timers of each level-0 slot, so that the number of due
	// ones stays known although a slot becomes due as a whole.
	lowest [slots]uint32

	// chunks is the node array, indexed by handle; nil where none was used yet.
	chunks []*[chunkLen]node

	// touched receives the value that hint has loaded, so that the compiler keeps the load. Its
	// value has no meaning.
	touched uint32
}

// New returns an empty wheel whose time stands at now (0 if now is negative).
func New(now Tick) *Wheel {
	w := &Wheel{now: max(now, 0)}
	for b := range w.lists {
		w.lists[b] = emptyBucket(b)
	}
	return w
}

// Now returns where time stands.
func (w *Wheel) Now() Tick { return w.now }

// Len returns the number of timers in the wheel, due ones included.
func (w *Wheel) Len() int { return w.count }

// Due returns the number of timers that are due and neither popped nor removed.
func (w *Wheel) Due() int { return w.due }

// Add puts timer h in, to become due at when. If that is not after Now, it is due
// at once, behind those that are due already. Times before the epoch count as 0.
// Add panics if h is 0, above MaxHandle, or in the wheel already.
func (w *Wheel) Add(h Handle, when Tick) {
	if h == 0 {
		panic(fmt.Sprintf("wheel: add of handle 0 (none) at tick %d", when))
	}
	n := w.slot(h)
	if n.next != 0 {
		panic(fmt.Sprintf("wheel: add of handle %d at tick %d: it is in already, at tick %d", h, when, n.when()))
	}
	w.count++
	w.place(uint32(h), n, when)
}

// Remove takes h out, wherever it is, and reports whether it was in. O(1).
func (w *Wheel) Remove(h Handle) bool {
	n := w.lookup(h)
	if n == nil {
		return false
	}
	w.count--
	w.displace(n)
	return true
}

// Move changes the tick of h, as Remove followed by Add. It panics if h is not in.
func (w *Wheel) Move(h Handle, when Tick) {
	n := w.lookup(h)
	if n == nil {
		panic(fmt.Sprintf("wheel: move of handle %d to tick %d: it is not in", h, when))
	}
	w.displace(n)
	w.place(uint32(h), n, when)
}

// When returns the tick of h, and whether h is in the wheel.
func (w *Wheel) When(h Handle) (Tick, bool) {
	n := w.lookup(h)
	if n == nil {
		return 0, false
	}
	return n.when(), true
}

// Pop takes due timers out, fills dst with them in the order in which they became
// due, and returns how many there were: less than len(dst) when no more are due.
func (w *Wheel) Pop(dst []Handle) int {
	h := w.lists[bucketDue].head
	popped := 0
	for popped < len(dst) && h&bucketLink == 0 {
		n := w.node(h)
		w.hint(n)
		dst[popped] = Handle(h)
		popped++
		h = n.next
		n.next, n.prev = 0, 0
	}
	if popped > 0 {
		w.setHead(bucketDue, h)
		w.count -= popped
		w.due -= popped
	}
	return popped
}

// PopLast is Pop from the other end: it takes out the timers that became due last, the last one
// first.
func (w *Wheel) PopLast(dst []Handle) int {
	h := w.lists[bucketDue].tail
	popped := 0
	for popped < len(dst) && h&bucketLink == 0 {
		n := w.node(h)
		dst[popped] = Handle(h)
		popped++
		h = n.prev
		w.unlink(n)
	}
	w.count -= popped
	w.due -= popped
	return popped
}

// place links a node that is in no list into the one where its tick belongs now.
func (w *Wheel) place(h uint32, n *node, when Tick) {
	if when <= w.now {
		n.setStamp(uint64(max(when, 0)))
		w.due++
		w.push(bucketDue, h, n)
		return
	}
	w.pushAt(bucketAt(when, w.now), h, n, when)
}

// pushAt links a node into bucket b of the levels or far, and counts it there.
func (w *Wheel) pushAt(b int, h uint32, n *node, when Tick) {
	stamp := uint64(when)
	if b < slots {
		stamp |= lowestFlag
		w.lowest[b]++
	}
	n.setStamp(stamp)
	w.push(b, h, n)
}

// displace undoes place.
func (w *Wheel) displace(n *node) {
	if n.when() <= w.now {
		w.due--
	} else if n.stamp()&lowestFlag != 0 {
		w.lowest[n.stamp()&(slots-1)]--
	}
	w.unlink(n)
}
