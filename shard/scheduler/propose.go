package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// The items of a scheduler in the next entry besides its leases (see lease.go), and the handling of
// items that raft does not take.

// KnowsTime reports that the clock was trusted in this leadership. Until then nothing that depends
// on it is proposed.
func (l *Scheduler) KnowsTime() bool { return l.timed }

// ProposeOutcomes proposes the outcomes of leases. While the clock is trusted it also proposes
// expiries, the forgetting of dead letters, and skips.
func (l *Scheduler) ProposeOutcomes(b *table.Batch) {
	o := &l.out
	n := 0
	for ; n < len(o.outcomes) && b.Size() < table.MaxBatchBytes; n++ {
		b.Outcome(&o.outcomes[n].Outcome)
		l.env.Proposed(Item{outcomeProposed, o.outcomes[n].lease})
	}
	if n < len(o.outcomes) {
		l.env.WakeNext()
	}
	left := copy(o.outcomes, o.outcomes[n:])
	clear(o.outcomes[left:])
	o.outcomes = o.outcomes[:left]
	if l.sure() {
		l.proposeEnds(b)
	}
	l.proposeOverlaps(b)
}

func (l *Scheduler) proposeEnds(b *table.Batch) {
	for _, e := range l.out.expires {
		b.Expire(e.handle, e.seq, e.rev, l.now.WallMs+l.retention(e.handle), l.again(e.handle, 0))
		l.env.Proposed(Item{})
		l.cfg.Observer.Expired()
	}
	for _, e := range l.out.forgets {
		b.Forget(e.handle, e.seq)
		l.env.Proposed(Item{})
	}
	l.out.expires, l.out.forgets = l.out.expires[:0], l.out.forgets[:0]
	l.proposeSkips(b)
}

// GiveWay returns the leases that block a command. It reports false if the command must wait for a
// lease in the log's pipeline.
func (l *Scheduler) GiveWay(b *table.Batch, cmd *timer.Command, o ClientChange) bool {
	if cmd.Kind == timer.Deliver {
		l.releaseHeld(b, cmd.Topic)
	}
	if cmd.Kind == timer.Add && cmd.Merge == timer.MergeReject || cmd.Kind == timer.Redrive || cmd.Kind == timer.Purge {
		return true
	}
	for h := l.table.Named(cmd.Topic, []byte(cmd.ID), cmd.Seq); h != 0; {
		switch f := l.leases.byTimer[h]; {
		case f == nil || !l.table.Live(h, f.seq):
		case cmd.Kind == timer.Add && f.dueMs <= l.now.WallMs:
			// The timer is due, so its attempt goes ahead: a stream of adds could put it off for
			// ever.
		case f.phase == proposed:
			f.revoked = true
			l.await(f, o)
			return false
		case f.phase == held:
			l.release(b, f)
		}
		if cmd.Kind != timer.Cancel {
			break
		}
		h = l.table.NextLive(h) // a cancel is for all timers of the id that have not ended
	}
	return true
}

// release returns a lease whose call has not started, in the entry being built.
func (l *Scheduler) release(b *table.Batch, f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	b.Outcome(&table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release})
	l.env.Proposed(Item{outcomeProposed, f})
}

// releaseHeld returns a topic's held leases, which clients do not see.
func (l *Scheduler) releaseHeld(b *table.Batch, topic timer.TopicID) {
	for _, h := range l.activeHandles() {
		if f := l.leases.byTimer[h]; f.phase == held && l.table.Live(h, f.seq) && l.table.Due(h).Topic == topic {
			l.release(b, f)
		}
	}
}

// leaseDropped handles a lease that raft did not take.
func (l *Scheduler) leaseDropped(f *activeLease) {
	l.leaves(f)
	f.permit.Cancel()
	l.settled(f)
	l.table.Rearm(f.handle, f.seq)
}

// outcomeDropped handles an outcome that raft did not take; f is its active lease, nil if there is
// none.
func (l *Scheduler) outcomeDropped(f *activeLease) {
	switch {
	case f == nil:
		l.ScanAgain()
	case f.phase == returned:
		l.out.outcomes = append(l.out.outcomes, outcomeItem{table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release}, f})
	default:
		l.ended(f, &f.attempt)
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
func (l *Scheduler) ItemApplied(i Item, r *timer.Result) {
	switch i.kind {
	case leaseProposed:
		l.leased(i.lease, *r)
	case outcomeProposed:
		l.outcomeApplied(i.lease, r)
	}
}

// ItemDropped handles an item of this scheduler that raft did not take.
func (l *Scheduler) ItemDropped(i Item) {
	switch i.kind {
	case leaseProposed:
		l.leaseDropped(i.lease)
	case outcomeProposed:
		l.outcomeDropped(i.lease)
	default:
		l.RearmAll()
	}
}
