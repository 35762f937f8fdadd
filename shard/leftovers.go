package shard

import (
	"time"

	"carillon/internal/vfs"
	"carillon/shard/record"
	"carillon/wal"
)

// leftovers tracks snapshot files of replicas that were removed from this node. They are deleted in
// the background, with retries. A file may appear after the tombstone: a snapshot that was being
// written, or received from another node, when the replica was removed.
type leftovers struct {
	some  bool          // there may be files to delete
	busy  bool          // a deletion runs
	upTo  uint64        // highest replica whose tombstone is on disk
	again time.Duration // earliest time of the next attempt; monotonic
}

// cleanUp begins to delete the snapshots of replicas up to upTo, whose tombstone is on disk.
// Snapshots of later replicas are kept.
func (l *leftovers) add(g *group, upTo uint64) {
	l.some, l.upTo = true, max(l.upTo, upTo)
	if !l.busy {
		l.delete(g)
	}
}

func (l *leftovers) delete(g *group) {
	l.some, l.busy = false, true
	h, w, upTo, gone := g.w.host, g.w, l.upTo, g.replica == 0
	h.inBackground(func() {
		err := wal.RemoveShardSnapshots(h.cfg.FS, h.snapshotDir(), uint32(g.id), func(conf []byte, err error) bool {
			if err != nil {
				// A damaged file is deleted too if there is no replica here that may need it.
				return gone && !vfs.IsReadFailure(err)
			}
			m, err := record.DecodeMark(conf)
			return err == nil && m.Replica <= upTo || err != nil && gone
		})
		w.box.post(&cleanedUp{group: g, err: err})
	})
}

// cleanedUp reports the end of a deletion to the worker.
type cleanedUp struct {
	group *group
	err   error
}

func (c *cleanedUp) handle(w *worker) {
	l := &c.group.leftovers
	l.busy = false
	if c.err != nil {
		l.some, l.again = true, w.now.Mono+snapshotRetry
		w.host.cfg.Logger.Error("the snapshots of a removed replica could not be deleted; they are tried again", "shard", uint32(c.group.id), "error", c.err)
	}
}

// tickLeftovers deletes files that appeared since the last deletion or survived it.
func (l *leftovers) tick(g *group) {
	if l := &g.leftovers; l.some && !l.busy && g.w.now.Mono >= l.again {
		l.delete(g)
	}
}
