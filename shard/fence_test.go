package shard

import (
	"errors"
	"slices"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// fencing is a Placement that keeps what is asked of the meta group.
type fencing struct {
	staticPlacement
	restarted map[table.Incarnation]bool
	asked     []table.Incarnation
	then      []func(error)
}

func (f *fencing) Restarted(owner table.Incarnation) bool { return f.restarted[owner] }
func (f *fencing) Fence(owner table.Incarnation, then func(error)) {
	f.asked, f.then = append(f.asked, owner), append(f.then, then)
}

// answer is the meta group's to the last request.
func (f *fencing) answer(err error) { f.then[len(f.then)-1](err) }

// fullLease is how long a lease lasts by the default policy.
const fullLease = 10*time.Second + scheduler.CallMargin + scheduler.MaxLookAhead

// inheritedHarness has a leader, process 8.1, that has taken over a shard in which process 7.1 was
// calling timer a.
func inheritedHarness(t *testing.T, change func(*timer.Topic), more ...func(*timer.Spec)) (r *hostHarness, p *fencing, former table.Incarnation) {
	t.Helper()
	p = &fencing{restarted: map[table.Incarnation]bool{}}
	r = newHostHarness(t, func(c *Config) { c.Placement = p })
	r.topic(1, change)
	r.add("a", 0, more...)
	r.one()
	former = r.host.cfg.Incarnation
	r.change = func(c *Config) { c.Placement, c.Incarnation = p, table.NewIncarnation(8, 1) }
	r.restart()
	r.pass(time.Second)
	r.wantCalls("")
	return r, p, former
}

// TestHintEndsNoLease: a process that seems to be gone may live, and its call may run.
func TestHintEndsNoLease(t *testing.T) {
	r, p, former := inheritedHarness(t, nil)
	for range 3 {
		r.host.SeemsGone(former)
		r.runIdle()
	}
	r.pass(fullLease - 2*time.Second)
	r.wantCalls("")
	if len(p.asked) != 1 || p.asked[0] != former {
		t.Errorf("the meta group was asked about %x, want %x once", p.asked, former)
	}
	r.pass(2 * time.Second)
	if c := r.one(); c.Job.Attempts != 2 {
		t.Errorf("attempt %d, want 2", c.Job.Attempts)
	}
}

// TestRestartEndsLeases: a process whose node has registered a later one has ended, and its calls
// with it.
func TestRestartEndsLeases(t *testing.T) {
	r, p, former := inheritedHarness(t, func(topic *timer.Topic) { topic.Policy.Serial = true })
	p.restarted[former] = true
	r.host.Restarted()
	r.runIdle()
	if c := r.one(); c.Job.Attempts != 2 {
		t.Errorf("attempt %d, want 2", c.Job.Attempts)
	}
	if len(p.asked) > 0 {
		t.Error("a fence was asked for")
	}
}

// TestFenceEndsALeaseThatMayBeRepeated: after a fence a call is repeated, but not before the fenced
// process can start none any more.
func TestFenceEndsALeaseThatMayBeRepeated(t *testing.T) {
	r, p, former := inheritedHarness(t, nil)
	since := r.clock.mono - time.Second // the takeover
	p.answer(errNotFound)
	r.pass(5 * time.Second)
	r.wantCalls("")
	r.host.SeemsGone(former) // asks again
	r.runIdle()
	if len(p.asked) != 2 {
		t.Fatalf("asked %d times", len(p.asked))
	}
	p.answer(nil)
	r.runIdle()
	if c := r.one(); c.Job.Attempts != 2 || c.mono < since+scheduler.StartWithin {
		t.Errorf("attempt %d, %v after the takeover", c.Job.Attempts, c.mono-since)
	}
}

// errNotFound stands for the meta group's refusal.
var errNotFound = errors.New("a majority does not find it gone")

// TestFenceWaitsForTheLastStart: the fence may be there before the fenced process has lost the
// right to start calls, which it does StartWithin after the takeover.
func TestFenceWaitsForTheLastStart(t *testing.T) {
	p := &fencing{}
	r := newHostHarness(t, func(c *Config) { c.Placement = p })
	r.add("a", 0)
	r.one()
	r.change = func(c *Config) { c.Placement, c.Incarnation = p, table.NewIncarnation(8, 1) }
	r.restart()
	for len(p.asked) == 0 {
		r.pass(tickInterval)
	}
	p.answer(nil)
	since := r.clock.mono
	r.pass(scheduler.StartWithin - 2*tickInterval)
	r.wantCalls("")
	r.pass(scheduler.StartWithin/10 + 2*tickInterval + 5*time.Millisecond)
	if c := r.one(); c.mono-since > scheduler.StartWithin*5/4 {
		t.Errorf("%v after the fence", c.mono-since)
	}
}

// TestFenceIsNoProof: what nobody may do twice at a time, and a last attempt, wait for the
// process's restart or the end of its lease.
func TestFenceIsNoProof(t *testing.T) {
	for name, change := range map[string]func(*timer.Topic){
		"serial":       func(topic *timer.Topic) { topic.Policy.Serial = true },
		"limited":      func(topic *timer.Topic) { topic.Policy.Concurrency = 1 },
		"last attempt": func(topic *timer.Topic) { topic.Policy.MaxAttempts = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			r, p, former := inheritedHarness(t, change)
			r.host.SeemsGone(former)
			r.runIdle()
			for i := range p.then {
				p.then[i](nil)
			}
			r.pass(fullLease - 2*time.Second)
			r.wantCalls("")
			r.wantState("a", "leased 1")
		})
	}
}

// TestFenceOfAnEarlierLeadership: a fence proves nothing about leases that the process took later.
// It has lived, and led again.
func TestFenceOfAnEarlierLeadership(t *testing.T) {
	r, p, _ := inheritedHarness(t, nil)
	r.deposed()
	for range 100 {
		if r.pass(tickInterval); r.host.group(1).serving {
			break
		}
	}
	p.then[0](nil)
	r.pass(5 * time.Second)
	if !r.host.group(1).serving {
		t.Fatal("it does not lead again")
	}
	r.wantCalls("")
	if len(p.asked) != 2 {
		t.Errorf("the meta group was asked %d times, want once in each leadership", len(p.asked))
	}
}

// TestStartNeedsAMajorityLately: a lease whose entry took long to commit proves nothing about now.
// Its call starts only after a majority has confirmed that this node leads.
func TestStartNeedsAMajorityLately(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", 5*time.Second)
	r.pass(5*time.Second - 100*time.Millisecond)
	c.hung, c.sent = true, nil
	r.pass(scheduler.StartWithin)
	r.wantCalls("")
	c.hung, c.mute = false, true
	for _, m := range c.sent {
		if m.GetType() == pb.MsgApp && nodeOf(m.GetTo()) == 8 {
			c.send(1, agreement(m))
		}
	}
	r.runIdle()
	if g := r.host.group(1); shardOf(g).table.Totals().Leased != 1 || !g.leader {
		t.Fatalf("the lease is not applied, or it leads no more: %+v", shardOf(g).table.Totals())
	}
	r.wantCalls("")
	c.mute = false
	r.pass(2 * tickInterval)
	call := r.one()
	within := scheduler.StartWithinOf(r.table(), call.Job.Fence)
	if call.Deadline-10*time.Second > r.clock.Look().Lease+within {
		t.Errorf("the call may begin until %v, now is %v", call.Deadline-10*time.Second, r.clock.Look().Lease)
	}
	call.answer(200)
}

// TestHintElects: followers of a leader that seems to be gone elect another at once; the hint may
// reach them at different times. If the leader lives they follow it again.
func TestHintElects(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	g := r.host.group(1)
	for g.raft.BasicStatus().Lead != ReplicaID(8, 1) {
		c.send(1, heartbeat(g.raft.BasicStatus().GetTerm()+1))
		r.runIdle()
	}
	r.host.SeemsGone(table.NewIncarnation(8, 1))
	r.runIdle()
	c.send(1, heartbeat(g.raft.BasicStatus().GetTerm()))
	r.pass(candidacyEvery)
	if g.leader || g.raft.BasicStatus().Lead != ReplicaID(8, 1) {
		t.Error("the leader is deposed although it was heard")
	}
	c.mute = true // the other follower has no hint yet
	r.host.SeemsGone(table.NewIncarnation(8, 1))
	r.pass(2 * candidacyEvery)
	c.mute = false
	r.pass(2 * candidacyEvery)
	if !g.leader {
		t.Error("nobody is elected")
	}
}

// TestHintElectsSoon: a voter asks again soon, where the other one got the hint later.
func TestHintElectsSoon(t *testing.T) {
	for _, later := range []time.Duration{0, 4, 12, 25} {
		r, c := withFakePeers(t, true, nil)
		c.follows()
		r.host.SeemsGone(table.NewIncarnation(8, 1))
		r.pass(later * time.Millisecond)
		c.mute = false
		r.pass(max(4, 2*later) * time.Millisecond)
		if !r.host.group(1).leader {
			t.Errorf("the other voter got the hint %d ms later, and nobody is elected", later)
		}
		r.abort()
	}
}

// TestChildIsElectedOnceOthersHaveIt: the first replica of a new shard leads it soon after another
// node has made its own.
func TestChildIsElectedOnceOthersHaveIt(t *testing.T) {
	for _, later := range []time.Duration{0, 10, 30, 100} {
		r, c := withFakePeers(t, false, nil)
		c.leads()
		c.lack = 2
		r.host.Grow(2, 1)
		r.host.Place([]Assignment{{Group: 2, Epoch: 1, From: 1, Members: r.rows[1].Members}})
		child := r.host.group(2)
		for child.raft == nil {
			<-time.After(100 * time.Microsecond) // its state is made by a goroutine
			r.runIdle()
		}
		r.pass(later * time.Millisecond)
		c.lack = 0
		if r.pass(2 * candidacyGap); !child.leader {
			t.Errorf("others had a replica %d ms later, and %v after that it does not lead", later, 2*candidacyGap)
		}
		r.abort()
	}
}

// TestHintElectsAfterATimeout: raft's own time-out was over just before the hint, when the others
// gave no vote yet. The follower stands again all the same.
func TestHintElectsAfterATimeout(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	c.follows()
	g := r.host.group(1)
	if err := g.raft.Campaign(); err != nil {
		t.Fatal(err)
	}
	g.w.touchNext(g)
	r.runIdle()
	c.mute = false
	r.host.SeemsGone(table.NewIncarnation(8, 1))
	r.pass(2 * candidacyEvery)
	if !g.leader {
		t.Error("nobody is elected")
	}
}

// TestHintElectsWhoHasTheEntries: the follower whose turn it is may lack entries that another has.
// That one stands as soon as it is asked for its vote, which it cannot give.
func TestHintElectsWhoHasTheEntries(t *testing.T) {
	for _, lacks := range []uint64{1, 0} {
		r, c := withFakePeers(t, false, nil)
		g := r.host.group(1)
		slices.Reverse(g.membership.row.Members) // node 9 stands before this one
		for g.raft.BasicStatus().Lead != ReplicaID(8, 1) {
			c.send(1, heartbeat(g.raft.BasicStatus().GetTerm()+1))
			r.runIdle()
		}
		r.host.SeemsGone(table.NewIncarnation(8, 1))
		r.runIdle()
		last := g.store.Last()
		lastTerm, err := g.store.Term(last)
		if err != nil {
			t.Fatal(err)
		}
		c.send(1, &pb.Message{
			Type: pb.MsgPreVote.Enum(), From: new(ReplicaID(9, 1)), To: &g.id, Term: new(g.raft.BasicStatus().GetTerm() + 1),
			LogTerm: &lastTerm, Index: new(last - lacks),
		})
		r.runIdle()
		if g.leader != (lacks > 0) {
			t.Errorf("node 9 lacks %d entries: this one leads: %v", lacks, g.leader)
		}
		r.abort()
	}
}

// TestRestartEndsNoLeaseOfAReceiver: a receiver extends its lease while the leader ends what the
// process that called it left behind. The extension is in the log first, so the lease is the
// receiver's. Found by the simulator, seed 43.
func TestRestartEndsNoLeaseOfAReceiver(t *testing.T) {
	r, p, former := inheritedHarness(t, func(topic *timer.Topic) { topic.Policy.Report, topic.Policy.MaxAttempts = true, 5 })
	h := timer.Handle(1)
	for r.table().Due(h).Topic != 1 {
		h++
	}
	d := r.table().Due(h)
	r.freeze = true // the extension is proposed, and not applied
	extend, err := r.submit(1, timer.Command{Kind: timer.ExtendLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: h, Seq: d.Seq, Fence: d.Fence, LeaseMs: 60_000}})
	if err != nil {
		t.Fatal(err)
	}
	r.turn()
	p.restarted[former] = true
	r.host.Restarted()
	r.turn()
	r.freeze = false
	r.runIdle()
	if got := extend.op.result; !extend.answered() || extend.op.err != nil || got.Code != timer.OK {
		t.Fatalf("the extension is answered %+v, %v", got, extend.op.err)
	}
	r.pass(50 * time.Second)
	r.wantCalls("")
	r.wantState("a", "leased 1")
}
