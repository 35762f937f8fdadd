package table

// leadership is a period in which one process led. Leases with fences from this one up to the next
// leadership's belong to the process. One without an owner is the slow part of the one before it.
type leadership struct{ from, owner uint64 }

// maxLeaderships bounds the leaderships that are kept. The owner of an older lease is unknown, and
// the lease is left to run out.
const maxLeaderships = 32

// leaderships gives fences to leases, and knows the processes that gave the recent ones.
type leaderships struct {
	fence uint64       // last fence given to a lease
	terms []leadership // the most recent ones, oldest first
}

func (l *leaderships) nextFence() uint64 {
	l.fence++
	return l.fence
}

// takeover starts a leadership. Without an owner it begins the slow part of the last one, which
// ends when the owner is named again. Cost: O(1), and O(maxLeaderships) once that many are kept.
func (l *leaderships) takeover(owner uint64) {
	next, n := leadership{from: l.fence + 1, owner: owner}, len(l.terms)
	if owner == 0 {
		l.beginSlow(next)
		return
	}
	for ; n > 0 && l.terms[n-1].from == next.from; n-- {
		l.terms = l.terms[:n-1] // it gave no lease
	}
	if n == 0 || l.terms[n-1].owner != owner {
		l.push(next)
	}
}

// beginSlow begins a slow part. It is joined to an earlier one of the same leadership: the time
// between the two counts as slow, too.
func (l *leaderships) beginSlow(next leadership) {
	n := len(l.terms)
	switch {
	case n == 0 || l.terms[n-1].owner == 0:
	case n > 2 && l.terms[n-2].owner == 0 && l.terms[n-3].owner == l.terms[n-1].owner:
		l.terms = l.terms[:n-1]
	default:
		l.push(next)
	}
}

func (l *leaderships) push(next leadership) {
	if len(l.terms) == maxLeaderships {
		l.terms = append(l.terms[:0:0], l.terms[1:]...)
	}
	l.terms = append(l.terms, next)
}

// LeaseOwner returns the process that gave the lease; 0 if it is no longer known.
func (l *leaderships) LeaseOwner(fence uint64) Incarnation {
	for i := len(l.terms) - 1; i >= 0; i-- {
		if r := l.terms[i]; r.from <= fence && r.owner != 0 {
			return Incarnation(r.owner)
		}
	}
	return 0
}

// SlowStart reports that the lease was given in a slow part of a leadership, or that its leadership
// is no longer known: its call may start late.
func (l *leaderships) SlowStart(fence uint64) bool {
	for i := len(l.terms) - 1; i >= 0; i-- {
		if l.terms[i].from <= fence {
			return l.terms[i].owner == 0
		}
	}
	return true
}

// StartsSlowly reports that the next lease will be one of a slow part.
func (l *leaderships) StartsSlowly() bool { return l.SlowStart(l.fence + 1) }

// Incarnation identifies a process of a node: the node's id and its start count.
type Incarnation uint64

// NewIncarnation packs a node id (below 2^40) and a start count.
func NewIncarnation(node uint64, start uint32) Incarnation {
	return Incarnation(node<<24 | uint64(start&0xffffff))
}

// Node returns the id of the process's node.
func (i Incarnation) Node() uint64 { return uint64(i) >> 24 }

// Start returns the start count of the process, modulo 2^24.
func (i Incarnation) Start() uint32 { return uint32(i) & 0xffffff }

func (l *leaderships) LastFence() uint64 { return l.fence }
