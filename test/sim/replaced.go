package sim

// awaitReplacement has a node whose directory is damaged ask to be replaced. If the cluster can do
// without it, its machine goes on as another node, with the old directory set aside. Otherwise the
// process ends, and the operator starts it again.
func (n *node) awaitReplacement(cause error) {
	w := n.w
	w.note(n, "damaged", 0, 0, cause.Error())
	n.tasks.Go(func() {
		err := n.self.AwaitReplacement(n.tasks.ctx, cause)
		n.tasks.schedule(0, func() {
			if err != nil {
				w.counts.Refusals++
				w.note(n, "not replaced", 0, 0, err.Error())
				n.stop(false)
				return
			}
			n.setAside()
		})
	})
}

// setAside turns the machine into another node with an empty directory. Of the disk's faults only a
// lack of room stays meanwhile: crashes within SetAside are package member's tests. Without room
// the process ends; the next one asks again, or finishes what this one began (see start).
func (n *node) setAside() {
	w := n.w
	if n.successor == nil {
		n.successor = w.newNode(n.name)
		n.successor.gone = true // until it has the directory
	}
	n.disk.SetHook(nil)
	switch _, err := n.self.SetAside(); {
	case err == nil:
		n.handOn()
	case n.ofItsDisk(err):
		n.ended(err)
	default:
		w.violate("replace", "node %d does not set its directory aside: %v", n.id, err)
	}
}

// handOn makes the machine the node to which its directory belongs now.
func (n *node) handOn() {
	w, fresh := n.w, n.successor
	w.counts.Replaced++
	w.note(n, "replaced", fresh.id, 0, "")
	n.gone = true
	n.stop(false)
	fresh.disk, fresh.clock, fresh.saved, fresh.bootedAt, fresh.rotten, fresh.gone = n.disk, n.clock, n.saved, n.bootedAt, true, false
	w.checker.sick[fresh.id] = w.checker.mayFail(n)
	w.join(fresh)
}

// latest is the node that the machine is now.
func (n *node) latest() *node {
	for n.gone && n.successor != nil {
		n = n.successor
	}
	return n
}
