package wheel

import "fmt"

// A chunk is the step by which the node array grows: 20 KiB, so that a process with a thousand
// small shards stays small, growing never copies nodes, and the chunk table (80 KB for ten million
// timers) stays in the cache.
const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
)

// node is one timer's place: 20 bytes, hence the tick in two halves.
type node struct {
	stampLow, stampHigh uint32
	// next and prev are handles, or at the list's ends a link to its bucket.
	// Invariant: both are 0 exactly when the handle is not in the wheel.
	next, prev uint32
	// ahead is a handle that was hintDistance places behind this one in a list, or 0. It is only a
	// hint and may be out of date: that handle was once in the wheel, so its node exists, and that
	// is all.
	ahead uint32
}

const (
	// lowestFlag marks a timer that sits in a level-0 slot (or came to the due
	// list from one). During a cascade, time alone does not show whether a timer
	// has moved down already, and Remove must keep the slots' counts exact.
	lowestFlag = 1 << 63
	// bucketLink marks a link to a bucket instead of a node; it also bounds handles.
	bucketLink = 1 << 31
)

// MaxHandle is the highest handle: the top bit of a link names buckets.
const MaxHandle Handle = bucketLink - 1

// stamp is the tick with lowestFlag.
func (n *node) stamp() uint64 { return uint64(n.stampHigh)<<32 | uint64(n.stampLow) }

func (n *node) setStamp(s uint64) { n.stampLow, n.stampHigh = uint32(s), uint32(s>>32) }

func (n *node) when() Tick { return Tick(n.stamp() &^ lowestFlag) }

// node returns the node of a handle which is known to be in the array.
func (w *Wheel) node(h uint32) *node {
	return &w.chunks[h>>chunkBits][h&chunkMask]
}

// lookup returns h's node when h is in the wheel, otherwise nil.
func (w *Wheel) lookup(h Handle) *node {
	i := int(h >> chunkBits)
	if i >= len(w.chunks) || w.chunks[i] == nil {
		return nil
	}
	n := &w.chunks[i][h&chunkMask]
	if n.next == 0 {
		return nil
	}
	return n
}

// hint loads the node that follows n in its list hintDistance places on, so that it is in the
// processor's cache when the walk gets there. Without the hint a walk of a list of millions waits a
// full memory latency for each timer, because each address is known only once the node before has
// arrived.
func (w *Wheel) hint(n *node) {
	if n.ahead != 0 {
		w.touched ^= w.node(n.ahead).next
	}
}

// slot returns the node for a handle that is about to come in, growing the array.
func (w *Wheel) slot(h Handle) *node {
	i := int(h >> chunkBits)
	if i >= len(w.chunks) || w.chunks[i] == nil {
		w.grow(h)
	}
	return &w.chunks[i][h&chunkMask]
}

func (w *Wheel) grow(h Handle) {
	if h > MaxHandle {
		panic(fmt.Sprintf("wheel: handle %d is above the highest, %d", h, MaxHandle))
	}
	i := int(h >> chunkBits)
	for len(w.chunks) <= i {
		w.chunks = append(w.chunks, nil)
	}
	w.chunks[i] = new([chunkLen]node)
}
