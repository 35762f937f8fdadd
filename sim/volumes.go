package sim

import "time"

// An operator's mistakes: volumes that are not mounted, so that a node's directory is empty under a name that the cluster knows; restarts in the wrong
// order; removals asked of a node that hears nobody. None of them may cost a group the majority of its replicas.

// heardStill is for how long a node that has stopped may count as there.
const heardStill = 3 * time.Second

// unmount stops a machine and makes another of its name, with an empty volume, that is yet to begin. The old volume is put aside: see mountRight.
func (w *World) unmount(n *node) (fresh *node) {
	n.held = true
	n.stop(w.chance.IntN(2) == 0)
	w.note(n, "empty", 0, 0, "")
	fresh = w.newNode(n.name)
	fresh.founds, fresh.held = n.founds, true
	return fresh
}

// mountRight gives a machine its volume back, unless the cluster has let the empty one take its place meanwhile.
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

// release has a machine's process begin that was held back.
func (n *node) release() {
	if n.held = false; !n.up && !n.gone {
		n.start()
	}
}

// knows says whether the cluster has let a machine in, by what any process has of it.
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

// checkBuried holds, of each node that is taken out of the cluster, that each group which had a replica there has most of them still on nodes that
// run, and that the first to hear of it can reach.
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
				w.violate("majority", "node %d is taken out, and group %d has %d of %d replicas left: %s", dead.ID, row.Group, live, len(voters), w.describe())
			}
		}
	}
}

// reach says whether two machines run and can talk with each other.
func (w *World) reach(a, b *node) bool {
	return a == b || b.up && !b.paused && !w.net.blocked(a.id, b.id) && !w.net.blocked(b.id, a.id)
}
