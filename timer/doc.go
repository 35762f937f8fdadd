// Package timer is the vocabulary of the whole house: timers, topics and their policies, the commands and queries on
// them, their results and errors, what their history says, and where an id lives.
//
// It holds data, and rules that follow from the data alone. It knows no node, no log, no clock and no HTTP. The API, the
// ring, the history and the shards' host all name timers through it, so that none of them needs another for its words.
//
//   - Values of Kind, State, Reason, Merge, CatchUp and PayloadKind are part of the formats in docs/formats.
//   - Times are Unix milliseconds, spans are milliseconds.
//   - timer/recurrence says when a Repeat comes next; timer/bulk decides one change for each of many timers.
package timer
