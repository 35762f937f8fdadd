// Package wal is the durable log under a multi-raft host: a Stream is one log shared by many
// shards, a Frame has the records that one turn of the host appends for all of them, a Record is
// one shard's part of a frame. Snapshot files lie in the same directory.
//
// Rules of use:
//
//   - One process per stream directory (Open takes a lock), one goroutine in
//     Run, or one caller of Step. Submit, DropBefore, Generations and LowDisk
//     may be called from any goroutine.
//   - A frame belongs to the stream from Submit until its done function was
//     called. done runs on the writer, in order of submission: hand off, do not block.
//   - done with a nil error and sync = true means: on disk, and so is everything
//     submitted before it. Without sync it means: handed to the operating system.
//   - The first failed write or sync poisons the stream. Nothing is tried again:
//     after a failed sync the kernel may have dropped the very pages.
//   - Open repairs only a tail that was never promised to anybody. All other
//     damage is a *CorruptionError that names directory, file and offset.
//   - Records that Open replays are durable when it returns, in spite of the answers
//     that the disk gave to the process before: see DESIGN.md, "What an open believes".
//   - Data given to a replay function is valid only during the call.
//
// Record bodies are opaque here. The package knows nothing of raft, shards' states or replication,
// and it serves no reads after Open: the host keeps its entries in memory. DESIGN.md has the crash
// points, docs/formats/wal.md the bytes.
package wal
