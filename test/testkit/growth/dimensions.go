// Package growth measures what one step costs that a shard, a node or an answer cannot divide, as
// that of which a user has many grows.
package growth

// Dimensions are all things of which a user may have many. None of them may make a turn, a hand-out
// or an answer cost more than O(log n): each is filled at two sizes by a test that calls Check.
var Dimensions = []string{
	"receivers", "receivers that are down", "receivers that are busy", "waiters for a slot", "tenants",
	"keys", "timers of a key", "cancelled timers of a key", "keys that take turns", "timers of a key in turn", "receivers of a key with a limit", "keys at their rate", "ids", "dead letters of an id", "arrays of an id", "labels", "headers", "topics", "topics of a new leader", "topics at a scrape", "series of one instant", "zones",
	"expiries of one instant", "timers that ended at one instant", "timers that wait for their spread", "timers of a paused topic", "timers that are paused", "batches that gather",
	"windows that open at one instant", "calls that run", "calls that end at one instant", "calls of a former leader", "timers to pull", "leases of consumers", "leases of consumers at a limit", "pullers", "operations at once", "ends of an id",
	"shards", "nodes", "history files", "history records", "event listeners", "tokens",
}
