package table

// HashVersion is the version of a table's hash: what it covers, and how. Hashes of different
// versions cannot be compared.
const HashVersion = 2

// Hash returns a hash of the replicated state. It is equal on all replicas that applied the same
// entries, one by one or starting from a snapshot. It combines sums that every change updates, so
// it takes constant time.
func (t *Table) Hash() uint64 {
	x := mix(t.slotSum, t.blobSum)
	for _, v := range [...]uint64{
		uint64(t.clockMs), t.seq, t.fence,
		uint64(t.slab.high), uint64(t.slab.free), uint64(t.slab.unused),
		uint64(t.finished.oldest)<<32 | uint64(t.finished.newest), uint64(t.finished.bytes),
	} {
		x = mix(x, v)
	}
	x = mix(x, t.closedSum)
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
