package table

import (
	"fmt"
	"io"
	"slices"

	"carillon/shard/feature"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// How far ahead of the backup a restored shard goes on: further than a cluster comes after its
// newest backup.
const (
	fencesAhead   = 1 << 32 // leases of a shard
	numbersAhead  = 1 << 32 // timers made in a shard
	versionsAhead = 1 << 20 // changes of one timer
)

// unknownEnd is the last error of an attempt that was under way, or may have been made again, when
// the data were lost.
const unknownEnd = "restored from a backup: what became of this attempt, and whether another one was made, is not known"

// Overdue says what becomes of timers that were due before the restore: the lost cluster may have
// fired them after the backup was taken, or not.
type Overdue uint8

// The ways to treat them.
const (
	HoldOverdue Overdue = iota // they stay, and are counted by topic, so that these topics can be paused
	FireOverdue                // they stay, and so fire at once
	DropOverdue                // they are cancelled; those that were attempted before the backup are dead letters
)

// Restore says how tables become those of a new cluster, and counts what is in them.
type Restore struct {
	Owner   Incarnation   // of leases that were calls of the lost cluster: they are over at once
	Level   feature.Level // that the cluster has agreed on, by which tables are written
	NowMs   int64
	Overdue Overdue
	Topics  interface { // of the new cluster
		Topic(id timer.TopicID) (*timer.Topic, bool)
	} // timers of any other topic are dropped: it was deleted after the shard was backed up

	Scheduled, Leased, Dead, Finished int64 // timers
	Late                              int64 // of Scheduled and Leased, as the backup has them: those that are overdue
	Cancelled, GivenUp                int64 // of Late, by DropOverdue
	Held                              map[timer.TopicID]int64

	calendar recurrence.Calendar
}

// Table reads a shard's snapshot and makes it that of a new cluster.
func (o *Restore) Table(id timer.ShardID, r io.Reader) (*Table, error) {
	t, err := Load(id, r)
	if err != nil {
		return nil, err
	}
	if o.Held == nil {
		o.Held = map[timer.TopicID]int64{}
	}
	t.clockMs = max(t.clockMs, o.NowMs)
	o.dropClosed(t)
	if err := o.goAhead(t); err != nil {
		return nil, fmt.Errorf("shard %d: %w", id, err)
	}
	o.deliver(t)
	for again := true; again; { // who waited for the end of one that was dropped may be overdue too, and have any handle
		late := o.Late
		for h := timer.Handle(1); h <= t.slab.high; h++ {
			if err := o.timer(t, h); err != nil {
				return nil, fmt.Errorf("shard %d: %w", id, err)
			}
		}
		again = o.Overdue == DropOverdue && o.Late != late
	}
	n := t.Totals()
	o.Scheduled, o.Leased, o.Dead = o.Scheduled+n.Scheduled, o.Leased+n.Leased, o.Dead+n.Dead
	o.Finished += n.Done + t.topics.totals[timer.Cancelled]
	return t, nil
}

// Save begins to write a table that Table has returned.
func (o *Restore) Save(t *Table) *Snapshot { return t.BeginSnapshotAt(HashVersionOf(o.Level)) }

// dropClosed forgets the timers of topics that are no more.
func (o *Restore) dropClosed(t *Table) {
	for _, id := range t.TopicIDs() {
		if _, ok := o.Topics.Topic(id); !ok {
			t.dropTopic(t.topics.rowOf[id], 0, 0)
		}
	}
	for _, tomb := range slices.Clone(t.closedTopics) {
		if _, ok := o.Topics.Topic(tomb.topic); ok {
			t.openTopic(tomb.topic)
		}
	}
}

// goAhead takes all that the table gives out beyond what the lost cluster can have given out.
func (o *Restore) goAhead(t *Table) error {
	if t.fence > 1<<63 || t.seq > timer.MaxMs-numbersAhead {
		return fmt.Errorf("its numbers are used up: fence %d, timer %d", t.fence, t.seq)
	}
	t.leaderships = []leadership{{from: 1, owner: uint64(o.Owner)}}
	t.fence += fencesAhead
	t.seq += numbersAhead
	newest := t.leastVersion
	for h := timer.Handle(1); h <= t.slab.high; h++ {
		if s := t.slab.at(h); s.state() != 0 {
			newest = max(newest, t.view(s.ref).version)
		}
	}
	if newest > 1<<32-1-2*versionsAhead {
		return fmt.Errorf("its versions are used up: %d", newest)
	}
	t.leastVersion = newest + versionsAhead
	return nil
}

// deliver has the log deliver as the topics say: a change of delivery may have come between the
// shard's part of the backup and theirs.
func (o *Restore) deliver(t *Table) {
	for _, id := range t.delivered() {
		topic, ok := o.Topics.Topic(id)
		switch {
		case !ok:
			t.forgetDelivery(id)
		case !topic.Turning:
			t.forgetDelivery(id)
			for h := timer.Handle(1); h <= t.slab.high && t.leasedOtherwise(id, topic.Policy.Pull) > 0; h++ {
				s := t.get(h)
				if s != nil && s.state() == timer.Leased && t.topics.rows[s.topic].id == id && (t.runs.at(s.run).holder == ByPuller) != topic.Policy.Pull {
					t.outcome(&Outcome{Handle: h, Seq: s.seq(), Fence: t.runs.at(s.run).fence, Kind: RetryLater, NextMs: o.NowMs,
						StartedMs: o.NowMs, EndedMs: o.NowMs, Err: unknownEnd})
				}
			}
			t.setDelivery(id, delivery{turn: topic.Turn, pull: topic.Policy.Pull})
		}
	}
}

// timer treats one that is overdue.
func (o *Restore) timer(t *Table, h timer.Handle) error {
	s := t.get(h)
	if s == nil || s.state().Over() || t.dueMs(s) > o.NowMs {
		return nil
	}
	o.Late++
	topic := t.topics.rows[s.topic].id
	switch o.Overdue {
	case HoldOverdue:
		o.Held[topic]++
	case DropOverdue:
		return o.drop(t, h, s, topic)
	}
	return nil
}

// drop ends a timer that is overdue. A series goes on with what comes next.
func (o *Restore) drop(t *Table, h timer.Handle, s *slot, topic timer.TopicID) error {
	next, repeats, err := o.next(t, h)
	if err != nil {
		return fmt.Errorf("timer %s: %w", t.view(s.ref).id, err)
	}
	retain := o.NowMs
	if known, ok := o.Topics.Topic(topic); ok {
		retain += known.Policy.DeadRetentionMs
	}
	switch {
	case s.state() == timer.Leased:
		o.GivenUp++
		t.outcome(&Outcome{Handle: h, Seq: s.seq(), Fence: t.runs.at(s.run).fence, Kind: Kill, Reason: timer.Expired, RetainUntilMs: retain,
			AgainMs: next, StartedMs: o.NowMs, EndedMs: o.NowMs, Err: unknownEnd})
	case s.attempts() > 0:
		o.GivenUp++
		t.expire(h, s.seq(), s.rev, retain, next)
	case repeats:
		o.Cancelled++
		t.skipTo(h, s.seq(), s.rev, next)
	default:
		o.Cancelled++
		t.cancelOne(h)
	}
	return nil
}

// next is when a series comes next after now; 0: it is over. A cancel that was asked for ends it.
func (o *Restore) next(t *Table, h timer.Handle) (nextMs int64, repeats bool, err error) {
	s, ok := t.Series(h)
	if !ok {
		return 0, false, nil
	}
	if name, byCalendar := t.Zone(h); byCalendar {
		if _, err := recurrence.LoadZone(name); err != nil {
			return 0, true, err
		}
	}
	if t.slab.at(h).attempts() > 0 && s.Last {
		return 0, true, nil
	}
	next := timer.ClampMs(o.calendar.After(&s.Repeat, s.DueMs, o.NowMs))
	if s.Repeat.UntilMs != 0 && next > s.Repeat.UntilMs {
		next = 0
	}
	return next, true, nil
}
