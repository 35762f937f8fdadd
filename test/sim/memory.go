package sim

// weigh checks that a process has counted the memory of its groups, and records since when it
// exceeds the limit.
func (n *node) weigh() {
	limit := n.w.swarm.bounds.memory
	if limit == 0 {
		n.laden = 0
		return
	}
	counted, held := n.host.Memory()
	if counted < held.Sum() || counted > held.Sum()+held.Entries+64<<10 {
		n.w.violate("I15", "node %d counts %d bytes of memory, but holds %d: %+v", n.id, counted, held.Sum(), held)
	}
	switch {
	case held.Sum() <= limit:
		n.laden = 0
	case n.laden == 0:
		n.laden = n.turned
	}
}

// moreMemory raises the memory limit, as an operator does whose nodes stay full: each node
// restarts.
func (w *World) moreMemory() {
	if w.swarm.bounds.memory == 0 {
		return
	}
	w.swarm.bounds.memory = 0
	for _, n := range w.nodes {
		if n.up && !n.crash.plans() {
			n.stop(false)
		}
	}
}
