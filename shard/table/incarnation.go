package table

// Incarnation names a process of a node: the node's id and how often it has started.
type Incarnation uint64

// NewIncarnation packs a node id (below 2^40) and a start count.
func NewIncarnation(node uint64, start uint32) Incarnation {
	return Incarnation(node<<24 | uint64(start&0xffffff))
}

// Node is the node whose process it is.
func (o Incarnation) Node() uint64 { return uint64(o) >> 24 }

// Start is which of the node's processes.
func (o Incarnation) Start() uint32 { return uint32(o) & 0xffffff }
