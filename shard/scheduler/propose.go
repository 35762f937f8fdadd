package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// What a scheduler has to say in the next entry, beside its leases (see lease.go), and what it does
// when raft does not take that.

// KnowsTime reports that in this leadership the clock was sure once: until then nothing is proposed
// that depends on it.
func (l *Scheduler) KnowsTime() bool { return l.timed }

// ProposeOutcomes says how leases ended, and what is over because of the time.
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

// GiveWay gives back the leases that stand in the way of a command; false: it waits for one that is
// on its way.
func (l *Scheduler) GiveWay(b *table.Batch, cmd *timer.Command, o ClientChange) bool {
	if cmd.Kind == timer.Deliver {
		l.releaseHeld(b, cmd.Topic)
	}
	if cmd.Kind == timer.Add && cmd.Merge == timer.MergeReject {
		return true
	}
	h, _ := l.table.Lookup(cmd.Topic, cmd.ID)
	for h != 0 {
		switch f := l.leases.byTimer[h]; {
		case f == nil || !l.table.Live(h, f.seq):
		case cmd.Kind == timer.Add && f.dueMs <= l.now.WallMs:
			// Not ahead of its time: the attempt goes, or adds that come all the time would put it
			// off for ever.
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
		h = l.table.Older(h) // a cancel is of all that has not ended under the id
	}
	return true
}

// release gives a lease back whose call has not started, in this entry.
func (l *Scheduler) release(b *table.Batch, f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	b.Outcome(&table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release})
	l.env.Proposed(Item{outcomeProposed, f})
}

// releaseHeld gives back a topic's leases that clients do not see yet.
func (l *Scheduler) releaseHeld(b *table.Batch, topic timer.TopicID) {
	for _, h := range l.activeHandles() {
		if f := l.leases.byTimer[h]; f.phase == held && l.table.Live(h, f.seq) && l.table.Due(h).Topic == topic {
			l.release(b, f)
		}
	}
}

// leaseDropped is told that raft did not take a lease.
func (l *Scheduler) leaseDropped(f *activeLease) {
	f.permit.Cancel()
	l.settled(f)
	l.table.Rearm(f.handle, f.seq)
}

// outcomeDropped is told that raft did not take an outcome; f is its active lease, if there is one.
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

// Item is what an item of an entry is for, as the scheduler knows it. Its replica keeps it until
// the item was applied, or the log did not take it.
type Item struct {
	kind  itemKind
	lease *activeLease
}

type itemKind uint8

const (
	othersProposed itemKind = iota // nothing waits for it
	leaseProposed
	outcomeProposed // of an inherited lease if it has no active one
)

// ItemApplied is told how an item of this scheduler's was applied.
func (l *Scheduler) ItemApplied(i Item, r *timer.Result) {
	switch i.kind {
	case leaseProposed:
		l.leased(i.lease, *r)
	case outcomeProposed:
		l.outcomeApplied(i.lease, r)
	}
}

// ItemDropped is told that the log did not take an item of this scheduler's: raft refused it.
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
