// Package table is the state machine of one shard: its timers, the application of log entries to
// them, and the snapshots that store them. DESIGN.md has its parts and their costs.
//
// Rules of use:
//
//   - Table.Apply is pure: no clock, no randomness, no I/O. Replicas that applied the same entries
//     have the same state and Hash. So has a replica loaded from a snapshot in between.
//   - A Batch is one entry that a leader proposes. It carries the leader's time, which is the only
//     time that a table knows.
//   - A leader's use of the timetable (Advance, Pop, Arm, Rearm) is local: it is not replicated and
//     not in the hash.
//   - One goroutine uses a table. Another one may write a Snapshot in progress.
//
// docs/formats/commands.md and snapshot.md describe the formats.
package table

import (
	"carillon/shard/table/content"
	"carillon/shard/table/index"
	"carillon/timer"
	"carillon/wheel"
)

// Table is the state machine of one shard. It has no clock, lock or goroutine and does no I/O: its
// state depends only on the entries given to Apply. One goroutine uses it.
//
// Replicated state is the content of the slots, attempts, blobs, finished list, closed topics,
// deliveries and counters. Two tables that applied the same entries agree on it and on Hash, even
// if one of them was loaded from a snapshot in between. Refs, attempt numbers, callback rows,
// topic rows, the index and the position of the wheel are local to a replica.
type Table struct {
	id timer.ShardID
	updater
	leaderships
	closedTopics
	deliveries
	restamping
	events

	clockMs int64 // the table's time; replicated; decreases only by setClock
	// leastVersion is the minimum version of a timer after a client's change. It is 0 except in a
	// table restored from a backup. There it keeps the table from giving again the versions that
	// were given after the backup and are lost.
	leastVersion uint32

	compares  bool   // the last entry makes the replicas compare their states
	snapshots uint32 // number of the last snapshot begun
	scratch   []byte // an encoded spec before it is copied into the arena
	outcomes  Outcomes
	endedAs   timer.State // how the current item ended its timer; 0: it did not
	// cancelLeft is what is left of the last entry's cancelWork.
	cancelLeft int64
}

func New(id timer.ShardID, nowMs int64) *Table {
	all := timers{content: content.New(), topics: newTopics(), chains: places{}, naming: newOutcomeTopics(), ids: index.New(), collections: newCollections()}
	return &Table{
		id: id, updater: updater{timetable: timetable{timers: all, wheel: wheel.New(wheel.Tick(nowMs))}},
		closedTopics: newClosedTopics(), restamping: restamping{noRestamp},
	}
}

// Compares reports whether the last entry makes the replicas compare their states.
func (t *Table) Compares() bool { return t.compares }

// ClockMs returns the latest time of an entry since the clock was last set back.
func (t *Table) ClockMs() int64 { return t.clockMs }

// HashVersion is the version of a table's hash: what it covers, and how. Hashes of different
// versions cannot be compared.
const HashVersion = 2

// Hash returns a hash of the replicated state. It is equal on all replicas that applied the same
// entries, one by one or starting from a snapshot. It combines sums that every change updates, so
// it takes constant time.
func (t *Table) Hash() uint64 {
	x := content.Mix(t.slotSum, t.content.Sum())
	for _, v := range [...]uint64{
		uint64(t.clockMs), t.seq, t.fence,
		uint64(t.slots.High), uint64(t.slots.Free), uint64(t.slots.Unused),
		uint64(t.finished.oldest)<<32 | uint64(t.finished.newest), uint64(t.finished.bytes),
	} {
		x = content.Mix(x, v)
	}
	x = content.Mix(x, t.closedTopics.sum)
	for _, r := range t.terms {
		x = content.Mix(content.Mix(x, r.from), r.owner)
	}
	if t.deliveries.sum != 0 {
		x = content.Mix(x, t.deliveries.sum)
	}
	if t.leastVersion != 0 {
		x = content.Mix(x, uint64(t.leastVersion))
	}
	if t.restamped != noRestamp {
		x = content.Mix(x, uint64(t.restamped))
	}
	if d := t.division.hash(); d != 0 {
		x = content.Mix(x, d)
	}
	return x
}
