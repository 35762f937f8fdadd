package sim

import (
	"errors"
	"time"

	"carillon/shard"
	"carillon/shard/feature"
	"carillon/shard/table"
	"carillon/timer"
)

// replicaFaults are what one replica has and the others have not: a state that memory has changed
// by itself, a release of before, entries that a snapshot overtakes on their way to its disk. Five
// of sixteen runs have one of them. They are drawn from a stream of their own, so that the other
// runs are what they would be anyway.
type replicaFaults struct {
	strikes  float64 // a second, of the whole cluster: a bit of a state in memory changes
	releases bool    // processes begin with this release or one before, and upgrades are finalized
	overtake float64 // a second: a snapshot overtakes entries on their way to a disk
}

// ReplicaFaultCounts say which of them a run came to.
type ReplicaFaultCounts struct {
	Struck, Refilled, MemoryEnded int // states that memory changed; replicas that got another's; processes that ended for that
	Compared                      int // comparisons of states
	Changed, TooOld               int // processes of another release than before; those that were too old
	Finalized, TooEarly           int // upgrades that an operator ended; those refused as a node lacked the level
	Overtaken                     int
}

// finalizes is how often a second an operator tries to finalize an upgrade.
const finalizes = 0.1

// drawReplicaFaults draws a run's.
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

// failReplicas draws what of it happens now.
func (w *World) failReplicas() {
	if w.calm {
		return
	}
	f := &w.swarm.replicaFaults
	if w.odds.hit(f.strikes * nemesisEach.Seconds()) {
		w.strike()
	}
	if f.releases && w.odds.hit(finalizes*nemesisEach.Seconds()) {
		w.finalize()
	}
	if w.odds.hit(f.overtake * nemesisEach.Seconds()) {
		w.overtake()
	}
	w.after(nemesisEach, w.failReplicas)
}

// ballastTopic has timers that nobody changes and that are not due: what memory does to them shows
// in no answer and in no call, but in the state alone.
const (
	ballastTopic timer.TopicID = 1 << 20
	ballastID                  = "ballast"
	ballastName                = "ballast" // of the meta group
	ballastDueMs               = epochMs + 365*24*3_600_000
)

// layBallast adds the timers, and the topic of the meta group.
func (w *World) layBallast() {
	p := timer.DefaultPolicy()
	if !w.insist(putTopic(ballastName, &p)) {
		w.violate("I14", "nobody takes a topic within five minutes: %s", w.describe())
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
				w.after(15*time.Second, func() { w.ballast[id] = true }) // what is still on its way is over by then
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

// strike changes a bit of the state that one replica has of a group, when no other of that group
// is wrong already: most are right.
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

// watchFaults looks at what a replica knows of itself.
func (n *node) watchFaults(id timer.ShardID, c *checkedGroup, p *shard.Progress) {
	w := n.w
	if p.Stopped != nil {
		// A command that finalizes an upgrade is refused when a node has gone back meanwhile, and is in the log all the same.
		if met := w.finalizing && n.level < feature.LevelFinalize; n.level >= w.agreedLevel() && !met {
			w.violate("versions", "node %d, of level %d, stops group %d, where all have agreed on %d: %v", n.id, n.level, id, w.agreedLevel(), p.Stopped)
		}
		return
	}
	if p.Refilled > c.refilled || p.Installs > c.installs {
		w.counts.Refilled += int(p.Refilled - c.refilled)
		n.struck[id] = false
	}
	if p.Quarantined && !n.struck[id] {
		w.violate("I7", "node %d: the state of group %d is right, and taken for wrong: %s", n.id, id, n.host.Fault())
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

// faultOfMemory says whether a process ends because of what was done to its memory: where it is
// alone there is nobody to ask, and its disk has what is right.
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

// proveReplicas has all that went wrong be right again: states that memory changed, and releases.
func (w *World) proveReplicas() {
	f := &w.swarm.replicaFaults
	if f.releases {
		w.upgradeAll()
	}
	if f.strikes > 0 {
		w.proveMemory()
	}
	if *f != (replicaFaults{}) && !w.passUntil(time.Minute, w.agreed) {
		w.violate("I14", "replicas do not catch up, or rows do not settle: %s", w.describe())
	}
}

// proveMemory waits until no replica has a state that memory changed, and looks at what was hit.
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
		w.violate("I7", "four minutes after all was repaired these replicas still have what memory made of their states: %x%s", wrong(), w.describe())
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
				w.violate("I1", "node %d: what nobody has changed in shard %d is %+v", n.id, id, t)
			}
		}
	}
}
