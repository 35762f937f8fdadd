package shard

import (
	"time"

	"carillon/shard/record"
	"carillon/wal"
)

// taken is when and where a manifest was taken.
type taken struct {
	gen   uint64
	bytes int64 // of the generation
	size  int   // of the manifest
	at    time.Duration
}

const (
	manifestEach  = time.Minute // as long as something is written
	manifestParts = 8           // so often in a generation
	manifestCost  = 32          // but no more of the log than one part in so many
)

// tickManifest takes a manifest when this process or a generation has begun to write, and now and
// then.
func (w *worker) tickManifest() {
	gen, bytes := w.stream.Place()
	grown := bytes - w.manifest.bytes
	if gen != w.manifest.gen || grown > 0 && w.now.Mono-w.manifest.at >= manifestEach || grown > max(w.stream.GenBytes()/manifestParts, int64(manifestCost*w.manifest.size)) {
		w.takeManifest(gen, bytes)
	}
}

func (w *worker) takeManifest(gen uint64, bytes int64) {
	c := &record.Manifest{Worker: uint64(w.groups[0].id), Workers: uint64(len(w.host.workers))}
	for _, g := range w.groups {
		if g.hasLocalState() {
			t := record.ReplicaState{Group: g.id, Replica: g.replica, Tombstone: g.tombstone, Hard: g.hard, Last: g.end}
			if g.files.newest == 0 {
				t.Creation = g.creation
			}
			c.Replicas = append(c.Replicas, t)
		}
	}
	w.openFrame()
	before := w.frame.Len()
	w.frame.AppendFunc(wal.RecordNodeMeta, 0, func(b []byte) []byte { return record.AppendManifest(b, c) })
	size := w.frame.Len() - before
	w.manifest = taken{gen: gen, bytes: bytes + int64(size), size: size, at: w.now.Mono}
}

// lastManifest takes one when the worker has had its last turn, so that all that is in the log
// before can be repaired.
func (w *worker) lastManifest() {
	w.takeManifest(w.stream.Place())
	w.flush()
}
