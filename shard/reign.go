package shard

// Owner names a process of a node: the node's id and how often it has started.
type Owner uint64

// NewOwner packs a node id (below 2^40) and a start count.
func NewOwner(node uint64, start uint32) Owner { return Owner(node<<24 | uint64(start&0xffffff)) }

// Node is the node whose process it is.
func (o Owner) Node() uint64 { return uint64(o) >> 24 }

// Start is which of the node's processes.
func (o Owner) Start() uint32 { return uint32(o) & 0xffffff }

// reign is a time in which one process led: the leases from that fence on are its own, until the next reign's.
type reign struct{ from, owner uint64 }

// maxReigns bounds how many are remembered. Whose lease an older one is nobody knows any more: it is waited out.
const maxReigns = 32

// takeover begins a reign.
func (t *Table) takeover(owner uint64) {
	next := reign{from: t.fence + 1, owner: owner}
	if n := len(t.reigns); n > 0 && t.reigns[n-1].from == next.from {
		t.reigns = t.reigns[:n-1] // it leased nothing
	}
	if n := len(t.reigns); n > 0 && t.reigns[n-1].owner == owner {
		return
	}
	if len(t.reigns) == maxReigns {
		t.reigns = append(t.reigns[:0:0], t.reigns[1:]...)
	}
	t.reigns = append(t.reigns, next)
}

// leaseOwner is the process that took the lease; 0: forgotten.
func (t *Table) leaseOwner(fence uint64) Owner {
	for i := len(t.reigns) - 1; i >= 0; i-- {
		if t.reigns[i].from <= fence {
			return Owner(t.reigns[i].owner)
		}
	}
	return 0
}
