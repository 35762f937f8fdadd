package sim

import (
	"errors"
	"reflect"
	"time"
	"unsafe"

	"carillon/shard"
	"carillon/timer"
)

// replicaFaults are faults of a single replica: a bit flip in memory, an earlier release, or a
// snapshot that overtakes entries on their way to its disk. Five runs in sixteen have one of them.
// They are drawn from a stream of their own, so that they change no other run.
type replicaFaults struct {
	// per second in the whole cluster: a bit flips in the memory of a replica that has two others at least
	strikes float64
	// processes start with this release or an earlier one, and operators finalize upgrades
	releases bool
	overtake float64 // per second: a snapshot overtakes entries on their way to a disk
}

// ReplicaFaultCounts count the replica faults of a run.
type ReplicaFaultCounts struct {
	// bit flips; replicas that were found wrong, and those replaced; processes that ended because of a
	// flip
	Struck, Wrong, Remade, MemoryEnded int
	Compared                           int // comparisons of states
	// processes that changed their release; those that were too old
	Changed, TooOld int
	// finalized upgrades; those refused because a node lacked the level
	Finalized, TooEarly int
	Overtaken           int
	// moments at which a process led series in a time zone that it does not know
	Zoneless int
}

// finalizes is how often per second an operator tries to finalize an upgrade.
const finalizes = 0.1

// drawReplicaFaults draws the replica faults of a run.
func (s *swarm) drawReplicaFaults(c chance) {
	switch c.IntN(16) {
	case 0, 1:
		s.replicaFaults.strikes = 0.02 + 0.1*c.Float64()
		s.safety = max(s.safety, 45*time.Second)
	case 2, 3:
		s.replicaFaults.releases = true
		s.crashes = max(s.crashes, 0.1)
		s.safety = max(s.safety, 45*time.Second)
	case 4:
		s.overtaking(c)
	}
}

// failReplicas draws the replica faults that happen now.
func (w *World) failReplicas() {
	if w.calm {
		return
	}
	f := &w.swarm.replicaFaults
	if w.odds.hit(f.strikes * nemesisEach.Seconds()) {
		w.strike()
	}
	if f.releases {
		w.countZoneless()
	}
	if f.releases && w.odds.hit(finalizes*nemesisEach.Seconds()) {
		w.finalize()
	}
	if w.odds.hit(f.overtake * nemesisEach.Seconds()) {
		w.overtake()
	}
	w.after(nemesisEach, w.failReplicas)
}

// ballastTopic has timers that never change and never fire.
const (
	ballastTopic timer.TopicID = 1 << 20
	ballastDueMs               = epochMs + 365*24*3_600_000
)

// strike flips a bit in the sum that a replica's hash is made of, if no other replica of the group is
// wrong: the right ones stay the majority. The next comparison shows it; so does a snapshot, which
// ends the process.
func (w *World) strike() {
	id := timer.ShardID(w.odds.IntN(w.swarm.shards + 1))
	var there []*node
	for _, n := range w.nodes {
		if n.gone {
			continue
		}
		if n.struck[id] {
			return
		}
		if n.host != nil && !n.paused && n.host.Progress(id).Replica != 0 {
			there = append(there, n)
		}
	}
	leader := w.leader(id)
	if leader == nil || leader.votersOf(id) < 3 {
		return
	}
	n := there[w.odds.IntN(len(there))]
	if w.odds.IntN(2) == 0 {
		n = leader
	}
	bit := uint(w.odds.IntN(64))
	if id == shard.Meta {
		flip(n.state, "sum", bit)
	} else {
		flip(n.host.Table(id), "slotSum", bit)
	}
	n.struck[id] = true
	w.counts.Struck++
	w.note(n, "struck", uint64(id), uint64(bit), "")
}

// votersOf is the number of voters of a group by its row, as the node knows it; 0: it is being moved.
func (n *node) votersOf(id timer.ShardID) int {
	row, _ := n.state.Row(id)
	if !row.Settled {
		return 0
	}
	return len(row.Nodes())
}

// fewVote reports that a group that is not being moved has one or two voters.
func (n *node) fewVote(id timer.ShardID) bool {
	voters := n.votersOf(id)
	return voters == 1 || voters == 2
}

// flip changes a bit of a private field, as a memory that fails would.
func flip(of any, field string, bit uint) {
	v := reflect.ValueOf(of).Elem().FieldByName(field)
	*(*uint64)(unsafe.Pointer(v.UnsafeAddr())) ^= 1 << bit
}

// watchFaults checks a replica's own view of its faults.
func (n *node) watchFaults(id timer.ShardID, c *checkedGroup, p *shard.Progress) {
	w := n.w
	if p.Stopped != nil {
		if n.level >= w.agreedLevel() {
			w.violate("versions", "node %d, of level %d, stops group %d, but the cluster's level is %d: %v", n.id, n.level, id, w.agreedLevel(), p.Stopped)
		}
		return
	}
	if p.Installs > c.installs {
		n.struck[id] = false
	}
	if p.Wrong != nil && !n.struck[id] {
		w.violate("I7", "node %d: the state of group %d is right, and is taken for wrong: %v", n.id, id, p.Wrong)
	}
	if p.Wrong != nil && !c.wrong {
		w.counts.Wrong++
	}
	c.wrong = p.Wrong != nil
	if p.Compared > c.compared {
		w.counts.Compared++
	}
	if p.Serves && p.Applied > 0 && p.AppliedTerm != p.Term {
		w.violate("I19", "node %d serves group %d in term %d and has applied entries up to term %d", n.id, id, p.Term, p.AppliedTerm)
	}
	if p.Last > p.Applied && p.LastTerm < p.AppliedTerm {
		w.violate("I7", "node %d: the log of group %d ends with entry %d of term %d, behind entry %d of term %d", n.id, id, p.Last, p.LastTerm, p.Applied, p.AppliedTerm)
	}
	c.installs, c.compared = p.Installs, p.Compared
}

// faultOfMemory reports whether a process ended because a snapshot showed a bit flip. Its disk still
// holds the right state.
func (n *node) faultOfMemory(err error) bool {
	if !errors.Is(err, shard.ErrMemoryFault) {
		return false
	}
	for _, struck := range n.struck {
		if struck {
			n.w.counts.MemoryEnded++
			return true
		}
	}
	return false
}

// proveReplicas ends all replica faults: bit flips and old releases.
func (w *World) proveReplicas() {
	f := &w.swarm.replicaFaults
	if f.releases {
		w.upgradeAll()
	}
	if f.strikes > 0 {
		w.proveMemory()
	}
	if *f != (replicaFaults{}) && !w.passUntil(time.Minute, w.agreed) {
		w.violate("I14", "replicas do not catch up, or memberships do not become final: %s", w.describe())
	}
}

// proveMemory waits until no replica has a flipped bit. Where a group has no three voters any more,
// nobody knows which is wrong: an operator starts that process again.
func (w *World) proveMemory() {
	wrong := func() (list []uint64) {
		for _, n := range w.nodes {
			for id, struck := range n.struck {
				if !struck || n.gone {
					continue
				}
				if leader := w.leader(id); leader != nil && leader.fewVote(id) {
					n.stop(false)
				}
				list = append(list, n.id<<8|uint64(id))
			}
		}
		return list
	}
	if !w.passUntil(10*time.Minute, func() bool { return len(wrong()) == 0 }) {
		w.violate("I7", "ten minutes after the repair these replicas still have a flipped bit: %x%s", wrong(), w.describe())
	}
}
