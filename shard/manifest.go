package shard

import (
	"time"

	"carillon/shard/record"
	"carillon/wal"
)

// taken describes a worker's last manifest.
type taken struct {
	gen   uint64
	bytes int64 // generation length after the manifest
	size  int   // of the manifest in bytes
	at    time.Duration
}

const (
	manifestEach  = time.Minute // while the log grows
	manifestParts = 8           // most manifests in a generation, about
	manifestCost  = 32          // least log bytes per byte of a manifest
)

// tickManifest takes a manifest at the start of the process and of each generation, and at
// intervals while the log grows.
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
	w.prompt = true // after the last turn nothing else would take it along
	w.manifest = taken{gen: gen, bytes: bytes + int64(size), size: size, at: w.now.Mono}
}

// lastManifest takes a manifest after the worker's last turn, so that damage anywhere before it can
// be repaired.
func (w *worker) lastManifest() {
	w.takeManifest(w.stream.Place())
	w.flush()
}
