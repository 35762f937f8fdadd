package shard

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"carillon/shard/feature"
	"carillon/shard/record"
	"carillon/shard/table"
)

// Replicas of a group compare their states while they run (I7). Now and then the leader appends an
// item that says so. Each voter that applies it tells all members what its own state is after that
// entry; each member compares for itself. What most voters have is right, whoever leads. A replica
// that has something else goes into quarantine. Where no state has a majority nobody can know
// which is right: nobody is stopped, and it is said loudly. The item itself claims nothing, so
// that it does no harm when the log is replayed.

const (
	compareEach  = 10 * time.Second
	pointsKept   = 4 // the last ones of each replica
	compareFresh = 3 * compareEach
)

// statePoint is what a replica's state was after an entry.
type statePoint struct {
	index   uint64
	version byte // of the hash: of another version nothing can be said
	hash    uint64
	sound   bool // memory holds what was applied, as far as the replica knows
	at      time.Duration
}

// same reports that two replicas had the same state.
func (p *statePoint) same(o *statePoint) bool { return p.version == o.version && p.hash == o.hash }

// comparison is what a replica knows of its own and others' states.
type comparison struct {
	nextAt  time.Duration // the leader asks again
	wanted  bool          // … in its next entry
	tellAt  time.Duration // the leader is told again that memory fails here
	last    uint64        // entry of the last comparison
	points  []replicaPoints
	differs bool // said since all was well
}

// replicaPoints are a replica's last points, oldest first.
type replicaPoints struct {
	replica uint64
	points  []statePoint
}

// tickCompare has the leader ask for a comparison, if anything was applied since the last, or if
// one whose memory fails must know who is right.
func (g *group) tickCompare() {
	c := &g.compare
	if !g.serving || g.w.now.Mono < c.nextAt || len(g.store.conf.Voters)+len(g.store.conf.Learners) < 2 {
		return
	}
	c.nextAt = g.w.now.Mono + compareEach
	if (g.applied > max(c.last, foundingIndex) || g.anyUnsound()) && g.w.host.agreed() >= feature.LevelCompare {
		c.wanted = true
		g.w.touch(g)
	}
}

// reportState tells the members what the state is after the entry that was just applied.
func (g *group) reportState() {
	g.compare.last = g.applied
	p := g.ownPoint()
	g.compare.note(g.replica, p)
	if slices.Contains(g.store.conf.Voters, g.replica) || slices.Contains(g.store.conf.VotersOutgoing, g.replica) {
		g.tellState(&p)
	}
	g.judge(p.index)
}

// ownPoint is what the state is now.
func (g *group) ownPoint() statePoint {
	return statePoint{index: g.applied, version: g.hashVersion(), hash: g.stateHash(), sound: !g.damaged, at: g.w.now.Mono}
}

// tellState tells all other members.
func (g *group) tellState(p *statePoint) {
	for _, id := range g.members() {
		if id != g.replica {
			g.sendState(id, p)
		}
	}
}

// anyUnsound says whether a member has said last, and not long ago, that its memory fails.
func (g *group) anyUnsound() bool {
	return g.damaged || slices.ContainsFunc(g.members(), func(id uint64) bool {
		p := g.compare.latest(id)
		return p != nil && !p.sound && g.w.now.Mono-p.at <= compareFresh
	})
}

// HashVersion is of the hash that replicas compare.
func (g *group) hashVersion() byte {
	if g.meta != nil {
		return metaHashVersion
	}
	return table.HashVersion
}

// members are all replicas of the group, once each.
func (g *group) members() []uint64 {
	conf := g.store.conf
	list := slices.Concat(conf.Voters, conf.VotersOutgoing, conf.Learners)
	slices.Sort(list)
	return slices.Compact(list)
}

// note remembers a point.
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

// point is what a replica had after an entry; nil: that is not known.
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

// forget drops a replica's points: its state is another now.
func (c *comparison) forget(replica uint64) {
	c.points = slices.DeleteFunc(c.points, func(r replicaPoints) bool { return r.replica == replica })
}

// keep drops the points of replicas that are not members any more.
func (c *comparison) keep(members []uint64) {
	c.points = slices.DeleteFunc(c.points, func(r replicaPoints) bool { return !slices.Contains(members, r.replica) })
}

// judge compares what is known of the states after an entry.
func (g *group) judge(index uint64) {
	own := g.compare.point(g.replica, index)
	if own == nil {
		return
	}
	if right := g.rightPoint(index); right != nil {
		switch {
		case right.version != own.version:
		case right.same(own):
			g.compare.differs = false
			g.leaveQuarantine()
		default:
			g.enterQuarantine(fmt.Errorf("after entry %d its state hash is %016x, that of most replicas %016x", index, own.hash, right.hash))
		}
		return
	}
	if g.allReported(index) && g.someDiffer(own) && !g.compare.differs {
		g.compare.differs = true
		g.w.host.cfg.Logger.Error("replicas have different states, and none of these has a majority; nobody is stopped, as nobody knows which is right. "+
			"Compare them by `carillon ctl cluster`, find out on which node memory or disk fails, and have that one's replicas made anew",
			"shard", uint32(g.id), "entry", index, "states", g.describePoints(index))
	}
}

// rightPoint is what most voters had after an entry; in a joint membership most of each half. nil:
// no state has a majority.
func (g *group) rightPoint(index uint64) *statePoint {
	conf := g.store.conf
	for _, id := range conf.Voters {
		p := g.compare.point(id, index)
		if p != nil && p.sound && g.mostHave(conf.Voters, p) && (len(conf.VotersOutgoing) == 0 || g.mostHave(conf.VotersOutgoing, p)) {
			return p
		}
	}
	return nil
}

// mostHave says whether most voters had that. One alone proves nothing: the group may be on its way
// from a right replica to a wrong one.
func (g *group) mostHave(voters []uint64, p *statePoint) bool {
	n := 0
	for _, id := range voters {
		if o := g.compare.point(id, p.index); o != nil && o.sound && o.same(p) {
			n++
		}
	}
	return n > 1 && 2*n > len(voters)
}

// allReported says whether all voters have said what they had.
func (g *group) allReported(index uint64) bool {
	for _, id := range g.store.conf.Voters {
		if g.compare.point(id, index) == nil {
			return false
		}
	}
	return true
}

// someDiffer says whether a voter had something else than this replica.
func (g *group) someDiffer(own *statePoint) bool {
	return slices.ContainsFunc(g.store.conf.Voters, func(id uint64) bool {
		p := g.compare.point(id, own.index)
		return p != nil && p.version == own.version && !p.same(own)
	})
}

func (g *group) describePoints(index uint64) string {
	text := ""
	for _, id := range g.store.conf.Voters {
		if p := g.compare.point(id, index); p != nil {
			text += fmt.Sprintf("node %s %016x ", g.w.host.nodeName(nodeOf(id)), p.hash)
		}
	}
	return text
}

// isWrong says whether a replica's last word was of another state than most had, or of memory that
// fails: it would only hand the leadership on.
func (g *group) isWrong(replica uint64) bool {
	p := g.compare.latest(replica)
	if p == nil {
		return false
	}
	right := g.rightPoint(p.index)
	return !p.sound || right != nil && right.version == p.version && !right.same(p)
}

// latest is a replica's last point; nil: it has said nothing yet.
func (c *comparison) latest(replica uint64) *statePoint {
	for i := range c.points {
		if list := c.points[i].points; c.points[i].replica == replica && len(list) > 0 {
			return &list[len(list)-1]
		}
	}
	return nil
}

// trusted are the voters whose memory was sound when they spoke last, not long ago, and who had
// the right state then if it is known which that is: the leader first, then by rank.
func (g *group) trusted() (ids []uint64) {
	for _, id := range g.store.conf.Voters {
		p := g.compare.latest(id)
		if id != g.replica && p != nil && g.w.now.Mono-p.at <= compareFresh && !g.isWrong(id) {
			ids = append(ids, id)
		}
	}
	if at := slices.Index(ids, g.raft.BasicStatus().Lead); at > 0 {
		ids[0], ids[at] = ids[at], ids[0]
	}
	return ids
}

// A state message: version, replica, entry, version of the hash, whether it is sound, hash.
const stateMessageVersion = 1

func (g *group) sendState(to uint64, p *statePoint) {
	o := g.w.open(nodeOf(to), stateMessage, g.id, 0)
	body := len(o.frame)
	o.frame = append(o.frame, stateMessageVersion)
	o.frame = binary.AppendUvarint(o.frame, g.replica)
	o.frame = binary.AppendUvarint(o.frame, p.index)
	sound := byte(0)
	if p.sound {
		sound = 1
	}
	o.frame = append(o.frame, p.version, sound)
	o.frame = binary.LittleEndian.AppendUint64(o.frame, p.hash)
	o.close(g.w, body)
}

// hearState takes what another voter had after an entry. Nobody speaks for another.
func (g *group) hearState(from uint64, body []byte) {
	if g.raft == nil || len(body) == 0 || body[0] != stateMessageVersion {
		return
	}
	r := record.Reader{Rest: body[1:]}
	replica, p := r.Uvarint(), statePoint{index: r.Uvarint(), version: r.Byte(), sound: r.Byte() == 1, hash: r.Uint64(), at: g.w.now.Mono}
	if r.End() != nil || nodeOf(replica) != from || replica == g.replica || !slices.Contains(g.members(), replica) {
		return
	}
	g.compare.keep(g.members())
	g.compare.note(replica, p)
	g.judge(p.index)
	if !p.sound && g.isRight() {
		own := g.ownPoint()
		g.sendState(replica, &own)
	}
}

// isRight reports that this replica's state is right as far as it knows: when it last said what it
// has most others had the same, or it has not said anything yet since its process began, or since
// it got another's state.
func (g *group) isRight() bool {
	if g.quarantine != nil || g.damaged {
		return false
	}
	own := g.compare.latest(g.replica)
	if own == nil {
		return true
	}
	right := g.rightPoint(own.index)
	return right != nil && right.same(own)
}
