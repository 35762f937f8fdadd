package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"carillon/ring"
	"carillon/test/memfs"
	"carillon/timer"
)

// lowLimit is the free space in bytes at which a disk is low. lowHeard is how soon a leader must
// act on a report of a low disk: some ticks.
const (
	lowLimit = 1 << 20
	lowHeard = 200 * time.Millisecond
)

// hearDisks updates since when the process knows of other nodes' low disks.
func (n *node) hearDisks() {
	if n.member == nil {
		return
	}
	heard := n.member.LowDisks()
	for id := range n.low {
		if !slices.ContainsFunc(heard, func(e timer.LowDiskError) bool { return e.Node == id }) {
			delete(n.low, id)
		}
	}
	for _, e := range heard {
		if _, known := n.low[e.Node]; !known {
			n.low[e.Node] = n.clock.Mono()
		}
	}
}

// refusesAdds reports whether a leader must refuse commands that add data: it has known for
// lowHeard that the disk of one of its voters is low, or that it holds too much memory itself.
func (n *node) refusesAdds(id timer.ShardID, kind timer.Kind) bool {
	if kind != timer.Add && kind != timer.Put && kind != timer.Redrive || !n.host.Leads(id) {
		return false
	}
	if n.laden != 0 && n.turned-n.laden >= lowHeard {
		return true
	}
	n.hearDisks()
	_, status := n.host.Inspect(id)
	return slices.ContainsFunc(status.Voters, func(replica uint64) bool {
		since, low := n.low[ring.NodeOfReplica(replica)]
		return low && n.turned-since >= lowHeard
	})
}

// heldOff checks that a command was refused if it had to be.
func (n *node) heldOff(id timer.ShardID, refuses bool, err error) {
	if errors.Is(err, timer.ErrLowDisk) {
		n.w.counts.HeldOff++
	}
	if errors.Is(err, timer.ErrMemory) {
		n.w.counts.Laden++
	}
	if refuses && err == nil {
		n.w.violate("I15", "node %d accepts an add for group %d, although it knows that a voter's disk is low or its own memory full", n.id, id)
	}
}

// Do implements route.Host.
func (h *memberHost) Do(id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	refuses := h.n.refusesAdds(id, cmd.Kind)
	r, err := h.Host.Do(id, cmd, brief)
	h.n.heldOff(id, refuses, err)
	return r, err
}

// DoAll implements route.Host.
func (h *memberHost) DoAll(ops []timer.Op) {
	refuses := make([]bool, len(ops))
	for i := range ops {
		refuses[i] = h.n.refusesAdds(ops[i].Shard, ops[i].Command.Kind)
	}
	h.Host.DoAll(ops)
	for i := range ops {
		h.n.heldOff(ops[i].Shard, refuses[i], ops[i].Err)
	}
}

// crampedTurn reports whether a segment of the log finds no room for its name, on a disk that is almost
// full: the one before it is sealed then.
func (n *node) crampedTurn(op memfs.Op, name string) bool {
	if op != memfs.OpRename || !strings.HasPrefix(name, dataDir+"/wal/") || strings.Count(name, "/") != strings.Count(dataDir, "/")+4 {
		return false
	}
	free, err := n.disk.Free(dataDir)
	if err != nil || free >= lowLimit || !n.w.cramped.hit(0.3) {
		return false
	}
	n.w.counts.Cramped++
	return true
}

// brimming fills disks, one or more at a time, with few other faults.
func (s *swarm) brimming(c chance) {
	s.nodes, s.replicas = 3+c.IntN(2), 2+c.IntN(2)
	s.full = 0.2 + 0.5*c.Float64()
	s.segmentBytes = 16 << 10 << c.IntN(3)
	s.genBytes = s.segmentBytes * int64(1+c.IntN(4))
	s.safety = min(s.safety, 40*time.Second)
	s.crashes, s.longestDown = c.seldom(0.1), time.Second
	s.partitions, s.pauses, s.powerCuts, s.diskErrors, s.moves, s.wipes, s.rots = c.seldom(0.1), 0, c.seldom(0.05), 0, 0, 0, 0
	s.ordeals = ordeals{}
}
