// Package table is the state machine of one shard: its timers, the application of log entries to
// them, and the snapshots that store them. DESIGN.md has its parts and their costs.
//
// Rules of use:
//
//   - Table.Apply is pure: no clock, no randomness, no I/O. Replicas that applied the same entries
//     have the same state and Hash. So has a replica loaded from a snapshot in between.
//   - A Batch is one entry that a leader proposes. It carries the leader's time, which is the only
//     time that a table knows.
//   - A leader's use of the timetable (Advance, Pop, Arm, Rearm) is local: it is not replicated and
//     not in the hash.
//   - One goroutine uses a table. Another one may write a Snapshot in progress.
//
// docs/formats/commands.md and snapshot.md describe the formats.
package table
