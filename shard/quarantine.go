package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"carillon/shard/record"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A replica whose state is wrong, but whose log is right, goes into quarantine. It votes and keeps
// the log as before, but does not lead, answer or write snapshots until it has replaced its state
// with another replica's (a refill). It asks a replica whose state is right. That one cuts a
// snapshot and streams it as it would to a follower that lacks the log. The quarantined replica
// applies the later entries from its log in memory. Its own snapshots may contain the fault, so it
// replaces them too.

const (
	refillAskEach = 2 * time.Second  // interval of requests to the same replica
	refillNext    = 30 * time.Second // time until another replica is asked
	refillKept    = time.Minute      // a request that is not repeated expires
	// leadsUseless is how long a replica in quarantine may lead. A replica that can take over does
	// so well before that.
	leadsUseless = 10 * time.Second
)

// ErrMemoryFault reports that a state in memory differs from the applied one.
var ErrMemoryFault = errors.New("the state in memory has changed by itself")

// quarantine is the reason why a replica is not trusted, and the progress of its refill.
type quarantine struct {
	why      error
	from     uint64 // entries after this one stay in memory
	since    time.Duration
	led      time.Duration // since when it leads without serving; 0: it does not lead
	askAt    time.Duration
	received *receivedSnapshot // state to install once the entries up to it are applied and on disk
}

// refillRequest is a request by another replica for this one's state.
type refillRequest struct {
	replica uint64
	least   uint64 // least index that the state must cover
	until   time.Duration
	sending bool
}

// mayNotLead reports that this replica, if elected, proposes nothing and hands over.
func (g *group) mayNotLead() bool { return g.quarantine != nil || g.leaves() }

// enterQuarantine ends this replica's part in everything that depends on its state.
func (g *group) enterQuarantine(why error) {
	if g.quarantine != nil {
		g.quarantine.why = why
		return
	}
	g.quarantine = &quarantine{why: why, from: g.store.offset, since: g.w.now.Mono}
	g.w.host.cfg.Logger.Error("this replica's state is wrong: it leads nothing until it has another replica's in its place",
		"shard", uint32(g.id), "why", why)
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	g.refills = nil
	leader := g.leader
	g.stepDown()
	if g.leader = leader; leader {
		g.reconcileAt = 0
	}
	g.w.touch(g)
}

// leaveQuarantine ends the quarantine: most replicas have the same state.
func (g *group) leaveQuarantine() {
	if g.quarantine == nil || g.damaged {
		return
	}
	g.w.host.cfg.Logger.Info("this replica's state is right again", "shard", uint32(g.id), "before", g.quarantine.why)
	g.quarantine = nil
	g.leadAgain()
	g.w.touch(g)
}

// leadAgain makes a leader begin as after an election, if no other replica has taken over
// meanwhile. It gives up a pending transfer, which has had its time and would block proposals.
func (g *group) leadAgain() {
	if g.leader {
		g.transferee, g.transferSent, g.takeover = 0, false, true
	}
}

// memoryFailed handles a state in memory that differs from the applied one. The
// state on disk is right.
func (g *group) memoryFailed() {
	if !g.damaged {
		g.w.host.cfg.Logger.Error("the state in this node's memory has changed by itself: its memory fails, or a program wrote where it must not",
			"shard", uint32(g.id))
	}
	g.damaged = true
	switch {
	case g.quarantine != nil:
	case g.soleVoter():
		g.w.host.fail(fmt.Errorf("shard %d: %w; a restart makes it anew from the disk", g.id, ErrMemoryFault))
	case len(g.trusted()) > 0:
		g.enterQuarantine(ErrMemoryFault)
	// No other replica is known to be right: this one goes on and asks for the others' states.
	case g.w.now.Mono >= g.compare.tellAt:
		g.compare.tellAt = g.w.now.Mono + compareEach
		g.askWhoIsRight()
	}
}

// askWhoIsRight makes the other voters report their states, by reporting that this replica's is
// wrong. Their last reports may be out of date: a replica that was wrong may have restarted or been
// refilled. If this replica leads, there is no comparison before another one leads.
func (g *group) askWhoIsRight() {
	p := g.ownPoint()
	p.sound = false
	g.tellState(&p)
}

// tickQuarantine requests a state, or installs one that has arrived.
func (g *group) tickQuarantine() {
	g.tickRefills()
	if g.damaged && g.quarantine == nil {
		g.memoryFailed()
	}
	q := g.quarantine
	g.endUselessLead()
	if q == nil || q.received != nil || g.w.now.Mono < q.askAt {
		g.takeRefill()
		return
	}
	q.askAt = g.w.now.Mono + refillAskEach
	g.askWhoIsRight()
	if sources := g.trusted(); len(sources) > 0 {
		q.from = max(q.from, g.store.offset)
		g.sendRefillRequest(sources[int((g.w.now.Mono-q.since)/refillNext)%len(sources)], q.from)
	}
}

// endUselessLead ends the process of a damaged leader that no other replica can replace: each of
// them is down, or lacks entries that only this one has. Those are on disk, and a restart makes the
// state anew from there.
func (g *group) endUselessLead() {
	q := g.quarantine
	switch {
	case q == nil || !g.damaged:
	case !g.leader:
		q.led = 0
	case q.led == 0:
		q.led = g.w.now.Mono
	case g.w.now.Mono-q.led >= leadsUseless:
		g.w.host.fail(fmt.Errorf("shard %d: %w, and no other replica can take over; a restart makes it anew from the disk", g.id, ErrMemoryFault))
	}
}

// A refill request is a version byte, the requesting replica and the least index that will do.
const refillVersion = 1

func (g *group) sendRefillRequest(to, least uint64) {
	o := g.w.open(nodeOf(to), refillMessage, g.id, 0)
	body := len(o.frame)
	o.frame = append(o.frame, refillVersion)
	o.frame = binary.AppendUvarint(o.frame, g.replica)
	o.frame = binary.AppendUvarint(o.frame, least)
	o.close(g.w, body)
}

// hearRefillRequest records that a member wants this replica's state.
func (g *group) hearRefillRequest(from uint64, body []byte) {
	if g.raft == nil || g.quarantine != nil || g.damaged || len(body) == 0 || body[0] != refillVersion {
		return
	}
	r := record.Reader{Rest: body[1:]}
	replica, least := r.Uvarint(), r.Uvarint()
	if r.End() != nil || nodeOf(replica) != from || replica == g.replica || !slices.Contains(g.members(), replica) {
		return
	}
	i := slices.IndexFunc(g.refills, func(q refillRequest) bool { return q.replica == replica })
	if i < 0 {
		i = len(g.refills)
		g.refills = append(g.refills, refillRequest{replica: replica})
	}
	g.refills[i].least, g.refills[i].until = least, g.w.now.Mono+refillKept
	g.tickRefills()
}

// tickRefills sends the newest snapshot to the replicas that asked, or has a later one cut if it is
// too old.
func (g *group) tickRefills() {
	if len(g.refills) == 0 {
		return
	}
	members := g.members()
	g.refills = slices.DeleteFunc(g.refills, func(q refillRequest) bool {
		return g.w.now.Mono > q.until && !q.sending || !slices.Contains(members, q.replica)
	})
	for i := range g.refills {
		q := &g.refills[i]
		switch {
		case q.sending:
		case g.files.newest >= q.least && g.files.sendable():
			q.sending = true
			g.sendRefill(q.replica)
		case g.applied >= q.least:
			g.wantSnapshot = true
		}
	}
}

// sendRefill streams the newest snapshot.
func (g *group) sendRefill(to uint64) {
	f := &g.files
	m := &pb.Message{Type: pb.MsgSnap.Enum(), From: new(g.replica), To: &to, Term: new(g.hard.Term),
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(f.newest), Term: new(f.newestTerm), ConfState: f.newestConf}}}
	from := g.replica
	stream, err := g.streamSnapshot(m, true, func(size int64, err error) {
		g.w.box.post(&refillSent{group: g, from: from, to: to, size: size, err: err})
	})
	if err != nil {
		(&refillSent{group: g, from: from, to: to, err: err}).handle(g.w)
		return
	}
	g.w.host.cfg.Peers.SendSnapshot(nodeOf(to), stream)
}

// refillSent is the end of a refill's stream.
type refillSent struct {
	group    *group
	from, to uint64
	size     int64
	err      error
}

func (s *refillSent) handle(w *worker) {
	g := s.group
	if g.replica != s.from {
		return
	}
	g.refills = slices.DeleteFunc(g.refills, func(q refillRequest) bool { return q.replica == s.to })
	if s.err != nil { // the replica asks again
		w.host.cfg.Logger.Warn("a state did not reach the replica that had asked for it", "shard", uint32(g.id), "node", w.host.nodeName(nodeOf(s.to)), "error", s.err)
		return
	}
	w.host.cfg.Observer.SnapshotSent(s.size)
}

// refillDir is where received refills are read back. Their files have no other use, and a start
// removes those that are left.
func (h *Host) refillDir() string { return filepath.Join(h.snapshotDir(), "refill") }

func (h *Host) clearRefills() error {
	list, err := h.cfg.FS.ReadDir(h.refillDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if err == nil {
			err = h.cfg.FS.Remove(filepath.Join(h.refillDir(), e.Name))
		}
	}
	return err
}

// trustAgain ends a quarantine, and forgets the comparisons of the state that was replaced.
func (g *group) trustAgain() {
	g.damaged, g.quarantine = false, nil
	g.compare.forget(g.replica)
	g.compare.differs = false
}

// takeRefill replaces the wrong state with the received one, once all entries up to it are applied
// and on disk.
func (g *group) takeRefill() {
	q := g.quarantine
	if q == nil || q.received == nil || g.applied < q.received.mark.Index || g.store.last() < g.applied {
		return
	}
	a := q.received
	q.received = nil
	if a.mark.Index < g.store.offset {
		return // the entries after it are no longer in memory: ask for a later state
	}
	ents, err := g.entriesAfter(a.mark.Index)
	if err != nil {
		return
	}
	g.replaceState(a.state)
	for _, e := range ents {
		if err := g.applyAgain(e); err != nil {
			g.stop(fmt.Errorf("shard %d: entry %d cannot be applied: %w", g.id, e.GetIndex(), err))
			return
		}
	}
	g.trustAgain()
	g.refilled++
	g.files.suspect, g.wantSnapshot = g.applied, true
	g.w.host.cfg.Observer.SnapshotReceived(a.size)
	g.w.host.cfg.Logger.Info("this replica has another's state in the place of its own, which was wrong",
		"shard", uint32(g.id), "node", nodeOf(a.message.GetFrom()), "entry", a.mark.Index, "applied", g.applied)
	g.leadAgain()
	g.w.touch(g)
}

// entriesAfter returns the applied entries after index. They must be in memory.
func (g *group) entriesAfter(index uint64) ([]*pb.Entry, error) {
	if index >= g.applied {
		return nil, nil
	}
	return g.store.Entries(index+1, g.applied+1, math.MaxUint64)
}

// applyAgain applies to the new state an entry that was applied to the old one. The membership
// stays as it is, and no operation waits for the result.
func (g *group) applyAgain(e *pb.Entry) error {
	if e.GetType() != pb.EntryNormal || len(e.Data) == 0 {
		return nil
	}
	if g.meta != nil {
		_, err := g.meta.replay(e.Data)
		return err
	}
	var err error
	g.results, err = g.table.Apply(e.Data, nil, g.results[:0])
	return err
}
