package sim

import "time"

// Operators' mistakes: unmounted volumes, so that a known node's directory is empty; restarts in
// the wrong order; removals requested from an isolated node. None of them may cost a group the
// majority of its replicas.

// heardStill is how long a stopped node may still count as running.
const heardStill = 3 * time.Second

// unmount stops a machine and makes another of its name with an empty volume, which is not started
// yet. The old volume is kept: see mountRight.
func (w *World) unmount(n *node) (fresh *node) {
	n.held = true
	n.stop(w.chance.IntN(2) == 0)
	w.note(n, "empty", 0, 0, "")
	fresh = w.newNode(n.name)
	fresh.founds, fresh.held = n.founds, true
	return fresh
}

// mountRight gives a machine its volume back, unless the cluster has accepted the empty machine in
// its place.
func (w *World) mountRight(n, fresh *node) {
	n.held = false
	if n.gone || w.knows(fresh) {
		n.gone = true
		return
	}
	fresh.gone = true
	fresh.stop(true)
	n.start()
}

// release starts a machine's process that was held back.
func (n *node) release() {
	if n.held = false; !n.up && !n.gone {
		n.start()
	}
}

// knows reports whether any process has a machine in its copy of the cluster's state.
func (w *World) knows(n *node) bool {
	for _, other := range w.nodes {
		if other.state == nil {
			continue
		}
		if _, known := other.state.Node(n.id); known {
			return true
		}
	}
	return false
}

// checkBuried checks each node that is removed from the cluster. Every group that had a replica
// there must keep most of its replicas on running nodes that the first node to learn of the removal
// can reach.
func (n *node) checkBuried() {
	w := n.w
	if w.checker.buried == nil {
		return
	}
	for _, dead := range n.state.Removed() {
		if w.checker.buried[dead.ID] {
			continue
		}
		w.checker.buried[dead.ID] = true
		for _, row := range n.state.Rows() {
			if !row.Needs(dead.ID) {
				continue
			}
			voters, live := row.Nodes(), 0
			for _, id := range voters {
				if m := w.node(id); id != dead.ID && m != nil && (w.reach(n, m) || w.now-m.stoppedAt < heardStill) {
					live++
				}
			}
			if row.Settled && 2*live <= len(voters) {
				w.violate("majority", "node %d is removed, but group %d has only %d of %d replicas left: %s", dead.ID, row.Group, live, len(voters), w.describe())
			}
		}
	}
}

// reach reports whether two machines run and can talk to each other.
func (w *World) reach(a, b *node) bool {
	return a == b || b.up && !b.paused && !w.net.blocked(a.id, b.id) && !w.net.blocked(b.id, a.id)
}
