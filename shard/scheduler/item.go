package scheduler

import "carillon/timer"

// Item is the scheduler's purpose of one item of an entry. The replica keeps it until the item is
// applied or dropped.
type Item struct {
	kind  itemKind
	lease *activeLease
}

type itemKind uint8

const (
	othersProposed itemKind = iota // nothing waits for it
	leaseProposed
	outcomeProposed // without an active lease: of an inherited or a consumer's one
)

// ItemApplied handles the result of one of this scheduler's items.
func (s *Scheduler) ItemApplied(i Item, r *timer.Result) {
	switch i.kind {
	case leaseProposed:
		s.leases.leased(i.lease, *r)
	case outcomeProposed:
		s.leases.outcomeApplied(i.lease, r)
	}
}

// ItemDropped handles an item of this scheduler that raft did not take.
func (s *Scheduler) ItemDropped(i Item) {
	switch i.kind {
	case leaseProposed:
		s.leases.leaseDropped(i.lease)
	case outcomeProposed:
		s.leases.outcomeDropped(i.lease)
	default:
		s.due.rearmAll()
	}
}

// leaseDropped handles a lease that raft did not take.
func (al *activeLeases) leaseDropped(f *activeLease) {
	al.leaves(f)
	f.permit.Cancel()
	al.over(f)
	al.table.Rearm(f.handle, f.seq)
	if f.call != nil {
		al.applied(f.call)
	}
}

// outcomeDropped handles an outcome that raft did not take; f is its active lease, nil if there is
// none.
func (al *activeLeases) outcomeDropped(f *activeLease) {
	switch {
	case f == nil:
		al.inherited.scanAgain()
	case f.phase == returned:
		al.out.release(f)
	default:
		al.ended(f, &f.attempt)
	}
}
