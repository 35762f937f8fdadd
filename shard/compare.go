package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"carillon/internal/placement"
	"carillon/shard/record"
	"carillon/timer/encoding"
)

// Replicas of a group compare their states while they run (I7). Every compareEvery the leader
// appends an item that requests a comparison. Each voter that applies it sends its state hash after
// that entry to all members, and each member compares the hashes for itself. The state of a
// majority of the voters is right, whichever replica leads. A replica with another state is wrong
// (see wrongState). If no state has a majority, it is unknown which is right: no replica is
// stopped, and an error is logged. The item carries no hash, so it does no harm when the log is
// replayed.

const (
	compareEvery = 10 * time.Second
	pointsKept   = 4 // newest points kept of each replica
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
	nextAt  time.Duration           // when the leader requests the next comparison
	wanted  bool                    // the leader's next entry requests a comparison
	last    uint64                  // entry of the last comparison
	points  map[uint64][]statePoint // newest of each replica, oldest first
	differs bool                    // states without a majority were logged; cleared when the majority has this state
}

// tick makes the leader request a comparison every compareEvery, if an entry was applied
// since the last one.
func (c *comparison) tick(r *replica) {
	if !r.serving || r.w.now.Mono < c.nextAt || len(r.store.Conf.Voters)+len(r.store.Conf.Learners) < 2 {
		return
	}
	c.nextAt = r.w.now.Mono + compareEvery
	if r.applied > max(c.last, foundingIndex) {
		c.wanted = true
		r.w.touch(r)
	}
}

// report records the state after the entry that was just applied. A voter sends it to all
// members.
func (c *comparison) report(r *replica) {
	c.last = r.applied
	p := r.ownPoint()
	c.record(r.id, p)
	if slices.Contains(r.store.Conf.Voters, r.id) || slices.Contains(r.store.Conf.VotersOutgoing, r.id) {
		for _, id := range r.membership.all(r) {
			if id != r.id {
				c.send(r, id, &p)
			}
		}
	}
	c.judge(r, p.index)
}

// ownPoint returns this replica's present state.
func (r *replica) ownPoint() statePoint {
	return statePoint{index: r.applied, version: r.machine.hashVersion(), hash: r.machine.hash()}
}

// record keeps a point, and replaces the replica's points at that entry and later ones.
func (c *comparison) record(replica uint64, p statePoint) {
	list := slices.DeleteFunc(c.points[replica], func(o statePoint) bool { return o.index >= p.index })
	if list = append(list, p); len(list) > pointsKept {
		list = slices.Delete(list, 0, 1)
	}
	if c.points == nil {
		c.points = map[uint64][]statePoint{}
	}
	c.points[replica] = list
}

// point returns a replica's point at an entry, or nil if that is unknown.
func (c *comparison) point(replica, index uint64) *statePoint {
	for i := range c.points[replica] {
		if p := &c.points[replica][i]; p.index == index {
			return p
		}
	}
	return nil
}

// keep drops the points of replicas that are no longer members.
func (c *comparison) keep(members []uint64) {
	maps.DeleteFunc(c.points, func(replica uint64, _ []statePoint) bool { return !slices.Contains(members, replica) })
}

// judge compares this replica's state after an entry with the majority's. If all voters have
// reported and no state has a majority, it logs that.
func (c *comparison) judge(r *replica, index uint64) {
	own := c.point(r.id, index)
	if own == nil {
		return
	}
	if right := c.rightPoint(r, index); right != nil {
		switch {
		case right.version != own.version:
		case right.same(own):
			c.differs = false
			r.wrong.disproved(r)
		default:
			r.wrong.found(r, fmt.Errorf("after entry %d its state hash is %016x, that of most replicas %016x", index, own.hash, right.hash))
		}
		return
	}
	if c.undecided(r, own) && !c.differs {
		c.differs = true
		r.w.host.cfg.Logger.Error("replicas have different states, and none of these has a majority: none is stopped, as it is not known which is right. "+
			"Find the node whose memory or disk fails, then drain and remove it (carillon ctl drain, carillon ctl remove)",
			"shard", uint32(r.shard), "entry", index, "states", c.describe(r, index))
	}
}

// rightPoint returns the state that a majority of the voters had after an entry, in a joint
// configuration a majority of both halves. It returns nil if no state has one.
func (c *comparison) rightPoint(r *replica, index uint64) *statePoint {
	conf := r.store.Conf
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
	return len(voters) > 1 && most(voters, func(id uint64) bool {
		o := c.point(id, p.index)
		return o != nil && o.same(p)
	})
}

// undecided reports whether all voters have reported, and the state of one differs from this
// replica's.
func (c *comparison) undecided(r *replica, own *statePoint) (differs bool) {
	for _, id := range r.store.Conf.Voters {
		p := c.point(id, own.index)
		if p == nil {
			return false
		}
		differs = differs || p.version == own.version && !p.same(own)
	}
	return differs
}

func (c *comparison) describe(r *replica, index uint64) string {
	text := ""
	for _, id := range r.store.Conf.Voters {
		if p := c.point(id, index); p != nil {
			text += fmt.Sprintf("node %s %016x ", r.w.host.nodeName(nodeOf(id)), p.hash)
		}
	}
	return text
}

// isWrong reports whether a replica's latest point was not the majority's. As the leader it
// would only transfer the leadership again.
func (c *comparison) isWrong(r *replica, replica uint64) bool {
	n := len(c.points[replica])
	if n == 0 {
		return false
	}
	p := &c.points[replica][n-1]
	right := c.rightPoint(r, p.index)
	return right != nil && right.version == p.version && !right.same(p)
}

// A state message has its version, the replica, the entry, the hash's version, 1, the hash.
const stateMessageVersion = 1

func (c *comparison) send(r *replica, to uint64, p *statePoint) {
	r.w.addMessage(nodeOf(to), stateMessage, r.shard, 0, func(frame []byte) []byte {
		frame = encoding.AppendUvarints(append(frame, stateMessageVersion), r.id, p.index)
		return binary.LittleEndian.AppendUint64(append(frame, p.version, 1), p.hash)
	})
}

// receive records another replica's point. A message is dropped unless it comes from the
// replica's own node.
func (c *comparison) receive(r *replica, from uint64, body []byte) {
	if r.raft == nil || len(body) == 0 || body[0] != stateMessageVersion {
		return
	}
	in := record.Read(body[1:])
	replica, p := in.Uvarint(), statePoint{index: in.Uvarint(), version: in.Byte()}
	sound := in.Byte() == 1
	p.hash = in.U64()
	if in.End() != nil || !sound || nodeOf(replica) != from || replica == r.id || !slices.Contains(r.membership.all(r), replica) {
		return
	}
	c.keep(r.membership.all(r))
	c.record(replica, p)
	c.judge(r, p.index)
}

// A replica whose state is not that of most others, while its log is right, is wrong. It votes and
// keeps the log as before, but does not lead, answer, write snapshots or send them. The host
// reports it to the meta group's leader, which takes the replica out of the group and makes another
// on the same node, or elsewhere, under a new id (docs/adr/0056).

// ErrMemoryFault reports that a state in memory differs from the applied one.
var ErrMemoryFault = errors.New("the state in memory has changed by itself")

// A replica that takes the place of a wrong one and is wrong again shows a fault of the program.
// The next one is asked for later each time, so that the group does not copy its state for ever.
const (
	wrongRetry     = time.Minute // doubling
	maxWrongReport = time.Hour
)

// wrongState is what a replica knows of its own state.
type wrongState struct {
	why      error         // why it is known to be wrong; nil: it is not
	times    int           // how often a replica of the group was wrong here, in this process
	reportAt time.Duration // when it may be asked for another replica
}

// mayNotLead reports that this replica, if elected, proposes nothing and hands over.
func (r *replica) mayNotLead() bool { return r.wrong.why != nil || r.membership.leaves(r) }

// found ends this replica's part in everything that depends on its state.
func (w *wrongState) found(r *replica, why error) {
	if w.why != nil {
		w.why = why
		return
	}
	w.why, w.reportAt = why, r.w.now.Mono
	if w.times > 0 {
		w.reportAt += min(wrongRetry<<min(w.times-1, 10), maxWrongReport)
	}
	w.times++
	r.w.host.cfg.Logger.Error("this replica's state is wrong: it leads nothing, and waits to be replaced", "shard", uint32(r.shard), "why", why)
	r.w.abortSnapshot(r)
	leader := r.leader
	r.stepDown()
	if r.leader = leader; leader {
		r.membership.reconcileAt = 0
	}
	r.w.touch(r)
}

// disproved trusts the state again: most replicas have the same. A leader begins as after an
// election, if no other replica has taken over meanwhile. It gives up a pending transfer, which has
// had its time and would block proposals.
func (w *wrongState) disproved(r *replica) {
	if w.why == nil {
		return
	}
	r.w.host.cfg.Logger.Info("this replica's state is right again", "shard", uint32(r.shard), "before", w.why)
	w.why = nil
	if r.leader {
		r.transfer.to, r.transfer.sent, r.takeover = 0, false, true
	}
	r.w.touch(r)
}

// trustAgain forgets the comparisons of a state that was replaced.
func (r *replica) trustAgain() {
	r.wrong.why = nil
	delete(r.compare.points, r.id)
	r.compare.differs = false
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
	for _, r := range w.groups {
		if r.raft != nil && r.wrong.why != nil && w.now.Mono >= r.wrong.reportAt {
			list = append(list, placement.WrongReplica{Group: r.shard, Replica: r.id})
		}
	}
	if old := w.sample.wrong.Load(); len(list) > 0 || old != nil && len(*old) > 0 {
		w.sample.wrong.Store(&list)
	}
}
