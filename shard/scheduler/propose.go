package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// The items of a scheduler in the next entry besides its leases (see lease.go), and the handling of
// items that raft does not take.

// GiveWay returns the leases that block a command. It reports false if the command must wait for a
// lease in the log's pipeline.
func (al *activeLeases) giveWay(b *table.Batch, cmd *timer.Command, o ClientChange) bool {
	if cmd.Kind == timer.Deliver {
		al.releaseHeld(b, cmd.Topic)
	}
	if cmd.Kind == timer.Add && cmd.Merge == timer.MergeReject || cmd.Kind == timer.Redrive || cmd.Kind == timer.Purge {
		return true
	}
	for h := al.table.Named(cmd.Topic, []byte(cmd.ID), cmd.Seq); h != 0; {
		switch f := al.byTimer[h]; {
		case f == nil || !al.table.Live(h, f.seq):
		case cmd.Kind == timer.Add && f.dueMs <= al.now.WallMs:
			// The timer is due, so its attempt goes ahead: a stream of adds could put it off for
			// ever.
		case f.phase == proposed:
			f.revoked = true
			al.await(f, o)
			return false
		case f.phase == held:
			al.release(b, f)
		}
		if cmd.Kind != timer.Cancel {
			break
		}
		h = al.table.NextLive(h) // a cancel is for all timers of the id that have not ended
	}
	return true
}

// release returns a lease whose call has not started, in the entry being built.
func (al *activeLeases) release(b *table.Batch, f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	b.Outcome(&table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release})
	al.env.Proposed(Item{outcomeProposed, f})
}

// releaseHeld returns a topic's held leases, which clients do not see.
func (al *activeLeases) releaseHeld(b *table.Batch, topic timer.TopicID) {
	for _, h := range al.handles() {
		if f := al.byTimer[h]; f.phase == held && al.table.Live(h, f.seq) && al.table.Due(h).Topic == topic {
			al.release(b, f)
		}
	}
}

// leaseDropped handles a lease that raft did not take.
func (al *activeLeases) leaseDropped(f *activeLease) {
	al.leaves(f)
	f.permit.Cancel()
	al.over(f)
	al.table.Rearm(f.handle, f.seq)
}

// outcomeDropped handles an outcome that raft did not take; f is its active lease, nil if there is
// none.
func (al *activeLeases) outcomeDropped(f *activeLease) {
	switch {
	case f == nil:
		al.inherited.scanAgain()
	case f.phase == returned:
		al.out.outcomes = append(al.out.outcomes, outcomeItem{table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release}, f})
	default:
		al.ended(f, &f.attempt)
	}
}

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
