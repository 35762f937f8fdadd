// Package scheduler is what only the leader of a shard does: it takes what falls due from the
// table's wheel, queues it by topic and destination (and by key where a topic is serial), proposes
// a lease when all gates are open, starts the call when the lease is applied and the timer is due,
// and proposes the outcome.
//
// Rules of use:
//
//   - All of it is local. What a new leader does not find here it finds in the table.
//   - A Scheduler is used by one goroutine, its replica's worker, which calls it in every turn. Waiter.Granted and what is
//     handed to Env.Post may come from any.
//   - It meets its replica through Env alone: it knows nothing of raft, of the log or of workers, and reads no clock but
//     the moment that it was given.
//   - Limits are a node's: the schedulers of all its shards share them, on several workers.
//
// ../DESIGN.md has the life of a call, the gates, the order of keys and what a new leader does with
// leases that it finds.
package scheduler
