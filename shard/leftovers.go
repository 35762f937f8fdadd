package shard

import (
	"time"

	"carillon/shard/record"
	"carillon/vfs"
	"carillon/wal"
)

// leftovers are snapshot files of replicas that are gone from here. They are deleted in the
// background, again and again until it works. A file may also come later than the tombstone: a
// snapshot that was being written, or was on its way from another node, when the replica went.
type leftovers struct {
	some  bool   // there may be some
	busy  bool   // they are being deleted
	upTo  uint64 // the highest replica whose tombstone is on disk
	again time.Duration
}

// cleanUp deletes, soon, the snapshots of replicas up to one whose tombstone is on disk. Those of a
// later replica are not touched.
func (g *group) cleanUp(upTo uint64) {
	l := &g.leftovers
	l.some, l.upTo = true, max(l.upTo, upTo)
	if !l.busy {
		g.deleteLeftovers()
	}
}

func (g *group) deleteLeftovers() {
	l := &g.leftovers
	l.some, l.busy = false, true
	h, w, upTo, gone := g.w.host, g.w, l.upTo, g.replica == 0
	h.inBackground(func() {
		err := wal.RemoveShardSnapshots(h.cfg.FS, h.snapshotDir(), uint32(g.id), func(conf []byte, err error) bool {
			if err != nil {
				return gone && !vfs.IsReadFailure(err) // nobody needs it, whatever it was
			}
			m, err := record.DecodeMark(conf)
			return err == nil && m.Replica <= upTo || err != nil && gone
		})
		w.box.post(&cleanedUp{group: g, err: err})
	})
}

// cleanedUp is told how it went.
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

// tickLeftovers deletes what came since the last time, or could not be deleted then.
func (g *group) tickLeftovers() {
	if l := &g.leftovers; l.some && !l.busy && g.w.now.Mono >= l.again {
		g.deleteLeftovers()
	}
}
