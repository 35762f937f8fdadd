package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Strike is Table.Strike on a running host.
func (h *Host) Strike(id timer.ShardID, fault table.MemoryFault, topic timer.TopicID, timer string, bit uint) (struck bool) {
	h.onWorkers(func(w *worker) {
		if g := h.groups[id]; g.w == w && g.table != nil {
			struck = g.table.Strike(fault, topic, timer, bit)
		}
	})
	return struck
}
