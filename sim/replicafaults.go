package sim

import (
	"errors"
	"time"

	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
)

// replicaFaults are faults of a single replica: a bit flip in memory, an earlier release, or a
// snapshot that overtakes entries on their way to its disk. Five runs in sixteen have one of them.
// They are drawn from a stream of their own, so that they change no other run.
type replicaFaults struct {
	strikes float64 // per second in the whole cluster: a bit of a state in memory flips
	// processes start with this release or an earlier one, and operators finalize upgrades
	releases bool
	overtake float64 // per second: a snapshot overtakes entries on their way to a disk
}

// ReplicaFaultCounts count the replica faults of a run.
type ReplicaFaultCounts struct {
	// bit flips; replicas refilled from another; processes that ended because of a flip
	Struck, Refilled, MemoryEnded int
	Compared                      int // comparisons of states
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
		s.replicaFaults.strikes = 0.05 + 0.3*c.Float64()
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

// ballastTopic has timers that never change and never fire. A bit flip there shows in no answer and
// in no call, only in the state.
const (
	ballastTopic timer.TopicID = 1 << 20
	ballastID                  = "ballast"
	ballastName                = "ballast" // a topic in the meta group
	ballastDueMs               = epochMs + 365*24*3_600_000
)

// layBallast adds these timers, and the topic in the meta group.
func (w *World) layBallast() {
	p := timer.DefaultPolicy()
	if !w.insist(putTopic(ballastName, &p)) {
		w.violate("I14", "no node accepts a topic within five minutes: %s", w.describe())
	}
	w.ballast = map[timer.ShardID]bool{}
	for id := timer.ShardID(1); int(id) <= w.swarm.shards; id++ {
		w.layBallastOf(id)
	}
}

func (w *World) layBallastOf(id timer.ShardID) {
	var try func()
	try = func() {
		if n := w.leader(id); n != nil {
			if _, laid := n.host.Table(id).Lookup(ballastTopic, ballastID); laid {
				// earlier tries have ended by then
				w.after(15*time.Second, func() { w.ballast[id] = true })
				return
			}
			cmd := &timer.Command{Kind: timer.Put, Topic: ballastTopic, ID: ballastID,
				Spec: &timer.Spec{DueMs: ballastDueMs, Payload: []byte(`"ballast"`), PayloadKind: timer.JSONPayload}}
			n.host.Submit(id, cmd, true, func(timer.Result, error) {})
			n.wake(0)
		}
		w.after(time.Second, try)
	}
	try()
}

// strike flips a bit of one replica's state, if no other replica of the group is wrong: the right
// ones stay the majority.
func (w *World) strike() {
	id := timer.ShardID(w.odds.IntN(w.swarm.shards + 1))
	if id != shard.Meta && !w.ballast[id] {
		return
	}
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
	if len(there) == 0 {
		return
	}
	n := there[w.odds.IntN(len(there))]
	if leader := w.leader(id); leader != nil && w.odds.IntN(2) == 0 {
		n = leader
	}
	bit := uint(w.odds.IntN(64))
	fault := w.odds.IntN(table.MemoryFaults)
	var struck bool
	if id == shard.Meta {
		struck = n.state.Strike(ballastName, fault%2 == 0, bit)
	} else {
		struck = n.host.Table(id).Strike(table.MemoryFault(fault), ballastTopic, ballastID, bit)
	}
	if struck {
		n.struck[id] = true
		w.counts.Struck++
		w.note(n, "struck", uint64(id), uint64(fault), "")
	}
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
	if p.Refilled > c.refilled || p.Installs > c.installs {
		w.counts.Refilled += int(p.Refilled - c.refilled)
		n.struck[id] = false
	}
	if p.Quarantined && !n.struck[id] {
		w.violate("I7", "node %d: the state of group %d is right, but was quarantined: %s", n.id, id, n.host.Fault())
	}
	if p.Compared > c.compared {
		w.counts.Compared++
	}
	if p.Serves && p.Applied > 0 && p.AppliedTerm != p.Term {
		w.violate("I19", "node %d serves group %d in term %d and has applied entries up to term %d", n.id, id, p.Term, p.AppliedTerm)
	}
	if p.Last > p.Applied && p.LastTerm < p.AppliedTerm {
		w.violate("I7", "node %d: the log of group %d ends with entry %d of term %d, behind entry %d of term %d", n.id, id, p.Last, p.LastTerm, p.Applied, p.AppliedTerm)
	}
	c.refilled, c.installs, c.compared = p.Refilled, p.Installs, p.Compared
}

// faultOfMemory reports whether a process ended because of a bit flip. A single replica has no
// other to compare with, but its disk still holds the right state.
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

// proveMemory waits until no replica has a flipped bit, and reads the replicas that had one.
func (w *World) proveMemory() {
	wrong := func() (list []uint64) {
		for _, n := range w.nodes {
			for id, struck := range n.struck {
				if struck && !n.gone {
					list = append(list, n.id<<8|uint64(id))
				}
			}
		}
		return list
	}
	if !w.passUntil(4*time.Minute, func() bool { return len(wrong()) == 0 }) {
		w.violate("I7", "four minutes after the repair these replicas still have a flipped bit: %x%s", wrong(), w.describe())
	}
	for _, n := range w.nodes {
		if n.host == nil {
			continue
		}
		for id := timer.ShardID(1); int(id) <= w.swarm.shards; id++ {
			if n.host.Progress(id).Replica == 0 {
				continue
			}
			t := n.host.Table(id).Read(ballastTopic, ballastID)
			if t == nil || t.DueMs != ballastDueMs || string(t.Payload) != `"ballast"` {
				w.violate("I1", "node %d: the unchanged timer of shard %d has become %+v", n.id, id, t)
			}
		}
	}
}
