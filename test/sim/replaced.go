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

// setAside turns the machine into another node with an empty directory. The disk has no faults
// meanwhile: crashes within SetAside are package member's tests.
func (n *node) setAside() {
	w := n.w
	fresh := w.newNode(n.name)
	n.disk.SetHook(nil)
	n.successor = fresh
	if _, err := n.self.SetAside(); err != nil {
		w.violate("replace", "node %d does not set its directory aside: %v", n.id, err)
	}
	w.counts.Replaced++
	w.note(n, "replaced", fresh.id, 0, "")
	n.gone = true
	n.stop(false)
	fresh.disk, fresh.clock, fresh.saved, fresh.bootedAt, fresh.rotten = n.disk, n.clock, n.saved, n.bootedAt, true
	w.join(fresh)
}
