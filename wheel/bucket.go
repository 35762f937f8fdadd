package wheel

import "math/bits"

const (
	slotBits = 6
	slots    = 1 << slotBits // per level: one bit each in a uint64
	levels   = 7
	spanBits = slotBits * levels // the levels cover 2^42 ms

	// Buckets behind the levels' slots. They count as slots of a row of their own.
	bucketFar   = levels*slots + 0 // after the current span of 2^42 ms
	bucketLater = levels*slots + 1 // far ones already looked at by a cascade of far
	bucketDue   = levels*slots + 2
	buckets     = levels*slots + 3
	rows        = levels + 1
)

// hintDistance is how many nodes ahead of a walk hint loads. Measured with 8, 16
// and 32: more gains nothing and leaves more of a short list without hints.
const hintDistance = 8

// bucket is a doubly linked list of nodes, in order of arrival. The first node's
// prev and the last one's next are the link to the bucket itself, so a node
// leaves its list without knowing which it is in, and a whole list moves into
// another by changing its two ends.
type bucket struct {
	// Invariant: both ends are linkTo(b) exactly when the list is empty.
	head, tail uint32
	// recent is a ring of the last hintDistance arrivals; some may have left.
	recent [hintDistance]uint32
	turn   uint32 // arrivals so far, modulo 2^32
}

func emptyBucket(b int) bucket { return bucket{head: linkTo(b), tail: linkTo(b)} }

func linkTo(b int) uint32 { return bucketLink | uint32(b) }

// bucketAt returns the bucket of a timer of tick when while time stands at now. It needs when >=
// now; a timer of now itself belongs to a level-0 slot.
func bucketAt(when, now Tick) int {
	level := (bits.Len64(uint64(when^now)|(slots-1)) - 1) / slotBits
	if level >= levels {
		return bucketFar
	}
	return level*slots + int(when>>(level*slotBits))&(slots-1)
}

// push appends h, whose node is n, to bucket b.
func (w *Wheel) push(b int, h uint32, n *node) {
	l := &w.lists[b]
	last := l.tail
	past := &l.recent[l.turn%hintDistance]
	if *past != 0 {
		w.node(*past).ahead = h
	}
	*past = h
	l.turn++
	n.next, n.prev = linkTo(b), last
	l.tail = h
	if last&bucketLink != 0 {
		l.head = h
		w.bitmaps[b>>slotBits] |= 1 << (b & (slots - 1))
	} else {
		w.node(last).next = h
	}
}

// unlink takes n out of its list and marks it absent.
func (w *Wheel) unlink(n *node) {
	next, prev := n.next, n.prev
	n.next, n.prev = 0, 0
	if next&bucketLink == 0 {
		w.node(next).prev = prev
	} else {
		w.lists[next&^bucketLink].tail = prev
	}
	if prev&bucketLink == 0 {
		w.node(prev).next = next
	} else {
		w.lists[prev&^bucketLink].head = next
		if next == prev {
			w.markEmpty(int(next &^ bucketLink))
		}
	}
}

// setHead makes h, a node of bucket b or b's own link, the first of b: the nodes
// before it have been taken over by the caller.
func (w *Wheel) setHead(b int, h uint32) {
	l := &w.lists[b]
	l.head = h
	if h&bucketLink == 0 {
		w.node(h).prev = linkTo(b)
		return
	}
	l.tail = h
	w.markEmpty(b)
}

func (w *Wheel) markEmpty(b int) {
	w.bitmaps[b>>slotBits] &^= 1 << (b & (slots - 1))
}

func (w *Wheel) empty(b int) bool {
	return w.lists[b].head == linkTo(b)
}

// splice moves all of bucket from behind bucket to, in O(1).
func (w *Wheel) splice(from, to int) {
	if w.empty(from) {
		return
	}
	src, dst := w.lists[from], &w.lists[to]
	w.lists[from] = emptyBucket(from)
	w.markEmpty(from)

	w.node(src.head).prev = dst.tail
	w.node(src.tail).next = linkTo(to)
	if dst.tail&bucketLink != 0 {
		dst.head = src.head
		w.bitmaps[to>>slotBits] |= 1 << (to & (slots - 1))
	} else {
		w.node(dst.tail).next = src.head
	}
	dst.tail = src.tail
}
