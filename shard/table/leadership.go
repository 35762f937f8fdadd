package table

// leadership is a time in which one process led: the leases from that fence on are its own, until
// the next leadership's.
type leadership struct{ from, owner uint64 }

// maxLeaderships bounds how many are remembered. Whose lease an older one is nobody knows any more:
// it is waited out.
const maxLeaderships = 32

// takeover begins a leadership.
func (t *Table) takeover(owner uint64) {
	next := leadership{from: t.fence + 1, owner: owner}
	if n := len(t.leaderships); n > 0 && t.leaderships[n-1].from == next.from {
		t.leaderships = t.leaderships[:n-1] // it leased nothing
	}
	if n := len(t.leaderships); n > 0 && t.leaderships[n-1].owner == owner {
		return
	}
	if len(t.leaderships) == maxLeaderships {
		t.leaderships = append(t.leaderships[:0:0], t.leaderships[1:]...)
	}
	t.leaderships = append(t.leaderships, next)
}

// LeaseOwner is the process that took the lease; 0: forgotten.
func (t *Table) LeaseOwner(fence uint64) Incarnation {
	for i := len(t.leaderships) - 1; i >= 0; i-- {
		if t.leaderships[i].from <= fence {
			return Incarnation(t.leaderships[i].owner)
		}
	}
	return 0
}
