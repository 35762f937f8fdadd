package shard

import (
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
)

// pair is two harnesses with a replica of each group. Messages pass between them unless drops
// rejects them.
type pair struct {
	stands [2]*hostHarness // nodes 7 and 8
	drops  func(m *pb.Message) bool
}

// other is the Peers of one harness of a pair.
type other struct {
	p  *pair
	at int // the receiver
}

func newPair(t *testing.T) *pair {
	p := &pair{drops: func(*pb.Message) bool { return false }}
	var rows []Assignment
	for i := range 2 {
		rows = append(rows, Assignment{Group: timer.ShardID(i), Epoch: 1, Settled: true, Members: []Member{{Node: 7, Replica: ReplicaID(7, 1)}, {Node: 8, Replica: ReplicaID(8, 1)}}})
	}
	for i := range p.stands {
		p.stands[i] = makeHarness(t, memfs.New(), nil)
		p.stands[i].rows = rows
		p.stands[i].change = func(c *Config) {
			c.Node = uint64(7 + i)
			c.Incarnation, c.Peers = table.NewIncarnation(c.Node, p.stands[i].starts), &other{p, 1 - i}
		}
	}
	for _, r := range p.stands {
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Send implements Peers.
func (o *other) Send(_ uint64, frame []byte) {
	r := o.p.stands[o.at]
	r.eachMessage(frame, func(id timer.ShardID, m *pb.Message) {
		if r.host != nil && (id != 1 || !o.p.drops(m)) {
			r.deliverMessage(id, m)
		}
	})
}

// SendSnapshot implements Peers.
func (o *other) SendSnapshot(uint64, *SnapshotStream) { o.p.stands[0].t.Fatal("a snapshot is sent") }

// shard returns a node's replica of shard 1.
func (p *pair) shard(i int) *replica { return p.stands[i].host.group(1) }

// until advances time until a condition holds, for ten seconds at most.
func (p *pair) until(what string, so func() bool) {
	r := p.stands[0]
	r.t.Helper()
	for end := r.clock.mono + 10*time.Second; !so(); {
		for p.stands[0].busy() || p.stands[1].busy() {
			p.stands[0].runIdle()
			p.stands[1].runIdle()
		}
		if so() {
			return
		}
		if r.clock.mono >= end {
			r.t.Fatalf("after ten seconds it is not so that %s", what)
		}
		p.stands[0].step(tickInterval)
		p.stands[1].step(tickInterval)
	}
}

// campaigns makes a node's replica of shard 1 campaign.
func (p *pair) campaigns(i int) {
	g := p.shard(i)
	_ = g.raft.Campaign()
	g.w.touchNext(g)
}

// removes makes node 7 the leader and has it follow an assignment that takes away node 8's vote. It
// returns once the change is on both disks. Node 7 does not learn of the commit.
func (p *pair) removes(learns bool) {
	r := p.stands[0]
	r.t.Helper()
	p.campaigns(0)
	p.until("node 7 leads", func() bool { return p.shard(0).serving })
	p.drops = func(m *pb.Message) bool { return nodeOf(m.GetTo()) == 7 }
	row := Assignment{Group: 1, Epoch: 2, Members: []Member{{Node: 7, Replica: ReplicaID(7, 1)}}}
	if learns {
		row.Members = append(row.Members, Member{Node: 8, Replica: ReplicaID(8, 1), Learner: true})
	}
	r.host.Place([]Assignment{row})
	hasChange := func(g *replica) bool {
		return slices.ContainsFunc(storedIn(r.t, g.store), func(e *pb.Entry) bool {
			return e.GetType() == pb.EntryConfChangeV2 || e.GetType() == pb.EntryConfChange
		})
	}
	p.until("the change is on both disks", func() bool { return hasChange(p.shard(0)) && hasChange(p.shard(1)) })
	if a, b := len(p.shard(0).store.Conf.Voters), len(p.shard(1).store.Conf.Voters); a != 2 || b != 2 {
		r.t.Fatalf("%d and %d voters: it was applied", a, b)
	}
}

// isOutAhead checks that node 8 is removed with a log that is longer than node 7's, and that node 7
// has not applied the removal.
func (p *pair) isOutAhead() {
	p.stands[0].t.Helper()
	a, b := p.shard(0), p.shard(1)
	if !b.membership.isOut(b) || b.leader || len(a.store.Conf.Voters) != 2 || b.store.Last() <= a.store.Last() {
		p.stands[0].t.Fatalf("node 7: voters %d, log to %d; node 8: voters %d, log to %d, leads %v", a.store.Conf.Voters, a.store.Last(), b.store.Conf.Voters, b.store.Last(), b.leader)
	}
}

// TestWhoIsOutSaysSo: a leader's process is killed when its entry is on the disk of the replica
// being removed, and not yet on its own. The other replica has applied its removal. The former
// leader has lost it, still counts that replica's vote, and has the shorter log. It must become
// leader again all the same (I14).
func TestWhoIsOutSaysSo(t *testing.T) {
	t.Run("removed", func(t *testing.T) { killedAhead(t, false) })
	t.Run("learns", func(t *testing.T) { killedAhead(t, true) })
}

func killedAhead(t *testing.T, learns bool) {
	p := newPair(t)
	p.removes(learns)
	a := p.stands[0]
	a.freeze = true // its disk is slow
	p.drops = func(*pb.Message) bool { return false }
	late, err := a.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "late", Spec: &timer.Spec{DueMs: a.clock.wallMs + 60_000}})
	if err != nil {
		t.Fatal(err)
	}
	p.until("who goes is out", func() bool { return p.shard(1).membership.isOut(p.shard(1)) })
	if late.answered() && late.op.err == nil {
		t.Error("acknowledged, and not on disk")
	}
	a.kill()
	a.freeze = false
	if err := a.open(); err != nil {
		t.Fatal(err)
	}
	a.rows = nil
	p.isOutAhead()
	p.until("who stays leads", func() bool { return p.shard(0).serving })
	p.until("it is alone", func() bool { return slices.Equal(p.shard(0).store.Conf.Voters, []uint64{ReplicaID(7, 1)}) })
	a.abort()
	p.stands[1].abort()
}

// TestWhoIsElectedOnItsWayOut: a replica is elected before it has applied its removal. It appends
// the first entry of its term, learns that earlier entries are committed, and is removed with an
// entry that no other replica has.
func TestWhoIsElectedOnItsWayOut(t *testing.T) {
	t.Run("removed", func(t *testing.T) { electedAhead(t, false) })
	t.Run("learns", func(t *testing.T) { electedAhead(t, true) })
}

func electedAhead(t *testing.T, learns bool) {
	p := newPair(t)
	p.removes(learns)
	p.until("node 7 hears that it leads nobody", func() bool { return !p.shard(0).leader })
	appends := 0
	// Node 7 receives the first entry of the new term, then nothing.
	p.drops = func(m *pb.Message) bool {
		if nodeOf(m.GetTo()) != 7 {
			return false
		}
		if m.GetType() == pb.MsgApp && len(m.Entries) > 0 {
			appends++
		}
		return appends > 1 || appends == 1 && m.GetType() != pb.MsgApp || m.GetType() == pb.MsgPreVote && p.shard(1).leader
	}
	p.campaigns(1)
	p.until("who goes is out", func() bool { return p.shard(1).membership.isOut(p.shard(1)) })
	p.isOutAhead()
	p.drops = func(*pb.Message) bool { return false }
	p.until("who stays leads", func() bool { return p.shard(0).serving })
	for _, r := range p.stands {
		r.abort()
	}
}

// TestWhoLacksTheChangeIsToldNothing: a commit hint does not help a candidate that lacks the entry
// it refers to. It counts as a leader's message, and so delays the time at which the candidate may
// vote for the replica that has the entry. Found by the simulator: of two remaining replicas, the
// one that had missed the change campaigned again and again. It received the other's vote requests
// too seldom to grant its vote within ten seconds of healing.
func TestWhoLacksTheChangeIsToldNothing(t *testing.T) {
	p := newPair(t)
	p.removes(false)
	p.drops = func(*pb.Message) bool { return false }
	p.until("who goes is out", func() bool { return p.shard(1).membership.isOut(p.shard(1)) })
	g := p.shard(1)
	// The log of node 8 has an entry that it has not applied.
	g.store.Append([]*pb.Entry{{Term: new(g.appliedTerm), Index: new(g.store.Last() + 1)}})
	for _, test := range []struct {
		last, word uint64
	}{{g.membership.index - 1, 0}, {g.membership.index, g.membership.index}} {
		said := uint64(0)
		p.drops = func(m *pb.Message) bool {
			if m.GetType() == pb.MsgApp && nodeOf(m.GetTo()) == 7 {
				said = m.GetCommit()
			}
			return true
		}
		g.membership.sendCommitHint(g, &pb.Message{
			Type: pb.MsgPreVote.Enum(), From: new(ReplicaID(7, 1)), To: &g.id, Term: new(g.written.hard.Term + 1), LogTerm: new(g.appliedTerm), Index: &test.last,
		})
		g.w.touch(g)
		p.stands[1].turn()
		if said != test.word {
			t.Errorf("who has the log up to %d is told of %d, want %d (the change is %d)", test.last, said, test.word, g.membership.index)
		}
	}
	for _, r := range p.stands {
		r.abort()
	}
}
