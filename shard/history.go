package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// History receives the events of timers on every live replica, in the order in which entries are
// applied. A restart repeats those of entries that the log still has. Shards call concurrently,
// each from one goroutine at a time.
type History interface {
	// Record takes the events of one applied entry. They are valid only until it returns. It must
	// not block.
	Record(id timer.ShardID, index uint64, events []table.HistoryEvent)
}
