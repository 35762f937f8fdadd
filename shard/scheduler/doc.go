// Package scheduler is the part of a shard that only its leader runs. It takes due timers from the
// table's wheel and queues them by topic and destination, and by key where a topic is serial. When
// all gates are open it proposes a lease. It starts the call once the lease is applied and the
// timer is due, and proposes the outcome.
//
// Rules of use:
//
//   - All state is local. A new leader rebuilds it from the table.
//   - A Scheduler is used by one goroutine, its replica's worker, which calls it in every turn.
//     Waiter.Granted and the events for Env.Post may come from any goroutine.
//   - It reaches its replica through Env alone: it knows nothing of raft, of the log or of workers,
//     and reads no clock but the clocks.Moment that New was given.
//   - Limits belong to the node: the schedulers of all its shards share them, on several workers.
//
// ../DESIGN.md describes the life of a call, the gates, the order of keys, and how a new leader
// treats the leases that it finds.
package scheduler
