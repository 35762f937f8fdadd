package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// History is told what became of timers, on every live replica and in the order in which entries
// are applied; a restart tells again what the log still has. Calls come from several workers, one
// shard always from the same.
type History interface {
	// Record takes the events of one applied entry. What they point to is the caller's again when
	// it returns. It must not block.
	Record(id timer.ShardID, index uint64, events []table.HistoryEvent)
}
