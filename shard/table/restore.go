package table

import (
	"fmt"
	"io"
	"slices"

	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// Distance of a restored shard's counters from the backup's. A cluster cannot advance further after
// its newest backup.
const (
	fencesAhead   = 1 << 32 // leases of one shard
	numbersAhead  = 1 << 32 // timers created in one shard
	versionsAhead = 1 << 20 // changes of one timer
)

// unknownEnd is the last error of an attempt that was in flight when the data were lost, or that
// may have been followed by another one.
const unknownEnd = "restored from a backup: what became of this attempt, and whether another one was made, is not known"

// Overdue is the treatment of timers that were due before the restore. The lost cluster may or may
// not have fired them after the backup.
type Overdue uint8

// The treatments.
const (
	// HoldOverdue keeps them and counts them by topic, so that these topics can be paused.
	HoldOverdue Overdue = iota
	FireOverdue         // they stay and fire at once
	// DropOverdue cancels them. Those that were attempted before the backup become dead letters.
	DropOverdue
)

// Restore turns tables into those of a new cluster and counts their timers.
type Restore struct {
	// Owner gets the leases of the lost cluster's calls, so that they end at once.
	Owner   Incarnation
	NowMs   int64
	Overdue Overdue
	// Topics are those of the new cluster. Timers of other topics are dropped: the topic was
	// deleted after the shard was backed up.
	Topics interface {
		Topic(id timer.TopicID) (*timer.Topic, bool)
	}

	Scheduled, Leased, Dead, Finished int64 // timers
	// Late counts the overdue timers among Scheduled and Leased, as of the backup.
	Late int64
	// Cancelled and GivenUp count timers of Late that DropOverdue ended.
	Cancelled, GivenUp int64
	Held               map[timer.TopicID]int64

	calendar recurrence.Calendar
}

// Table reads a shard's snapshot and turns it into a table of the new cluster.
func (rs *Restore) Table(id timer.ShardID, r io.Reader) (*Table, error) {
	t, err := Load(id, r)
	if err != nil {
		return nil, err
	}
	if rs.Held == nil {
		rs.Held = map[timer.TopicID]int64{}
	}
	t.clockMs = max(t.clockMs, rs.NowMs)
	rs.dropClosed(t)
	if err := rs.goAhead(t); err != nil {
		return nil, fmt.Errorf("shard %d: %w", id, err)
	}
	rs.deliver(t)
	// Repeat: the successor of a dropped timer may be overdue too, and may have any handle.
	for again := true; again; {
		late := rs.Late
		for h := timer.Handle(1); h <= t.slots.High; h++ {
			if err := rs.timer(t, h); err != nil {
				return nil, fmt.Errorf("shard %d: %w", id, err)
			}
		}
		again = rs.Overdue == DropOverdue && rs.Late != late
	}
	n := t.Totals()
	rs.Scheduled, rs.Leased, rs.Dead = rs.Scheduled+n.Scheduled, rs.Leased+n.Leased, rs.Dead+n.Dead
	rs.Finished += n.Done + t.topics.totals[timer.Cancelled]
	return t, nil
}

// dropClosed drops the timers of topics that no longer exist, and reopens the closed topics that
// do.
func (rs *Restore) dropClosed(t *Table) {
	for _, id := range t.TopicRows().IDs() {
		if _, ok := rs.Topics.Topic(id); !ok {
			t.dropTopic(t.topics.rowOf[id], 0, 0)
		}
	}
	for _, tomb := range slices.Clone(t.tombs) {
		if _, ok := rs.Topics.Topic(tomb.topic); ok {
			t.closedTopics.open(tomb.topic)
		}
	}
}

// goAhead advances the table's counters beyond any value that the lost cluster can have given.
func (rs *Restore) goAhead(t *Table) error {
	if t.fence > 1<<63 || t.seq > timer.MaxMs-numbersAhead {
		return fmt.Errorf("its numbers are used up: fence %d, timer %d", t.fence, t.seq)
	}
	t.terms = []leadership{{from: 1, owner: uint64(rs.Owner)}}
	t.fence += fencesAhead
	t.seq += numbersAhead
	newest := t.leastVersion
	for h := timer.Handle(1); h <= t.slots.High; h++ {
		if s := t.slots.At(h); s.State() != 0 {
			newest = max(newest, t.content.View(s.Ref).Version)
		}
	}
	if newest > 1<<32-1-2*versionsAhead {
		return fmt.Errorf("its versions are used up: %d", newest)
	}
	t.leastVersion = newest + versionsAhead
	return nil
}

// deliver sets the deliveries to those of the topics. A change of delivery may have happened
// between the backup of the shard and that of the topics.
func (rs *Restore) deliver(t *Table) {
	for _, d := range slices.Clone(t.deliveries.of) {
		id := d.topic
		topic, ok := rs.Topics.Topic(id)
		if ok && topic.Turning {
			continue
		}
		t.deliveries.forget(id)
		if ok {
			for h := timer.Handle(1); h <= t.slots.High && t.leasedOtherwise(id, topic.Policy.Pull) > 0; h++ {
				s := t.get(h)
				if s != nil && s.State() == timer.Leased && t.topics.rows[s.Topic].id == id && (t.attempts.At(s.Attempt).Holder == ByPuller) != topic.Policy.Pull {
					t.outcome(&Outcome{Handle: h, Seq: s.Seq(), Fence: t.attempts.At(s.Attempt).Fence, Kind: RetryLater, NextMs: rs.NowMs,
						StartedMs: rs.NowMs, EndedMs: rs.NowMs, Err: unknownEnd})
				}
			}
			t.deliveries.set(id, delivery{turn: topic.Turn, pull: topic.Policy.Pull})
		}
	}
}

// timer treats a timer if it is overdue.
func (rs *Restore) timer(t *Table, h timer.Handle) error {
	s := t.get(h)
	if s == nil || s.State().Over() {
		return nil
	}
	if v := t.content.View(s.Ref); t.dueMs(s) > rs.NowMs && (v.AskedMs == 0 || v.AskedMs > rs.NowMs) {
		return nil // it cannot have been called since the backup
	}
	rs.Late++
	topic := t.topics.rows[s.Topic].id
	switch rs.Overdue {
	case HoldOverdue:
		rs.Held[topic]++
	case DropOverdue:
		return rs.drop(t, h, s, topic)
	}
	return nil
}

// drop ends an overdue timer. A series continues with its next occurrence.
func (rs *Restore) drop(t *Table, h timer.Handle, s *slab.Slot, topic timer.TopicID) error {
	next, repeats, err := rs.next(t, h)
	if err != nil {
		return fmt.Errorf("timer %s: %w", t.content.View(s.Ref).ID, err)
	}
	retain := rs.NowMs
	if known, ok := rs.Topics.Topic(topic); ok {
		retain += known.Policy.DeadRetentionMs
	}
	switch {
	case s.State() == timer.Leased:
		rs.GivenUp++
		t.outcome(&Outcome{Handle: h, Seq: s.Seq(), Fence: t.attempts.At(s.Attempt).Fence, Kind: Kill, Reason: timer.Expired, RetainUntilMs: retain,
			AgainMs: next, StartedMs: rs.NowMs, EndedMs: rs.NowMs, Err: unknownEnd})
	case s.Attempts() > 0:
		rs.GivenUp++
		t.expire(h, s.Seq(), s.Rev, retain, next)
	case repeats:
		rs.Cancelled++
		t.skipTo(h, s.Seq(), s.Rev, next)
	default:
		rs.Cancelled++
		t.cancelOne(h)
		t.rankEnded(h)
	}
	return nil
}

// next returns the next time of a series after now; 0 if the series is over.
func (rs *Restore) next(t *Table, h timer.Handle) (nextMs int64, repeats bool, err error) {
	s, ok := t.Series(h)
	if !ok {
		return 0, false, nil
	}
	if name, byCalendar := t.Zone(h); byCalendar {
		if _, err := recurrence.Release.Load(name); err != nil {
			return 0, true, err
		}
	}
	if t.slots.At(h).Attempts() > 0 && s.Last {
		return 0, true, nil
	}
	next := timer.ClampMs(rs.calendar.After(&s.Repeat, s.DueMs, max(s.DueMs, rs.NowMs)))
	if s.Repeat.UntilMs != 0 && next > s.Repeat.UntilMs {
		next = 0
	}
	return next, true, nil
}
