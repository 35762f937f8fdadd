package scheduler

import "time"

const (
	// leastProposed is how many leases of a shard may wait for their commit, however fast it is.
	leastProposed = 192
	// leasesInMs is how many more may wait for each millisecond that a commit takes at least.
	leasesInMs = 8
	// commitWindow is how long a commit time counts; until twice as long, if none is shorter.
	commitWindow = 10 * time.Second
)

// pipeline bounds the leases that wait for their commit. More would not be committed sooner, but all
// that comes after them later, another topic's leases, too. Where commits take long by nature, as
// between distant nodes, more may wait. The shortest commit time says so, since a busy node does not
// make it longer.
type pipeline struct {
	proposed         int           // leases
	shortest, before time.Duration // the shortest commit time of this window, and of the one before; 0: none
	window           time.Duration // when this one began; monotonic
}

func (p *pipeline) full() bool {
	shortest := p.shortest
	if p.before > 0 {
		shortest = min(shortest, p.before)
	}
	return p.proposed >= leastProposed+int(shortest*leasesInMs/time.Millisecond)
}

// committed records how long a lease took.
func (p *pipeline) committed(took, now time.Duration) {
	took = max(took, 1)
	if p.shortest == 0 || now-p.window >= commitWindow {
		p.before, p.shortest, p.window = p.shortest, took, now
	}
	p.shortest = min(p.shortest, took)
}
