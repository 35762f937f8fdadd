package sim

import (
	"strings"
	"time"

	"carillon/test/memfs"
)

// syncFault is a false report of a sync by a disk, once in a machine's life.
type syncFault struct {
	lie   memfs.SyncLie
	dirs  bool          // for a directory, not a file
	of    string        // part of the file's name
	left  int           // matching syncs to let through first
	times int           // how many syncs in a row
	lasts time.Duration // time from the first lie to the power cut; 0: at once if possible
	told  bool
}

// syncLies makes a disk report syncs that it has not done, or has done elsewhere. Soon after, the
// power is cut and the data is missing. This happens to one machine at a time, while all others
// have all data and nothing else is wrong. The machine's vote and acknowledgements count for
// majorities, so others may need the lost data until they have it themselves. A process on such a
// disk must not go on as if it had all data: it is repaired; or it refuses to start; or its leader
// tells it that the end of its log is missing, and it stops; or a newer leader sends it the missing
// entries.
func (w *World) syncLies() {
	n := w.sufferer()
	if n.rotten || !w.whole() {
		return
	}
	for _, m := range w.nodes {
		// one that lost data may find it out some time after it has started again
		if !m.gone && (m.crash.plans() || m.held || m.rotten && w.now-m.stoppedAt < refusedIn) {
			return
		}
	}
	r := w.ills
	d, wait := &syncFault{left: 1 + r.IntN(20), times: 1 + r.IntN(3), of: "wal"}, r.between(20*time.Millisecond, 4*time.Second)
	d.lie = memfs.SyncLie{Lies: true, Skip: r.IntN(8), Count: r.IntN(4), KeepSize: r.IntN(4) == 0}
	switch r.IntN(8) {
	case 0, 1, 2, 3: // the end of its log, which no later data refers to
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

// deceive plans a disk's next lie.
func (c *crash) deceive(d *syncFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deceit = d
}

// honest ends the lies of a disk. Data that it has not written stays lost.
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

// hasLied reports whether a disk has lied and the power has not been cut for that yet: others may
// still need what would be lost, so no other fault cuts it before.
func (c *crash) hasLied() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deceit.hasLied()
}

func (d *syncFault) hasLied() bool { return d != nil && d.told }

func (c *crash) told(d *syncFault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.told
}

// lies is the disk's reaction to a sync.
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

// revealAfter cuts a machine's power once its disk has lied and all other replicas are complete.
// After patience without a lie it gives up.
func (w *World) revealAfter(n *node, d *syncFault, wait, patience time.Duration) {
	const again = 20 * time.Millisecond
	w.after(wait, func() {
		switch {
		case w.calm || n.gone || !n.crash.plans():
		case n.crash.told(d) && d.lasts > 0:
			wait, d.lasts = d.lasts, 0
			w.revealAfter(n, d, wait, patience)
		case n.crash.told(d) && !w.whole(): // another machine was given up meanwhile
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

// reveal cuts the power: data that the disk has not written is lost.
func (w *World) reveal(n *node) {
	w.counts.Lies++
	n.crash.deceive(nil)
	n.lied, n.reached = true, nil
	clear(n.votes)
	n.held = !w.swarm.ailments.atOnce
	n.stop(true)
	w.release(n)
}

// release starts the machine again when the others have the data that it had.
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

// without reports whether other nodes lead all groups and have all committed entries.
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

// toldByLeader reports whether a process stops because its leader knows that entries are missing.
func (n *node) toldByLeader(err error) bool {
	return (n.lied || n.outdated) && strings.Contains(err.Error(), "the end of the log was damaged")
}
