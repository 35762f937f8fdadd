package sim

import (
	"io"
	"path/filepath"
	"time"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// An operator puts back an older copy of a machine's directory, or of its identity.json alone. A
// process that starts on it must not take part with any process that knows more of the node than
// the copy does. heardOlder and vetted check this for all processes at all times.

// puttingBack puts older copies back, with few other faults: by then the other nodes must have the
// data that the copy lacks.
func (s *swarm) puttingBack(c chance) {
	s.lying(c)
	s.ailments.lies, s.ailments.putsBack = 0, 0.2+0.5*c.Float64()
}

// copyOf copies a machine's disk.
func (n *node) copyOf() *memfs.FS {
	return n.disk.CrashClone(n.w.ills, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
}

// putBackSomewhere copies a disk and puts the copy back some seconds, and perhaps some restarts,
// later. Each machine suffers this once, one at a time, while nothing else is wrong, as with
// syncLies.
func (w *World) putBackSomewhere() {
	n := w.sufferer()
	if n.rotten || !w.whole() {
		return
	}
	for _, m := range w.nodes {
		if !m.gone && (m.rotten && m.up || m.held) {
			return
		}
	}
	n.rotten = true
	r := w.ills
	copied, alone := n.copyOf(), r.IntN(3) == 0
	w.note(n, "copy", uint64(n.starts), b2u(alone), "")
	w.leadUpTo(n, r.IntN(3), r.between(50*time.Millisecond, 4*time.Second), func() { w.putBackOn(n, copied, alone) })
}

// leadUpTo ends a machine's process a number of times, waits until the cluster is whole again each
// time, and then calls then.
func (w *World) leadUpTo(n *node, ends int, patience time.Duration, then func()) {
	w.after(w.ills.between(50*time.Millisecond, patience), func() {
		switch {
		case n.gone:
		case w.calm:
			n.rotten = false
		// perhaps before the cluster knows of the process
		case ends > 0 && n.up && w.ills.IntN(2) == 0:
			n.stop(false)
			w.leadUpTo(n, ends-1, patience, then)
		case !w.whole():
			w.leadUpTo(n, ends, patience, then)
		case ends > 0:
			n.stop(false)
			w.leadUpTo(n, ends-1, patience, then)
		default:
			then()
		}
	})
}

// putBackOn puts a copy back once the other nodes have all data of the machine.
func (w *World) putBackOn(n *node, copied *memfs.FS, alone bool) {
	n.held = true
	n.stop(false)
	w.after(50*time.Millisecond, func() {
		if !n.held || n.gone || w.calm {
			n.rotten = false
			return
		}
		if !w.without(n) {
			w.putBackOn(n, copied, alone)
			return
		}
		w.note(n, "put back", uint64(n.starts), b2u(alone), "")
		w.counts.PutBack++
		w.counts.Identity += int(b2u(alone))
		n.held = false
		n.putBack(copied, alone)
		n.start()
	})
}

// putBack makes a machine without a process start its next one on a copy.
func (n *node) putBack(copied *memfs.FS, alone bool) {
	n.outdated, n.rotten = true, true
	if alone {
		const path = dataDir + "/identity.json"
		f, err := copied.Open(path)
		if err == nil {
			var data []byte
			if data, err = io.ReadAll(f); err == nil {
				err = vfs.WriteFileAtomic(n.disk, filepath.FromSlash(path), data)
			}
			_ = f.Close()
		}
		if err != nil {
			n.w.violate("put back", "%v", err)
		}
		return
	}
	n.disk, n.reached = copied, nil
	clear(n.votes)
}

// heardOlder checks two processes that begin to talk. Each must find in the other node's directory
// all that it knows of that node: the recorded starts, and how much of the log was on disk.
func (w *World) heardOlder(self, other *node) {
	if self.host == nil || other.host == nil {
		return
	}
	if known, ok := self.state.Node(other.id); ok && known.Starts > other.self.Identity().Asked {
		w.violate("older", "node %d knows of start %d of node %d, but accepts its process %d, whose directory knows of no recorded start after %d",
			self.id, known.Starts, other.id, other.starts, other.self.Identity().Asked)
	}
	if opened, _ := other.host.LogEnd(); self.told[other.id] > opened && self.toldBy[other.id] != other.life {
		w.violate("older", "node %d has heard that %d frames of node %d's log are on disk, but accepts its process %d, which began with %d",
			self.id, self.told[other.id], other.id, other.starts, opened)
	}
}

// vetted checks that a starting process has no older identity than its log.
func (n *node) vetted() {
	if known, ok := n.state.Node(n.id); ok && known.Starts > n.self.Identity().Asked {
		n.w.violate("older", "node %d begins its process %d with an identity that knows of no recorded start after %d, but its log has start %d",
			n.id, n.starts, n.self.Identity().Asked, known.Starts)
	}
}

// hearsEnd records how much of its log another process reports to be on disk.
func (n *node) hearsEnd(from *node, life, synced uint64) {
	if from.life == life && synced >= n.told[from.id] {
		n.told[from.id], n.toldBy[from.id] = synced, life
	}
}
