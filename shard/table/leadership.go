package table

// leadership is a period in which one process led. Leases with fences from this one up to the next
// leadership's belong to the process.
type leadership struct{ from, owner uint64 }

// maxLeaderships bounds the leaderships that are kept. The owner of an older lease is unknown, and
// the lease is left to run out.
const maxLeaderships = 32

// takeover starts a leadership.
func (t *Table) takeover(owner uint64) {
	next := leadership{from: t.fence + 1, owner: owner}
	if n := len(t.leaderships); n > 0 && t.leaderships[n-1].from == next.from {
		t.leaderships = t.leaderships[:n-1] // it gave no lease
	}
	if n := len(t.leaderships); n > 0 && t.leaderships[n-1].owner == owner {
		return
	}
	if len(t.leaderships) == maxLeaderships {
		t.leaderships = append(t.leaderships[:0:0], t.leaderships[1:]...)
	}
	t.leaderships = append(t.leaderships, next)
}

// LeaseOwner returns the process that gave the lease; 0 if it is no longer known.
func (t *Table) LeaseOwner(fence uint64) Incarnation {
	for i := len(t.leaderships) - 1; i >= 0; i-- {
		if t.leaderships[i].from <= fence {
			return Incarnation(t.leaderships[i].owner)
		}
	}
	return 0
}
