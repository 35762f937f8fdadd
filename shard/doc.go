// Package shard keeps timers and fires them: a Host runs a node's raft groups, each a shard of
// timers (or the meta group of topics), on a few workers; package table is a shard's state machine;
// a scheduler is what a shard's leader does with what falls due.
//
// Rules of use:
//
//   - New starts nothing. Run recovers from the log, serves, and blocks until its context ends (nil) or the storage fails (the
//     error); a host is run once. Whoever wants calls that run to end first calls Drain before.
//   - Do, DoAll, Timer, List, Counts, Offers, Take, Propose, Stats and TopicsChanged may be called from any goroutine after Started is closed.
//     Each ends: with an answer that is on disk, or with one of the Err values within seconds. After ErrUnknown and ErrStopped
//     a change may have taken effect.
//   - Place, Deliver, Receive, Unreachable, Gone and Cordon may be called from any goroutine too; frames for Deliver may be lost,
//     repeated and reordered.
//   - A worker owns its groups alone. Topics, Dispatcher, Machine, Observer, History and Ready are called on workers and must not block.
//   - A Permit is used or cancelled exactly once, and a call's done is called exactly once, from any goroutine.
//   - Wall time says when a timer is due; leases, time-outs and breakers are measured on the monotonic clock.
//
// What it does not do: it makes no HTTP calls (the Dispatcher does), knows no names of topics (the
// meta group's Machine does), does not decide where replicas are (Place tells it), and knows no
// addresses (Peers does). DESIGN.md has the turn, the life of a call and the crash points;
// docs/formats has the bytes.
package shard
