// Package history keeps ended timers on disk: a Store takes events and writes them to files, one
// for each hour, finds them by topic and time, by id, and by timer, and drops the oldest.
//
// It is a convenience, not the promise: records are written some moments after they were taken,
// synced every few seconds, and dropped (and counted) when the disk cannot keep up or is almost
// full. A crash may lose the last seconds. A damaged record is left out and counted, never given
// out.
//
// Rules of use:
//
//   - Open reads the files. Run, which is called once, writes until its context ends and closes the
//     files. A caller that does not use Run calls Tend now and then.
//   - Record may be called from any goroutine and never blocks on the disk. The events of one shard
//     come in ascending order of (Index, Item). Events that are there already, as after a restart
//     that reads its log again, are skipped.
//   - List, Find and Attempts may be called from any goroutine. They see all earlier events.
//
// The body of an event is not its concern. It knows no topics by name, no policies and no cluster:
// a node's files have the shards of which it had a replica while it had one.
// docs/formats/history.md has the bytes.
package history
