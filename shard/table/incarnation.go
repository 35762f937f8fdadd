package table

// Incarnation identifies a process of a node: the node's id and its start count.
type Incarnation uint64

// NewIncarnation packs a node id (below 2^40) and a start count.
func NewIncarnation(node uint64, start uint32) Incarnation {
	return Incarnation(node<<24 | uint64(start&0xffffff))
}

// Node returns the id of the process's node.
func (o Incarnation) Node() uint64 { return uint64(o) >> 24 }

// Start returns the start count of the process, modulo 2^24.
func (o Incarnation) Start() uint32 { return uint32(o) & 0xffffff }
