// Package raftlog holds what raft keeps of one group's log in memory (Storage), and encodes raft's
// messages between nodes (docs/formats/peer.md). Storage has one owner and no locks. Entries that it
// returns, and those of a decoded message, point into memory that never changes: both are read only.
//
// The package writes no file (packages record and wal do) and decides nothing: how much is retained
// is the caller's.
package raftlog
