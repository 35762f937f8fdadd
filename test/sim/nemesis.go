package sim

import (
	"time"

	"carillon/ring"
	"carillon/test/memfs"
	"carillon/timer"
)

// nemesisEach is the interval at which faults are drawn.
const nemesisEach = 100 * time.Millisecond

// nemesis draws the faults that happen now.
func (w *World) nemesis() {
	if w.calm {
		return
	}
	s := &w.swarm
	for _, t := range [...]struct {
		perSecond float64
		run       func()
	}{
		{s.partitions, w.partition}, {s.crashes, w.crashOne}, {s.pauses, w.pauseOne},
		{s.diskErrors, w.failDisk}, {s.powerCuts, w.cutPower}, {s.handOvers, w.handOver}, {s.full, w.fillDisk},
		{s.moves, w.move}, {s.wipes, w.wipe}, {s.rots, w.bitRot}, {s.topics, w.pauseTopic},
	} {
		if w.chance.hit(t.perSecond * nemesisEach.Seconds()) {
			t.run()
		}
	}
	w.endFalseWords()
	if w.words.hit(s.falseWords * nemesisEach.Seconds()) {
		w.speakFalsely()
	}
	w.doubt()
	w.after(nemesisEach, w.nemesis)
}

// any draws a machine in use.
func (w *World) any() *node { return w.inUse(w.chance) }

// inUse draws a machine in use from a stream.
func (w *World) inUse(c chance) *node {
	var there []*node
	for _, n := range w.nodes {
		if !n.gone {
			there = append(there, n)
		}
	}
	return there[c.IntN(len(there))]
}

// partition cuts some links for a while: all links of a node, in one or both directions, or one
// link.
func (w *World) partition() {
	a, how := w.any(), w.chance.IntN(4)
	if w.chance.hit(w.swarm.leaders) {
		if leader := w.leader(timer.ShardID(w.chance.IntN(w.swarm.shards + 1))); leader != nil {
			a = leader
		}
	}
	var links [][2]uint64
	for _, b := range w.nodes {
		if a == b {
			continue
		}
		if how != 1 {
			links = append(links, [2]uint64{a.id, b.id})
		}
		if how != 2 {
			links = append(links, [2]uint64{b.id, a.id})
		}
	}
	if how == 3 && len(links) > 2 {
		links = links[:2]
	}
	for _, l := range links {
		w.net.cut[l] = true
	}
	d := w.chance.between(100*time.Millisecond, w.swarm.longestCut)
	w.note(a, "cut", uint64(how), uint64(d.Milliseconds()), "")
	w.after(d, func() {
		for _, l := range links {
			delete(w.net.cut, l)
		}
	})
}

// crashOne ends a process, now or at one of its next disk operations. It comes back after a while.
func (w *World) crashOne() {
	n := w.any()
	if !n.up {
		return
	}
	if w.chance.hit(w.swarm.atEffect) {
		n.crash.left = 1 + w.chance.IntN(30)
		return
	}
	n.stop(w.chance.IntN(3) > 0)
}

// comeBack restarts a node after a while.
func (n *node) comeBack() {
	life := n.life
	n.w.after(n.startDelay(), func() {
		if n.life == life && !n.up && !n.gone && !n.held {
			n.start()
		}
	})
}

func (w *World) pauseOne() {
	d := w.chance.between(10*time.Millisecond, w.swarm.longestPause)
	if w.chance.IntN(2) == 0 {
		d = w.chance.between(10*time.Millisecond, 2*time.Second)
	}
	n := w.any()
	if leader := w.leader(timer.ShardID(w.chance.IntN(w.swarm.shards + 1))); leader != nil && w.chance.hit(w.swarm.leaders) {
		n = leader
	}
	n.pause(d)
}

func (w *World) failDisk() {
	n := w.any()
	if !n.up {
		return
	}
	ops := [...]memfs.Op{memfs.OpSync, memfs.OpSync, memfs.OpWrite, memfs.OpSyncDir, memfs.OpCreate, memfs.OpRename, memfs.OpTruncate, memfs.OpMkdir}
	op := ops[w.chance.IntN(len(ops))]
	w.checker.sick[n.id] = true
	w.note(n, "disk fails", uint64(op), 0, "")
	n.crash.fail[op] = 1 + w.chance.IntN(10)
}

// fillDisk leaves a little free space on a disk for a while.
func (w *World) fillDisk() {
	n := w.any()
	if !n.up {
		return
	}
	const huge = 1 << 40
	n.disk.SetCapacity(huge)
	free, err := n.disk.Free(dataDir)
	if err != nil {
		return
	}
	w.checker.sick[n.id] = true
	left := [...]int64{1, lowLimit, 2 * lowLimit}[w.chance.IntN(3)]
	n.disk.SetCapacity(huge - int64(free) + w.chance.Int64N(left) + 1)
	w.counts.Filled++
	w.note(n, "disk full", 0, huge-free, "")
	w.after(w.chance.between(time.Second, 20*time.Second), func() { n.latest().disk.SetCapacity(0) })
}

// cutWithin may cut the power soon. It is called when a replica has just moved and the nodes are
// only now learning of it.
func (w *World) cutWithin(d time.Duration) {
	if w.chance.hit(w.swarm.atMoves) {
		w.after(w.chance.between(0, d), w.cutPower)
	}
}

// cutPower ends all processes at once; data that was not synced is lost.
func (w *World) cutPower() {
	if w.calm {
		return
	}
	w.note(nil, "power cut", 0, 0, "")
	for _, n := range w.nodes {
		n.stop(true)
	}
}

// handOver makes a node lead nothing for a while, as after a slow disk.
func (w *World) handOver() {
	n := w.any()
	if n.host == nil || n.paused {
		return
	}
	w.note(n, "aside", 0, 0, "")
	const slow = time.Second
	n.self.Health.Synced(n.clock.Mono(), slow)
}

// pauseTopic pauses or resumes a topic's calls.
func (w *World) pauseTopic() {
	name, paused := w.topics[w.chance.IntN(settledTopics)], w.chance.IntN(2) > 0
	w.note(nil, "pause topic", b2u(paused), 0, name)
	w.operator(w.any(), pauseTopic(name, paused), func(error) {})
}

// mostNodes bounds the machines in use.
const mostNodes = 6

// removeTwo has two operators each remove a serving node at the same time, through any node. Both
// may succeed only if no group needs both nodes.
func (w *World) removeTwo() {
	first := w.any()
	second := w.any()
	w.remove(w.any(), first, true)
	if second != first {
		w.remove(w.any(), second, true)
	}
}

// move makes a node join, drains one, or resumes one.
func (w *World) move() {
	leader := w.metaLeader()
	if leader == nil {
		return
	}
	used := 0
	for _, n := range w.nodes {
		used += int(1 - b2u(n.gone))
	}
	n, at := w.any(), w.any()
	m, known := leader.state.Node(n.id)
	switch {
	case w.chance.IntN(3) == 0 && used < mostNodes:
		w.join(w.newNode("n" + string(rune('a'+len(w.nodes)%26)) + string(rune('a'+len(w.nodes)/26))))
	case !known:
	case w.members(leader) >= 3+w.swarm.replicas/2 && w.chance.IntN(2) == 0 && w.whole():
		w.removeTwo()
	case m.State == ring.NodeMember && w.members(leader) > w.swarm.replicas:
		w.setState(at, n, ring.NodeDraining)
	case m.State == ring.NodeDraining && w.chance.IntN(3) == 0:
		w.setState(at, n, ring.NodeMember)
	case m.State == ring.NodeDrained:
		w.remove(at, n, false)
	}
}

func (w *World) members(leader *node) (count int) {
	for _, n := range leader.state.Nodes() {
		count += int(b2u(n.State == ring.NodeMember))
	}
	return count
}

// wipe destroys a disk when nothing else is wrong: the cluster must survive the loss of a minority.
// A machine of the same name with an empty disk takes its place.
func (w *World) wipe() {
	if w.swarm.nodes < 3 || !w.whole() {
		return
	}
	n := w.any()
	w.note(n, "wipe", 0, 0, "")
	n.replace()
}

// whole reports whether every group has all its replicas, with a final membership and caught up, on
// nodes that run, of which none is about to be removed.
func (w *World) whole() bool {
	if len(w.net.cut) > 0 || w.removed != 0 && w.now-w.removed < settlesIn || !w.agreed() {
		return false
	}
	rows := w.metaLeader().state.Rows()
	for _, n := range w.nodes {
		if !n.gone && (!n.up || n.paused || n.host == nil) {
			return false
		}
	}
	for _, row := range rows {
		voters := 0
		for _, r := range row.Replicas {
			if n := w.node(r.Node); n.gone {
				return false
			}
			voters += int(1 - b2u(r.Learner))
		}
		if voters < 3 {
			return false
		}
	}
	return true
}
