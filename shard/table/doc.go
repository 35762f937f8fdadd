// Package table is the state machine of one shard: the timers that it has, what the entries of its
// log do to them, and the snapshots in which they are kept.
//
// Rules of use:
//
//   - Table.Apply is pure: no clock, no randomness, no I/O. Replicas that applied the same entries have the same state and the
//     same Hash, and so has one that was loaded from a snapshot between.
//   - A Batch is what a leader proposes as one entry. It carries the leader's time, which is all that a table knows of time.
//   - What a leader does with the wheel (Advance, Pop, Arm, Rearm) is its own: it is not replicated and not in the hash.
//   - One goroutine uses a table. A Snapshot under way may be written by another.
//
// A timer is a slot of fixed size (slot.go), a blob with what a client said of it (blob.go, in the
// blocks of arena.go), an entry of the index by its id (index.go), a place in the wheel, and once
// it was attempted an attempt state (attempt_state.go). None of these has a pointer, so that the
// garbage collector passes over millions of timers at no cost.
//
// apply.go is where an entry comes in; apply_*.go what its items do. docs/formats/commands.md and
// snapshot.md have the bytes.
package table
