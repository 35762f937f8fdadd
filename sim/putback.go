package sim

import (
	"io"
	"path/filepath"
	"time"

	"carillon/vfs"
	"carillon/vfs/memfs"
)

// An older copy of a machine's directory, or of its identity.json alone, is put back. A process that begins on it must not take part with anybody who knows
// more of the node than the copy has: see heardOlder and vetted, which hold for all processes, at all times.

// puttingBack has older copies put back, and little else go wrong: what the copy lacks the others must have by then.
func (s *swarm) puttingBack(c chance) {
	s.lying(c)
	s.ailments.lies, s.ailments.putsBack = 0, 0.2+0.5*c.Float64()
}

// copyOf is a copy of what a machine's disk has now.
func (n *node) copyOf() *memfs.FS {
	return n.disk.CrashClone(n.w.ills, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
}

// putBackSomewhere makes a copy and puts it back some seconds and perhaps some processes later. It is done to one machine at a time, once, when all is
// well but for that, as with lie.
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

// leadUpTo has a machine's process end so often, and all be well in between, before something is done.
func (w *World) leadUpTo(n *node, ends int, patience time.Duration, then func()) {
	w.after(w.ills.between(50*time.Millisecond, patience), func() {
		switch {
		case n.gone:
		case w.calm:
			n.rotten = false
		case ends > 0 && n.up && w.ills.IntN(2) == 0: // perhaps before the cluster knows of it
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

// putBackOn puts a copy back on a machine once the others have all that it has.
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

// putBack has a machine, whose process has ended, begin its next one on a copy.
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

// heardOlder checks, when two processes begin to hear each other, that what the one knows of the other's node the other's directory knows too: which starts
// were put on record, and how much of the log was on disk.
func (w *World) heardOlder(self, other *node) {
	if self.host == nil || other.host == nil {
		return
	}
	if known, ok := self.state.Node(other.id); ok && known.Starts > other.self.Identity().Asked {
		w.violate("older", "node %d knows of start %d of node %d, and hears its process %d, which has asked for no start after %d to be put on record",
			self.id, known.Starts, other.id, other.starts, other.self.Identity().Asked)
	}
	if opened, _ := other.host.LogEnd(); self.told[other.id] > opened && self.toldBy[other.id] != other.life {
		w.violate("older", "node %d has heard that %d frames of node %d's log are on disk, and hears its process %d, which began with %d",
			self.id, self.told[other.id], other.id, other.starts, opened)
	}
}

// vetted checks that a process that begins has no older identity than its log.
func (n *node) vetted() {
	if known, ok := n.state.Node(n.id); ok && known.Starts > n.self.Identity().Asked {
		n.w.violate("older", "node %d begins its process %d and has asked for no start after %d to be put on record, but its log has that of %d",
			n.id, n.starts, n.self.Identity().Asked, known.Starts)
	}
}

// hearsEnd takes note of how much of its log another process says to have on disk.
func (n *node) hearsEnd(from *node, life, synced uint64) {
	if from.life == life && synced >= n.told[from.id] {
		n.told[from.id], n.toldBy[from.id] = synced, life
	}
}
