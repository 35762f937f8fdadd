package table

import "carillon/shard/table/content"

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
	return x
}
