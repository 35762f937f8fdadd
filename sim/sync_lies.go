package sim

import (
	"strings"
	"time"

	"carillon/vfs/memfs"
)

// syncFault is what a disk is going to do instead of a sync, once in a machine's life.
type syncFault struct {
	lie   memfs.SyncLie
	dirs  bool          // of a directory, not of a file
	of    string        // a part of the name
	left  int           // such syncs until then
	times int           // so often, one after the other
	lasts time.Duration // from the first on until it shows; 0: it need not show at once
	told  bool
}

// syncLies has a disk say that it has synced what it has not, or has written elsewhere. Soon after its power is cut, and it shows. It is done to one
// machine at a time, when all others have all and nothing else is wrong: its vote and its acknowledgements count for a majority, so what it has
// lost may be needed until the others have it. A process on such a disk must not go on as if it had all: it is repaired, it refuses to start,
// it is told by its leader that it has lost its end and stops, or who leads since then gives it what it lacks.
func (w *World) syncLies() {
	n := w.sufferer()
	if n.rotten || !w.whole() {
		return
	}
	for _, m := range w.nodes {
		if !m.gone && (m.crash.plans() || m.held) {
			return
		}
	}
	r := w.ills
	d, wait := &syncFault{left: 1 + r.IntN(20), times: 1 + r.IntN(3), of: "wal"}, r.between(20*time.Millisecond, 4*time.Second)
	d.lie = memfs.SyncLie{Lies: true, Skip: r.IntN(8), Count: r.IntN(4), KeepSize: r.IntN(4) == 0}
	switch r.IntN(8) {
	case 0, 1, 2, 3: // the end of its log, of which nothing that came later tells
		d.times, d.lie.Count, d.lasts = 1<<30, 0, r.between(0, 200*time.Millisecond)
		wait = 0
	case 4:
		d.of, d.left, d.lie.DropCache = "snapshots", 1+r.IntN(2), r.IntN(2) == 0
	case 5:
		d.dirs = true
	default:
		d.lie.Shift = r.Int64N(64) - 32
	}
	n.rotten = true
	n.crash.deceive(d)
	w.note(n, "lie", uint64(d.left), uint64(d.times), d.of)
	w.revealAfter(n, d, wait, 10*time.Second)
}

// deceive sets a disk's next lie.
func (c *crash) deceive(d *syncFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deceit = d
}

// honest has a disk lie no more. What it has not written it has not.
func (c *crash) honest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deceit != nil {
		c.deceit.left, c.deceit.times = 0, 0
	}
}

func (c *crash) plans() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deceit != nil
}

func (c *crash) told(d *syncFault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.told
}

// lies is the disk's answer to a sync.
func (c *crash) lies(name string, dir bool) memfs.SyncLie {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.deceit
	if d == nil || d.times == 0 || dir != d.dirs || !strings.Contains(name, d.of) {
		return memfs.SyncLie{}
	}
	if d.left--; d.left > 0 {
		return memfs.SyncLie{}
	}
	d.times--
	d.told = true
	return d.lie
}

// revealAfter cuts a machine's power once its disk has lied, and all others are there; it is given up if it does not come to that.
func (w *World) revealAfter(n *node, d *syncFault, wait, patience time.Duration) {
	const again = 20 * time.Millisecond
	w.after(wait, func() {
		switch {
		case w.calm || n.gone || !n.crash.plans():
		case n.crash.told(d) && d.lasts > 0:
			wait, d.lasts = d.lasts, 0
			w.revealAfter(n, d, wait, patience)
		case n.crash.told(d) && !w.whole(): // another was given up meanwhile
			w.revealAfter(n, d, again, patience)
		case n.crash.told(d):
			w.reveal(n)
		case patience < 0:
			n.crash.deceive(nil)
			n.rotten = false
		default:
			w.revealAfter(n, d, again, patience-again)
		}
	})
}

// reveal cuts the power: what its disk has not written is gone.
func (w *World) reveal(n *node) {
	w.counts.Lies++
	n.crash.deceive(nil)
	n.lied, n.reached = true, nil
	clear(n.votes)
	n.held = !w.swarm.ailments.atOnce
	n.stop(true)
	w.release(n)
}

// release has a machine that was lied to begin again, when the others have what it had.
func (w *World) release(n *node) {
	w.after(50*time.Millisecond, func() {
		switch {
		case !n.held || n.gone || w.calm:
		case !w.without(n):
			w.release(n)
		default:
			n.held = false
			n.start()
		}
	})
}

// without says whether all groups are led by others, and all of these have what was committed.
func (w *World) without(n *node) bool {
	meta := w.metaLeader()
	if meta == nil {
		return false
	}
	for _, row := range meta.state.Rows() {
		leader := w.leader(row.Group)
		if leader == nil || leader == n {
			return false
		}
		applied := leader.host.Progress(row.Group).Applied
		for _, r := range row.Replicas {
			if m := w.node(r.Node); m != n && (m.host == nil || m.host.Progress(row.Group).Last < applied) {
				return false
			}
		}
	}
	return true
}

// toldByLeader says whether a process stops because its leader knows that it had more than it has.
func (n *node) toldByLeader(err error) bool {
	return (n.lied || n.outdated) && strings.Contains(err.Error(), "the end of the log was damaged")
}
