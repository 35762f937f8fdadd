package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/internal/placement"
	"carillon/shard/record"
)

// Replicas of a group compare their states while they run (I7). Every compareEach the leader
// appends an item that requests a comparison. Each voter that applies it sends its state hash after
// that entry to all members, and each member compares the hashes for itself. The state of a
// majority of the voters is right, whichever replica leads. A replica with another state is wrong
// (see wrongState). If no state has a majority, it is unknown which is right: no replica is
// stopped, and an error is logged. The item carries no hash, so it does no harm when the log is
// replayed.

const (
	compareEach = 10 * time.Second
	pointsKept  = 4 // newest points kept of each replica
)

// statePoint is a replica's state after an entry.
type statePoint struct {
	index   uint64
	version byte // of the hash; hashes of different versions cannot be compared
	hash    uint64
}

// same reports whether two replicas had the same state.
func (p *statePoint) same(o *statePoint) bool { return p.version == o.version && p.hash == o.hash }

// comparison is a replica's knowledge of the group's states, its own included.
type comparison struct {
	nextAt  time.Duration // when the leader requests the next comparison
	wanted  bool          // the leader's next entry requests a comparison
	last    uint64        // entry of the last comparison
	points  []replicaPoints
	differs bool // states without a majority were logged; cleared when the majority has this state
}

// replicaPoints holds the newest points of a replica, oldest first.
type replicaPoints struct {
	replica uint64
	points  []statePoint
}

// tick makes the leader request a comparison every compareEach, if an entry was applied
// since the last one.
func (c *comparison) tick(g *group) {
	if !g.serving || g.w.now.Mono < c.nextAt || len(g.store.conf.Voters)+len(g.store.conf.Learners) < 2 {
		return
	}
	c.nextAt = g.w.now.Mono + compareEach
	if g.applied > max(c.last, foundingIndex) {
		c.wanted = true
		g.w.touch(g)
	}
}

// report records the state after the entry that was just applied. A voter sends it to all
// members.
func (c *comparison) report(g *group) {
	c.last = g.applied
	p := g.ownPoint()
	c.note(g.replica, p)
	if slices.Contains(g.store.conf.Voters, g.replica) || slices.Contains(g.store.conf.VotersOutgoing, g.replica) {
		c.sendAll(g, &p)
	}
	c.judge(g, p.index)
}

// ownPoint returns this replica's present state.
func (g *group) ownPoint() statePoint {
	return statePoint{index: g.applied, version: g.machine.hashVersion(), hash: g.machine.hash()}
}

// sendAll sends a point of this replica to all other members.
func (c *comparison) sendAll(g *group, p *statePoint) {
	for _, id := range g.membership.all(g) {
		if id != g.replica {
			c.send(g, id, p)
		}
	}
}

// note records a point. It replaces the replica's points at that entry and later ones.
func (c *comparison) note(replica uint64, p statePoint) {
	i := slices.IndexFunc(c.points, func(r replicaPoints) bool { return r.replica == replica })
	if i < 0 {
		i = len(c.points)
		c.points = append(c.points, replicaPoints{replica: replica})
	}
	r := &c.points[i]
	r.points = slices.DeleteFunc(r.points, func(o statePoint) bool { return o.index >= p.index })
	if r.points = append(r.points, p); len(r.points) > pointsKept {
		r.points = slices.Delete(r.points, 0, 1)
	}
}

// point returns a replica's point at an entry, or nil if that is unknown.
func (c *comparison) point(replica, index uint64) *statePoint {
	for i := range c.points {
		if c.points[i].replica != replica {
			continue
		}
		for j := range c.points[i].points {
			if p := &c.points[i].points[j]; p.index == index {
				return p
			}
		}
	}
	return nil
}

// forget drops a replica's points because its state was replaced.
func (c *comparison) forget(replica uint64) {
	c.points = slices.DeleteFunc(c.points, func(r replicaPoints) bool { return r.replica == replica })
}

// keep drops the points of replicas that are no longer members.
func (c *comparison) keep(members []uint64) {
	c.points = slices.DeleteFunc(c.points, func(r replicaPoints) bool { return !slices.Contains(members, r.replica) })
}

// judge compares this replica's state after an entry with the majority's. If all voters have reported and no state has a majority, it logs that.
func (c *comparison) judge(g *group, index uint64) {
	own := c.point(g.replica, index)
	if own == nil {
		return
	}
	if right := c.rightPoint(g, index); right != nil {
		switch {
		case right.version != own.version:
		case right.same(own):
			c.differs = false
			g.wrong.disproved(g)
		default:
			g.wrong.found(g, fmt.Errorf("after entry %d its state hash is %016x, that of most replicas %016x", index, own.hash, right.hash))
		}
		return
	}
	if c.allReported(g, index) && c.someDiffer(g, own) && !c.differs {
		c.differs = true
		g.w.host.cfg.Logger.Error("replicas have different states, and none of these has a majority; nobody is stopped, as nobody knows which is right. "+
			"Compare them by `carillon ctl cluster`, find out on which node memory or disk fails, and have that one's replicas made anew",
			"shard", uint32(g.id), "entry", index, "states", c.describe(g, index))
	}
}

// rightPoint returns the state that a majority of the voters had after an entry, in a joint
// configuration a majority of both halves. It returns nil if no state has one.
func (c *comparison) rightPoint(g *group, index uint64) *statePoint {
	conf := g.store.conf
	for _, id := range conf.Voters {
		p := c.point(id, index)
		if p != nil && c.mostHave(conf.Voters, p) && (len(conf.VotersOutgoing) == 0 || c.mostHave(conf.VotersOutgoing, p)) {
			return p
		}
	}
	return nil
}

// mostHave reports whether a majority of the voters had the state p. A single voter proves nothing:
// the group may be replacing a right replica by a wrong one.
func (c *comparison) mostHave(voters []uint64, p *statePoint) bool {
	n := 0
	for _, id := range voters {
		if o := c.point(id, p.index); o != nil && o.same(p) {
			n++
		}
	}
	return n > 1 && 2*n > len(voters)
}

// allReported reports whether the states of all voters after an entry are known.
func (c *comparison) allReported(g *group, index uint64) bool {
	for _, id := range g.store.conf.Voters {
		if c.point(id, index) == nil {
			return false
		}
	}
	return true
}

// someDiffer reports whether a voter's state differed from this replica's.
func (c *comparison) someDiffer(g *group, own *statePoint) bool {
	return slices.ContainsFunc(g.store.conf.Voters, func(id uint64) bool {
		p := c.point(id, own.index)
		return p != nil && p.version == own.version && !p.same(own)
	})
}

func (c *comparison) describe(g *group, index uint64) string {
	text := ""
	for _, id := range g.store.conf.Voters {
		if p := c.point(id, index); p != nil {
			text += fmt.Sprintf("node %s %016x ", g.w.host.nodeName(nodeOf(id)), p.hash)
		}
	}
	return text
}

// isWrong reports whether a replica's latest point was not the majority's. As the leader it
// would only transfer the leadership again.
func (c *comparison) isWrong(g *group, replica uint64) bool {
	p := c.latest(replica)
	if p == nil {
		return false
	}
	right := c.rightPoint(g, p.index)
	return right != nil && right.version == p.version && !right.same(p)
}

// latest returns a replica's newest point, or nil if it has not reported.
func (c *comparison) latest(replica uint64) *statePoint {
	for i := range c.points {
		if list := c.points[i].points; c.points[i].replica == replica && len(list) > 0 {
			return &list[len(list)-1]
		}
	}
	return nil
}

// A state message has its version, the replica, the entry, the hash's version, 1, the hash. Builds
// until November 2026 looked through their memory, and wrote 0 in place of the 1 if it had changed by
// itself.
const stateMessageVersion = 1

func (c *comparison) send(g *group, to uint64, p *statePoint) {
	o := g.w.open(nodeOf(to), stateMessage, g.id, 0)
	body := len(o.frame)
	o.frame = append(o.frame, stateMessageVersion)
	o.frame = binary.AppendUvarint(o.frame, g.replica)
	o.frame = binary.AppendUvarint(o.frame, p.index)
	o.frame = append(o.frame, p.version, 1)
	o.frame = binary.LittleEndian.AppendUint64(o.frame, p.hash)
	o.close(g.w, body)
}

// receive records another replica's point. A message is dropped unless it comes from the
// replica's own node.
func (c *comparison) receive(g *group, from uint64, body []byte) {
	if g.raft == nil || len(body) == 0 || body[0] != stateMessageVersion {
		return
	}
	r := record.Reader{Rest: body[1:]}
	replica, p := r.Uvarint(), statePoint{index: r.Uvarint(), version: r.Byte()}
	sound := r.Byte() == 1
	p.hash = r.Uint64()
	if r.End() != nil || !sound || nodeOf(replica) != from || replica == g.replica || !slices.Contains(g.membership.all(g), replica) {
		return
	}
	c.keep(g.membership.all(g))
	c.note(replica, p)
	c.judge(g, p.index)
}

// A replica whose state is not that of most others, while its log is right, is wrong. It votes and
// keeps the log as before, but does not lead, answer, write snapshots or send them. The host tells
// the meta group's leader, which takes the replica out of the group and makes another on the same
// node, or elsewhere, under a new id (docs/adr/0056).

// ErrMemoryFault reports that a state in memory differs from the applied one.
var ErrMemoryFault = errors.New("the state in memory has changed by itself")

// A replica that takes the place of a wrong one and is wrong again shows a fault of the program. The
// next one is asked for later each time, so that the group does not copy its state for ever.
const (
	wrongAgain = time.Minute // doubling
	wrongMost  = time.Hour
)

// wrongState is what a replica knows of its own state.
type wrongState struct {
	why      error         // why it is known to be wrong; nil: it is not
	times    int           // how often a replica of the group was wrong here, in this process
	reportAt time.Duration // when it may be asked for another replica
}

// mayNotLead reports that this replica, if elected, proposes nothing and hands over.
func (g *group) mayNotLead() bool { return g.wrong.why != nil || g.membership.leaves(g) }

// found ends this replica's part in everything that depends on its state.
func (w *wrongState) found(g *group, why error) {
	if w.why != nil {
		w.why = why
		return
	}
	w.why, w.reportAt = why, g.w.now.Mono
	if w.times > 0 {
		w.reportAt += min(wrongAgain<<min(w.times-1, 10), wrongMost)
	}
	w.times++
	g.w.host.cfg.Logger.Error("this replica's state is wrong: it leads nothing, and waits to be replaced", "shard", uint32(g.id), "why", why)
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	leader := g.leader
	g.stepDown()
	if g.leader = leader; leader {
		g.membership.reconcileAt = 0
	}
	g.w.touch(g)
}

// disproved trusts the state again: most replicas have the same. A leader begins as after an
// election, if no other replica has taken over meanwhile. It gives up a pending transfer, which has
// had its time and would block proposals.
func (w *wrongState) disproved(g *group) {
	if w.why == nil {
		return
	}
	g.w.host.cfg.Logger.Info("this replica's state is right again", "shard", uint32(g.id), "before", w.why)
	w.why = nil
	if g.leader {
		g.transfer.to, g.transfer.sent, g.takeover = 0, false, true
	}
	g.w.touch(g)
}

// trustAgain forgets the comparisons of a state that was replaced.
func (g *group) trustAgain() {
	g.wrong.why = nil
	g.compare.forget(g.replica)
	g.compare.differs = false
}

// memoryFailed ends the process: the state on disk is right, and a restart reads it.
func (g *group) memoryFailed() {
	g.w.host.fail(fmt.Errorf("shard %d: %w: the machine's memory fails, or a program wrote where it must not; a restart makes it anew from the disk", g.id, ErrMemoryFault))
}

// Wrong lists the replicas of this node that are to be replaced because their state is wrong.
func (h *Host) Wrong() (list []placement.WrongReplica) {
	for _, w := range h.workers {
		if of := w.sample.wrong.Load(); of != nil {
			list = append(list, *of...)
		}
	}
	return list
}

// listWrong updates the worker's part of Wrong.
func (w *worker) listWrong() {
	var list []placement.WrongReplica
	for _, g := range w.groups {
		if g.raft != nil && g.wrong.why != nil && w.now.Mono >= g.wrong.reportAt {
			list = append(list, placement.WrongReplica{Group: g.id, Replica: g.replica})
		}
	}
	if old := w.sample.wrong.Load(); len(list) > 0 || old != nil && len(*old) > 0 {
		w.sample.wrong.Store(&list)
	}
}
