package table

import "carillon/shard/feature"

// The versions of a table's hash. Hashes of different versions say nothing about each other. A
// version says what is covered and how, and never changes; a later one is written from a feature
// level on (see Level).
const (
	// hashOfList walks the closed topics. It takes time in proportion to them.
	hashOfList = 1
	// hashOfSums is made of sums that every change keeps up to date. It takes the same time
	// whatever the table holds.
	hashOfSums = 2

	HashVersion = hashOfSums
)

// Hash is a hash of the replicated state: equal on all replicas that applied the same entries,
// whether one by one or from a snapshot on.
func (t *Table) Hash() uint64 { return t.hashReigns(mix(t.hashCounters(), t.closedSum)) }

// hashOf is the hash of a version from 1 to HashVersion.
func (t *Table) hashOf(version byte) uint64 {
	if version != hashOfList {
		return t.Hash()
	}
	x := t.hashCounters()
	for _, tomb := range t.closedTopics {
		x = mix(mix(x, uint64(tomb.topic)), uint64(tomb.atMs))
	}
	return t.hashReigns(x)
}

func (t *Table) hashCounters() uint64 {
	x := mix(t.slotSum, t.blobSum)
	for _, v := range [...]uint64{
		uint64(t.clockMs), t.seq, t.fence,
		uint64(t.slab.high), uint64(t.slab.free), uint64(t.slab.unused),
		uint64(t.finished.oldest)<<32 | uint64(t.finished.newest), uint64(t.finished.bytes),
	} {
		x = mix(x, v)
	}
	return x
}

func (t *Table) hashReigns(x uint64) uint64 {
	for _, r := range t.leaderships {
		x = mix(mix(x, r.from), r.owner)
	}
	if t.deliverySum != 0 {
		x = mix(x, t.deliverySum)
	}
	if t.leastVersion != 0 {
		x = mix(x, uint64(t.leastVersion))
	}
	if t.restamped != noRestamp {
		x = mix(x, uint64(t.restamped))
	}
	return x
}

// hash is a closed topic's part of Table.closedSum.
func (b tombstone) hash() uint64 { return mix(uint64(b.topic), uint64(b.atMs)) }

// HashVersionOf is the version of the hash that snapshots carry at a level.
func HashVersionOf(level feature.Level) byte {
	if level < feature.LevelCompare {
		return hashOfList
	}
	return hashOfSums
}
