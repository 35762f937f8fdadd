// Package shard keeps timers and fires them. A Host runs a node's raft groups on a few workers:
// shards of timers, and the meta group of topics. Package table is a shard's state machine. Package
// scheduler is the part of a shard that only its leader runs.
//
// Rules of use:
//
//   - New starts nothing. Run recovers from the log, serves, and blocks until its context ends
//     (nil) or the storage fails (the error). A host is run once. To let running calls end, call
//     Drain before ending the context.
//   - Do, DoAll, Timer, List, Counts, Candidates, PullFrom, Propose, Stats and TopicsChanged may be
//     called from any goroutine once Started is closed. Each ends within seconds: with an answer
//     that is on disk, or with one of the Err values of package timer. After ErrUnknown and
//     ErrStopped a change may have taken effect.
//   - Place, Deliver, Receive, Unreachable, Gone and Cordon may be called from any goroutine too.
//     Frames for Deliver may be lost, repeated and reordered.
//   - A worker owns its groups alone. Topics, Dispatcher, Machine, Observer, History and Ready are
//     called on workers, Machine and History during recovery also on other goroutines. None of them
//     may block.
//   - A Permit is used or cancelled exactly once, and a call's done is called exactly once, from
//     any goroutine.
//   - Wall time decides when a timer is due. Leases, time-outs and breakers are measured on the
//     monotonic clock.
//
// The package makes no HTTP calls (the Dispatcher does), knows no names of topics (the meta group's
// Machine does), does not decide where replicas are (it asks Place), and knows no addresses (Peers
// does). DESIGN.md describes the turn, the life of a call and the crash points; docs/formats
// describes the bytes.
package shard
