package wheel

import "fmt"

// Audit walks every list and reports the first broken invariant: each timer in
// exactly one list, in the one that its tick implies, linked both ways; bitmaps
// and counts true. It takes time in proportion to the highest handle; it is for
// tests, simulation and diagnosis.
func (w *Wheel) Audit() error {
	total := 0
	for b := range w.lists {
		size, err := w.auditList(b)
		if err != nil {
			return fmt.Errorf("wheel: audit at tick %d: %w", w.now, err)
		}
		total += size
	}
	present := 0
	for _, chunk := range w.chunks {
		if chunk == nil {
			continue
		}
		for i := range chunk {
			if (chunk[i].next == 0) != (chunk[i].prev == 0) {
				return fmt.Errorf("wheel: audit at tick %d: node half linked: %+v", w.now, chunk[i])
			}
			if chunk[i].next != 0 {
				present++
			}
		}
	}
	if total != w.count || present != w.count {
		return fmt.Errorf("wheel: audit at tick %d: Len is %d, lists hold %d, nodes in use %d", w.now, w.count, total, present)
	}
	return nil
}

// auditList checks bucket b and returns its size. A node cannot be in two lists
// without one of its links being wrong, since prev is checked on the way.
func (w *Wheel) auditList(b int) (size int, err error) {
	bit := w.bitmaps[b>>slotBits]>>(b&(slots-1))&1 != 0
	if bit == w.empty(b) {
		return 0, fmt.Errorf("bucket %d: bitmap says %t, list empty %t", b, bit, w.empty(b))
	}
	prev := linkTo(b)
	h := w.lists[b].head
	for h&bucketLink == 0 {
		n := w.lookup(Handle(h))
		if n == nil {
			return 0, fmt.Errorf("bucket %d: holds handle %d, which is absent", b, h)
		}
		if n.prev != prev {
			return 0, fmt.Errorf("bucket %d: handle %d has prev %#x, want %#x", b, h, n.prev, prev)
		}
		if !w.belongs(n, b) {
			return 0, fmt.Errorf("bucket %d: handle %d of tick %d does not belong there (cascade of %d)", b, h, n.when(), w.cascade)
		}
		if size++; size > w.count {
			return 0, fmt.Errorf("bucket %d: holds more than all %d timers", b, w.count)
		}
		prev, h = h, n.next
	}
	if h != linkTo(b) || w.lists[b].tail != prev {
		return 0, fmt.Errorf("bucket %d: ends with %#x and tail %#x, want %#x and %#x", b, h, w.lists[b].tail, linkTo(b), prev)
	}
	if b < slots && size != int(w.lowest[b]) || b == bucketDue && size != w.due {
		return 0, fmt.Errorf("bucket %d: has %d timers, counted are %d in the slot or %d due", b, size, w.lowest[b&(slots-1)], w.due)
	}
	return size, nil
}

// belongs reports whether node n may be in bucket b.
func (w *Wheel) belongs(n *node, b int) bool {
	when := n.when()
	if when <= w.now || b == bucketDue {
		return when <= w.now && b == bucketDue
	}
	if n.stamp()&lowestFlag != 0 != (b < slots) {
		return false
	}
	if bucketAt(when, w.now) == b {
		return true
	}
	if w.cascade == 0 || bucketAt(when, w.now) != w.cascade {
		return false
	}
	down := bucketAt(when, w.now+1)
	return b == down && down != bucketFar || b == bucketLater && down == bucketFar
}
