// Package timer is the vocabulary of Carillon: timers, topics and their policies, commands and
// queries, their results and errors, history entries, and the shard of an id.
//
// It holds data, and rules that follow from the data alone. It knows no node, no log, no clock and
// no HTTP. The API, the ring, the history and the shards' host all name timers through it, so that
// none of them depends on another for its types.
//
//   - Values of Kind, State, Reason, Merge, CatchUp and PayloadKind are part of the formats in
//     docs/formats.
//   - Times are Unix milliseconds, durations are milliseconds.
//   - timer/recurrence computes the next occurrence of a Repeat; timer/bulk decides one change for
//     each of many timers.
package timer
