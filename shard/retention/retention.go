// Package retention tracks where a group's state is on disk: its snapshots, and the generations of
// the log that it still needs. It reads and writes nothing.
package retention

import "carillon/shard/record"

// Log is what one group has on disk. Two snapshots are kept, and the log from the older one on. So
// nothing is lost if the newest is damaged. The zero value is that of a group without anything.
type Log struct {
	Newest record.Mark // of the newest snapshot. Index 0: there is none; Conf nil: it cannot be read

	gens    []genRange // generations with entries that may be needed, oldest first
	hardGen uint64     // generation of the newest hard state
	older   uint64     // index of the snapshot before the newest
	bytes   int64      // of entries since the newest snapshot
	created uint64     // generation of the creation record, needed until there is a snapshot
	tomb    uint64     // generation of a removed replica's tombstone; 0: none is needed
}

// genRange is the last index of the group's entries in a generation.
type genRange struct{ gen, last uint64 }

// Grew counts an entry of the log since the newest snapshot.
func (l *Log) Grew(data []byte) { l.bytes += int64(len(data)) + 16 }

// Bytes returns the bytes of entries since the newest snapshot.
func (l *Log) Bytes() int64 { return l.bytes }

// Reached records that the entries up to index are in a generation or earlier.
func (l *Log) Reached(gen, index uint64) {
	if n := len(l.gens); n > 0 && l.gens[n-1].gen == gen {
		l.gens[n-1].last = index
		return
	}
	l.gens = append(l.gens, genRange{gen, index})
}

// Hard records the generation of the newest hard state.
func (l *Log) Hard(gen uint64) { l.hardGen = gen }

// Created records the generation of the replica's creation, which is a hard state too.
func (l *Log) Created(gen uint64) { l.created, l.hardGen = gen, gen }

// Buried records the generation of a removed replica's tombstone. Until Forgotten it is needed.
func (l *Log) Buried(gen uint64) { l.tomb = gen }

// Forgotten gives up the tombstone, because nothing is left of the removed replica.
func (l *Log) Forgotten() { l.tomb = 0 }

// Saved records a new snapshot of this replica. In the place of one that cannot be read, it leaves
// the older one needed.
func (l *Log) Saved(m *record.Mark) {
	if l.Readable() {
		l.older = l.Newest.Index
	}
	l.bytes, l.Newest = 0, *m
	l.Trim()
}

// Readable reports whether there is a snapshot, and the newest is not known to be unreadable.
func (l *Log) Readable() bool { return l.Newest.Index != 0 && l.Newest.Conf != nil }

// Restored records a snapshot from a peer. It replaces all earlier snapshots and entries.
func (l *Log) Restored(m *record.Mark) {
	l.bytes, l.Newest = 0, *m
	l.Continued(m.Index)
}

// Continued records that the log continues from a peer's snapshot, of which there may be a newer
// one by now.
func (l *Log) Continued(index uint64) {
	l.Void()
	l.older = index
}

// Void gives up the entries so far: a later replica, or a peer's snapshot, has replaced them.
func (l *Log) Void() { l.gens = nil }

// Older returns the index of the snapshot before the newest.
func (l *Log) Older() uint64 { return l.older }

// DropOlder gives up the older snapshot. It is for an idle group, which must not hold back old
// generations.
func (l *Log) DropOlder() {
	l.older = l.Newest.Index
	l.Trim()
}

// Trim gives up the generations whose entries the older snapshot has.
func (l *Log) Trim() {
	for len(l.gens) > 0 && l.gens[0].last <= l.older {
		l.gens = l.gens[1:]
	}
}

// Needed returns the oldest generation that the group needs.
func (l *Log) Needed() uint64 {
	if l.tomb != 0 {
		return l.tomb
	}
	needed := l.hardGen
	if len(l.gens) > 0 {
		needed = min(needed, l.gens[0].gen)
	}
	if l.Newest.Index == 0 {
		needed = min(needed, l.created)
	}
	return needed
}

// Pinnable returns how many closed generations a group may hold back. It grows with the state, so
// that snapshots write no more than the log does, and with the number of replicas, for the fixed
// cost of each file. A small state pins few, because a restart reads them all. At least one is
// allowed: the older snapshot is in one generation and the newest in the next.
func Pinnable(state, replicas, genBytes int64) uint64 {
	return uint64(min(1+state/genBytes+replicas/64, maxPinned))
}

const maxPinned = 7
