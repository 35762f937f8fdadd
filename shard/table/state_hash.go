package table

import "carillon/shard/feature"

// The versions of a table's hash. Hashes of different versions cannot be compared. A version
// defines the coverage and the method, and never changes. A later version is written from some
// feature level on (see Level).
const (
	// hashOfList visits each closed topic, so it takes time in proportion to them.
	hashOfList = 1
	// hashOfSums combines sums that every change updates. It takes constant time.
	hashOfSums = 2

	HashVersion = hashOfSums
)

// Hash returns a hash of the replicated state. It is equal on all replicas that applied the same
// entries, one by one or starting from a snapshot.
func (t *Table) Hash() uint64 { return t.hashReigns(mix(t.hashCounters(), t.closedSum)) }

// hashOf returns the hash of a version from 1 to HashVersion.
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

// hash returns a closed topic's part of Table.closedSum.
func (b tombstone) hash() uint64 { return mix(uint64(b.topic), uint64(b.atMs)) }

// HashVersionOf returns the hash version that snapshots have at a feature level.
func HashVersionOf(level feature.Level) byte {
	if level < feature.LevelCompare {
		return hashOfList
	}
	return hashOfSums
}
