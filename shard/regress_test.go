package shard

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/delivery"
	"carillon/shard/record"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"
)

// Each test here is the shortest way to a fault that the simulator found.

// TestReadAskedInTheTurnOfTheFall: raft steps down on a message of this turn. Later in the turn, a
// ReadIndex request would be forwarded to the new leader, and nodes do not exchange such messages.
// The caller is redirected instead.
func TestReadAskedInTheTurnOfTheFall(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	g := r.host.group(1)
	c.mute = true
	c.send(1, heartbeat(g.term+1))
	rd := &read{group: g, deadline: r.clock.mono + readLimit, wait: fakeWaiter(), serve: func(int) bool { return true }}
	g.w.box.post(rd)
	c.sent = nil
	r.turn()
	r.runIdle()
	var elsewhere timer.NotLeaderError
	if !errors.As(rd.err, &elsewhere) || elsewhere.Leader != 8 {
		t.Errorf("the read ended with %v", rd.err)
	}
	for _, m := range c.sent {
		if !mayCome(m.GetType()) {
			t.Errorf("%v was sent", m.GetType())
		}
	}
}

// TestInstalledSnapshotIsMarkedFirst: a snapshot from a peer is acknowledged only once the mark
// that the log continues from it is on disk, also when only the commit index comes with it.
func TestInstalledSnapshotIsMarkedFirst(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	const term, index = 5, 40
	c.send(1, heartbeat(term))
	r.runIdle()
	r.freeze = true
	g := r.host.group(1)
	c.arrive(term, index)
	for range 5 {
		r.turn()
	}
	if g.applied != index {
		t.Fatalf("the state is that of entry %d, want %d", g.applied, index)
	}
	if c.acknowledged(index) {
		t.Error("it is acknowledged, and the log does not have it")
	}
	r.freeze = false
	r.runIdle()
	if !c.acknowledged(index) {
		t.Fatal("it is never acknowledged")
	}
	if n := r.observer.received; n != 1 {
		t.Errorf("%d snapshots are told of as received", n)
	}
	r.abort()
	r.fs = r.fs.CrashClone(calm{}, zeroLoss)
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	if g := r.host.group(1); g.applied != index || g.written.hard.Term != term {
		t.Errorf("after a power cut: entry %d, term %d", g.applied, g.written.hard.Term)
	}
}

// arrive delivers a snapshot of shard 1 from node 8.
func (p *fakePeers) arrive(term, index uint64) {
	p.r.t.Helper()
	if err := p.deliver(term, index); err != nil {
		p.r.t.Fatal(err)
	}
}

func (p *fakePeers) deliver(term, index uint64) error {
	t, h := p.r.t, p.r.host
	t.Helper()
	tbl := table.New(1, 0)
	id := h.group(1).id
	conf := &pb.ConfState{Voters: []uint64{id, ReplicaID(8, 1), ReplicaID(9, 1)}, AutoLeave: new(false)}
	m := &pb.Message{Type: pb.MsgSnap.Enum(), From: new(ReplicaID(8, 1)), To: &id, Term: &term,
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf}}}
	state := image(tbl)
	in, err := h.Receive(8, appendTransferHeader(nil, &transferHeader{group: 1, message: m, hash: tbl.Hash(), epoch: 1}), int64(len(state)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(state); err != nil {
		t.Fatal(err)
	}
	return in.Commit()
}

// acknowledged reports whether this node has acknowledged all entries up to index to node 8.
func (p *fakePeers) acknowledged(index uint64) bool {
	for _, m := range p.sent {
		if m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() >= index {
			return true
		}
	}
	return false
}

// TestRemovedReplicasLogIsVoid: once the snapshots of a removed replica are deleted, its log cannot
// be replayed any more. That is no error if the tombstone follows.
func TestRemovedReplicasLogIsVoid(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.fill(12)
		r.snapshots()
		r.fill(6)
		r.snapshots()
		if r.oldest() == 1 {
			t.Fatal("the log still has the replica's beginning")
		}
		rows := soleRows(2, 7)
		rows[1].Epoch, rows[1].Members[0] = 2, Member{Node: 8, Replica: ReplicaID(8, 2)}
		r.host.Place(rows)
		r.runIdle()
		synctest.Wait() // until the files are deleted
		if n := len(r.snapshotFiles(1)); r.host.group(1).id != 0 || n != 0 {
			t.Fatalf("replica %x is still there, with %d snapshots", r.host.group(1).id, n)
		}
		r.kill()
		r.rows = rows
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		if g := r.host.group(1); g.id != 0 || g.tombstone != ReplicaID(7, 1) {
			t.Errorf("replica %x, tombstone %x", g.id, g.tombstone)
		}
	})
}

// TestI4RetryByASlowerClock: a leader with a clock that was ahead starts an attempt, and the next
// leader's clock shows that it was early. No retry starts before the timer is due.
func TestI4RetryByASlowerClock(t *testing.T) {
	for name, reports := range map[string]func(r *hostHarness, c *fakeCall){
		"interrupted": func(*hostHarness, *fakeCall) {},
		"reported": func(r *hostHarness, c *fakeCall) {
			f := &scheduler.Report{Owner: table.NewIncarnation(7, 1), Handle: c.Job.Handle, Seq: c.Job.Seq, Fence: c.Job.Fence,
				// That clock was corrected meanwhile.
				Attempt: delivery.Outcome{Status: 503, StartedMs: c.wallMs, EndedMs: c.wallMs - time.Minute.Milliseconds()}}
			g, body := r.host.group(1), appendReport(nil, f)
			g.w.box.post(&peerFrame{from: 7, messages: []peerMessage{{kind: reportMessage, group: g, body: body}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHostHarness(t, nil)
			r.add("a", time.Minute)
			r.clock.wallMs += time.Minute.Milliseconds()
			r.pass(time.Second)
			first := r.one()
			r.clock.wallMs -= time.Minute.Milliseconds()
			r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
			r.restart()
			reports(r, first)
			r.pass(50 * time.Second)
			r.wantCalls("")
			r.pass(15 * time.Second)
			if c := r.one(); c.Job.Attempts != 2 || c.wallMs < fakeEpochMs+time.Minute.Milliseconds() {
				t.Errorf("attempt %d starts %d ms early", c.Job.Attempts, fakeEpochMs+time.Minute.Milliseconds()-c.wallMs)
			}
		})
	}
}

// TestStreamOfAReplacedSnapshot: if a snapshot is gone when its stream begins, the stream's source
// is nil, and not an interface that holds nil.
func TestStreamOfAReplacedSnapshot(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	g := r.host.group(1)
	tbl := table.New(1, 0)
	meta := wal.SnapshotMeta{Shard: 1, Index: 40, Term: 5, Hash: tbl.Hash(), Conf: record.AppendMark(nil, record.Mark{Replica: g.id, Index: 40, Term: 5, Conf: g.store.Conf})}
	w, err := wal.CreateSnapshot(r.fs, r.host.snapshotDir(), meta)
	if err == nil {
		_, err = bytes.NewReader(image(tbl)).WriteTo(w)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	g.snapshots.send(g, &pb.Message{Type: pb.MsgSnap.Enum(), From: &g.id, To: new(ReplicaID(8, 1)), Term: new(uint64(5)),
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(40)), Term: new(uint64(5)), ConfState: g.store.Conf}}})
	if len(c.streams) != 1 {
		t.Fatalf("%d streams", len(c.streams))
	}
	for want, err := range []error{errors.New("it broke off"), nil} {
		c.streams[0].Done(err)
		if r.runIdle(); r.observer.sent != want {
			t.Errorf("after %v: %d snapshots are told of as sent", err, r.observer.sent)
		}
	}
	if err := r.fs.Remove(r.host.snapshotDir() + "/" + meta.FileName()); err != nil {
		t.Fatal(err)
	}
	if source, err := c.streams[0].Open(); err == nil || source != nil {
		t.Errorf("source %v, error %v", source, err)
	}
}

// TestWantedSnapshotIsTriedAgainSoon: a snapshot that could not be written is retried after a
// while. The retry comes much sooner if a follower needs the snapshot: there may be no majority
// without it.
func TestWantedSnapshotIsTriedAgainSoon(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		bubbleHarness(t, smallLog, func(r *hostHarness) {
			r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
				if op == memfs.OpWrite && strings.Contains(name, "snapshots/") {
					return errors.New("no room")
				}
				return nil
			})
			g := r.host.group(1)
			r.fill(8)
			r.pass(time.Second)
			if g.files.failedAt == 0 {
				t.Fatal("no snapshot has failed")
			}
			r.fs.SetHook(nil)
			g.snapshots.wanted = wanted
			r.pass(wantedSnapshotRetry + time.Second)
			if got := g.files.Newest.Index != 0; got != wanted {
				t.Errorf("wanted %v: written %v", wanted, got)
			}
		})
	}
}

// TestUnreadableSnapshotIsReplacedThoughNothingMoves: a snapshot that a follower needs cannot be
// read. A new one is written and sent, even if no entry was applied since: there may be no majority
// without that follower.
func TestUnreadableSnapshotIsReplacedThoughNothingMoves(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		r.fill(8)
		r.pass(time.Second)
		g.snapshots.wanted = true
		r.pass(time.Second)
		at := g.applied
		if g.files.Newest.Index != at {
			t.Fatalf("the newest snapshot is of entry %d, %d is applied", g.files.Newest.Index, at)
		}
		g.files.Newest.Conf, g.snapshots.wanted = nil, true // as snapshots.send does
		r.pass(time.Second)
		if _, err := g.snapshots.offer(g); err != nil || g.applied != at {
			t.Errorf("no snapshot is offered: %v; entry %d is applied, it was %d", err, g.applied, at)
		}
	})
}

// drained is a Placement in which no node may lead.
type drained struct{ staticPlacement }

func (drained) MayLead(uint64) bool { return false }

// TestLeaderThatGoesHandsOverToWhoeverStays: a leader is being removed, and none of the remaining
// nodes may lead, since all of them drain too. It transfers leadership nevertheless. Otherwise the
// assignment would never be settled, and no other node could take over.
func TestLeaderThatGoesHandsOverToWhoeverStays(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = drained{} })
	c.leads()
	rows := []Assignment{r.rows[0], {Group: 1, Epoch: 2, Members: r.rows[1].Members[1:]}}
	r.host.Place(rows)
	r.pass(time.Second)
	for _, m := range c.sent {
		if m.GetType() == pb.MsgTimeoutNow {
			return
		}
	}
	t.Error("nobody is told to take over")
}

// onlyLead is a Placement in which only one node may lead.
type onlyLead struct {
	staticPlacement
	node uint64
}

func (l onlyLead) MayLead(node uint64) bool { return node == l.node }

// toldToCampaign returns the nodes that were asked to take over.
func (p *fakePeers) toldToCampaign() (nodes []uint64) {
	for _, m := range p.sent {
		if m.GetType() == pb.MsgTimeoutNow {
			nodes = append(nodes, nodeOf(m.GetTo()))
		}
	}
	return nodes
}

// TestCordonedLeaderKeepsWhatALeavingReplicaWouldGiveBack: the leader is cordoned, and the
// assignment removes the only other voter that may lead. The leader does not transfer to that
// voter: it would transfer leadership back at once, and the assignment would never be settled.
func TestCordonedLeaderKeepsWhatALeavingReplicaWouldGiveBack(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = onlyLead{node: 9} })
	c.leads()
	r.host.Cordon(true)
	r.host.Place([]Assignment{r.rows[0], {Group: 1, Epoch: 2, Members: r.rows[1].Members[:2]}})
	r.pass(time.Second)
	if g := r.host.group(1); len(g.store.Conf.Voters) != 2 || !g.leader {
		t.Errorf("the row is not followed: voters %x, leads %v", g.store.Conf.Voters, g.leader)
	}
}

// TestLeaderThatGoesFirstGivesANewReplicaItsVote: the only remaining replica that may lead has no
// vote yet. It becomes a voter first: the others would transfer leadership back.
func TestLeaderThatGoesFirstGivesANewReplicaItsVote(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = onlyLead{node: 10} })
	c.leads()
	fresh := Member{Node: 10, Replica: ReplicaID(10, 2)}
	r.host.Place([]Assignment{r.rows[0], {Group: 1, Epoch: 2, Members: append([]Member{fresh}, r.rows[1].Members[1:]...)}})
	r.pass(3 * time.Second)
	if to := c.toldToCampaign(); len(to) == 0 || to[0] != 10 {
		t.Errorf("%v are told to take over, voters %x", to, r.host.group(1).store.Conf.Voters)
	}
}

// TestI17PolicyThatIsNotKnownYet: a node that has just started may lead a shard before it has the
// topics again. Until then it does not judge the outcome of another leader's attempt: the default
// policy may not be the topic's.
func TestI17PolicyThatIsNotKnownYet(t *testing.T) {
	for name, reported := range map[string]bool{"interrupted": false, "reported": true} {
		t.Run(name, func(t *testing.T) {
			r := makeHarness(t, memfs.New(), nil)
			r.topic(1, func(topic *timer.Topic) { topic.Policy.MaxAttempts = 1 })
			r.mustOpen()
			r.add("a", time.Second)
			r.pass(2 * time.Second)
			first := r.one()
			r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
			known := r.topics[1]
			delete(r.topics, 1)
			r.restart()
			report := func() {
				f := &scheduler.Report{Owner: table.NewIncarnation(7, 1), Handle: first.Job.Handle, Seq: first.Job.Seq, Fence: first.Job.Fence,
					Attempt: delivery.Outcome{Status: 503, StartedMs: first.wallMs, EndedMs: first.wallMs + 1}}
				g, body := r.host.group(1), appendReport(nil, f)
				g.w.box.post(&peerFrame{from: 7, messages: []peerMessage{{kind: reportMessage, group: g, body: body}}})
				r.pass(time.Second)
			}
			if reported {
				report()
			} else {
				r.pass(time.Minute)
			}
			r.topics[1] = known
			r.topicsChanged()
			if reported {
				report() // repeated until the lease is over
			}
			r.pass(time.Minute)
			r.wantCalls("")
			r.wantState("a", "dead max_attempts 1")
		})
	}
}

// TestOwnResponseAfterRemoval: a leader's removal is committed by others and applied while its own
// disk still writes later entries. Raft then does not know the peer of the response. This is no
// error.
func TestOwnResponseAfterRemoval(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	g := r.host.group(1)
	c.mute = true
	me := g.id
	if err := g.raft.ProposeConfChange(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: &me}}}); err != nil {
		t.Fatal(err)
	}
	turns := func() {
		g.w.touchNext(g)
		for range 5 {
			r.turn()
		}
	}
	turns()
	going, _ := g.store.LastIndex()
	r.freeze = true
	if err := g.raft.Propose(nil); err != nil {
		t.Fatal(err)
	}
	turns()
	for _, node := range []uint64{8, 9} {
		c.send(1, &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(ReplicaID(node, 1)), To: &me, Term: &g.term, Index: &going})
	}
	turns()
	if len(g.store.Conf.Voters) != 2 {
		t.Fatalf("the change is not applied: %v", g.store.Conf)
	}
	r.freeze = false
	turns()
}

// TestRefusedProposalIsNotRepeatedAtOnce: raft refuses proposals during a leadership transfer. Due
// leases are proposed again after a while, and the host is idle in between.
func TestRefusedProposalIsNotRepeatedAtOnce(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", time.Second)
	r.pass(900 * time.Millisecond)
	r.host.group(1).raft.TransferLeader(ReplicaID(8, 1)) // the transferee does not receive it
	r.pass(3 * time.Second)
	r.one()
}

// TestSnapshotOfTheFounding: members of the first assignment that were down until a later one
// exists start empty, without the first assignment. They vote, so the replica that has it leads. It
// can commit nothing before it has sent them a snapshot, and that is a snapshot of the bootstrap
// state itself.
func TestSnapshotOfTheFounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := withFakePeers(t, true, nil)
		r.bubble = true
		defer r.abort()
		for range 200 {
			sent := c.sent
			c.sent = nil
			for _, m := range sent {
				a := agreement(m)
				// The entry before these is missing.
				if m.GetType() == pb.MsgApp {
					a = &pb.Message{Type: pb.MsgAppResp.Enum(), From: m.To, To: m.From, Term: m.Term, Index: m.Index, Reject: new(true), RejectHint: new(uint64(0))}
				}
				if a != nil {
					c.send(1, a)
				}
			}
			r.pass(tickInterval)
			if len(c.streams) > 0 {
				return
			}
		}
		t.Error("no snapshot is sent")
	})
}

// TestUnwantedSnapshotIsLetGo: a snapshot that raft rejects, because its leader was deposed
// meanwhile, is not kept: it is as large as the shard.
func TestUnwantedSnapshotIsLetGo(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	const term, index = 5, 40
	c.send(1, heartbeat(term))
	r.runIdle()
	c.arrive(term-1, index)
	r.runIdle()
	g := r.host.group(1)
	if g.applied == index {
		t.Fatal("a snapshot of a deposed leader became the state")
	}
	if g.snapshots.incoming != nil {
		t.Error("its table is kept")
	}
	c.arrive(term, index) // the same snapshot from the current leader
	r.runIdle()
	if g.applied != index || !c.acknowledged(index) {
		t.Errorf("the state is that of entry %d, want %d", g.applied, index)
	}
	r.abort()
}

// TestTwoSnapshotsInOneTurn: an older snapshot from a former leader may arrive in the same turn as
// the new leader's, after it. Found by code review: the host panicked.
func TestTwoSnapshotsInOneTurn(t *testing.T) {
	for _, indexes := range [][]uint64{{40, 30}, {30, 40}, {40, 40}} {
		r, c := withFakePeers(t, true, nil)
		const term = 5
		c.send(1, heartbeat(term))
		r.runIdle()
		for _, index := range indexes {
			c.arrive(term, index)
		}
		r.runIdle()
		if g := r.host.group(1); g.applied != 40 || !c.acknowledged(40) || g.snapshots.incoming != nil {
			t.Errorf("%d: the state is that of entry %d", indexes, g.applied)
		}
		r.abort()
	}
}
