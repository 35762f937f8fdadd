package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/shard/halt"
	"carillon/shard/record"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"

	pb "go.etcd.io/raft/v3/raftpb"
)

// deposed makes the shard's leader step down to a newer term. It campaigns again after an election
// timeout.
func (h *hostHarness) deposed() {
	h.t.Helper()
	h.stepDown()
	h.runIdle()
	g := h.host.group(1)
	if g.serving || shardOf(g).scheduler.View.Inspect().Leading {
		h.t.Fatal("it still leads")
	}
}

// stepDown has it do so in its next turn.
func (h *hostHarness) stepDown() {
	h.t.Helper()
	g := h.host.group(1)
	err := g.raft.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: &g.id, To: &g.id, Term: new(g.written.hard.Term + 1)})
	if err != nil {
		h.t.Fatal(err)
	}
	g.w.touchNext(g)
}

func TestRestartResolvesOwnLeases(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.MaxAttempts = 3 })
	r.add("a", 0)
	if c := r.one(); c.Job.Attempts != 1 {
		t.Error(c.Job.Attempts)
	}
	for attempt := 2; attempt <= 3; attempt++ { // at once, also when every process is short-lived
		r.restart()
		if c := r.one(); c.Job.Attempts != attempt || c.mono != r.clock.mono {
			t.Errorf("after a restart: attempt %d, want %d", c.Job.Attempts, attempt)
		}
	}
	r.restart()
	r.wantCalls("")
	r.wantState("a", "dead max_attempts 3")
	if v := r.timer("a"); v.LastError != scheduler.Interrupted {
		t.Errorf("last error %q", v.LastError)
	}
}

// TestRestartTwiceInARow: a process that dies before it has resolved the leases of the previous
// process leaves them to the next one.
func TestRestartTwiceInARow(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.one()
	r.kill()
	r.starts++
	short := makeHarness(t, r.fs, nil)
	short.starts, short.clock, short.freeze = r.starts, r.clock, true
	if err := short.open(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // until the takeover is applied, and not a turn longer
		short.freeze = short.host.group(1).serving
		short.turn()
		if short.freeze {
			break
		}
	}
	if !short.host.group(1).serving {
		t.Fatal("it never took over")
	}
	r.starts = short.starts
	short.kill()
	r.mustOpen()
	if c := r.one(); c.Job.Attempts != 2 {
		t.Errorf("attempt %d, want 2 at once", c.Job.Attempts)
	}
}

// TestRestartWaitsOutOthersLeases: a lease of another node's process is waited out in full, by the
// monotonic clock.
func TestRestartWaitsOutOthersLeases(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.one()
	r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
	r.restart()
	r.wantCalls("")
	lease := 10*time.Second + scheduler.CallMargin + scheduler.MaxLookAhead
	r.clock.wallMs += 2 * lease.Milliseconds() // the wall clock proves nothing
	r.pass(lease - time.Second)
	r.wantCalls("")
	r.pass(2 * time.Second)
	if c := r.one(); c.Job.Attempts != 2 {
		t.Errorf("attempt %d, want 2", c.Job.Attempts)
	}
}

// TestReelectedLeavesItsOwnCalls: a process that leads again knows that its own calls may still
// run.
func TestReelectedLeavesItsOwnCalls(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.add("b", time.Minute)
	c := r.one()
	r.deposed()
	r.pass(5 * time.Second)
	if !r.host.group(1).serving {
		t.Fatal("it does not lead again")
	}
	r.wantCalls("")
	r.pass(time.Minute)
	r.wantCalls("b")
	c.answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	r.audit()
}

// TestCallEndsBetweenReigns: the process's next leadership commits the outcome of a call that ended
// between two leaderships.
func TestCallEndsBetweenReigns(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	c := r.one()
	r.deposed()
	c.answer(200)
	r.pass(5 * time.Second)
	r.wantCalls("")
	r.wantState("a", "done 1")
	r.audit()
}

// TestReelectedForgetsNothing: timers that one leadership took out of the wheel and did not finish
// are found by the next.
func TestReelectedForgetsNothing(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.DeadRetentionMs = 60_000 })
	r.add("gone", 0)
	r.one().answer(410)
	r.runIdle()
	r.add("held", 60*time.Second+500*time.Millisecond)
	r.add("proposed", 60*time.Second+530*time.Millisecond)
	r.add("expired", 60*time.Second+490*time.Millisecond, expires(10*time.Millisecond), url("http://shut/"))
	r.calls.dest("http://shut/").retryIn = time.Hour
	r.pass(60*time.Second + 505*time.Millisecond - 25*time.Millisecond)
	r.freeze = true
	r.pass(30 * time.Millisecond)
	r.deposed()
	r.freeze = false
	r.pass(5 * time.Second)
	r.wantCalls("held proposed")
	r.wantState("expired", "dead expired 0")
	r.wantState("gone", "none")
	r.audit()
}

// TestDueWhileDown: after an outage overdue timers fire in due order, and half of the calls are for
// newly due timers.
func TestDueWhileDown(t *testing.T) {
	r := newHostHarness(t, nil)
	for i := range 50 {
		r.add(fmt.Sprintf("old%02d", i), time.Duration(i+1)*time.Second)
	}
	r.kill()
	r.step(time.Hour)
	r.calls.dest("http://receiver-1/").slots = 1
	r.mustOpen()
	for i := range 10 {
		r.add(fmt.Sprintf("new%02d", i), 0)
	}
	var order []string
	for range 60 {
		c := r.one()
		order = append(order, c.Job.ID)
		c.answer(200)
		r.runIdle()
	}
	last := map[string]string{}
	for _, id := range order {
		kind := id[:3]
		if id < last[kind] {
			t.Errorf("%s after %s", id, last[kind])
		}
		last[kind] = id
	}
	if head := strings.Join(order[:24], " "); !strings.Contains(head, "new09") {
		t.Errorf("the last of ten fresh timers was not among the first 24: %s", head)
	}
	r.audit()
}

// TestI12LogAloneIsLiveState: replaying the log reproduces the state bit by bit.
func TestI12LogAloneIsLiveState(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	for i := range 200 {
		r.add(fmt.Sprint("t", i), time.Duration(i)*100*time.Millisecond)
	}
	r.pass(5 * time.Second)
	for i := 100; i < 150; i++ {
		r.do(timer.Command{Kind: timer.Cancel, ID: fmt.Sprint("t", i)})
	}
	live, applied := r.table().Hash(), r.host.group(1).applied
	clone := makeHarness(t, r.fs.CrashClone(calm{}, zeroLoss), nil)
	clone.starts, clone.clock = 1, r.clock
	if err := clone.recoverOnly(); err != nil {
		t.Fatal(err)
	}
	g := clone.host.group(1)
	// Entries committed after the last commit index record are in the log's tail. Raft applies them
	// once it leads.
	for _, e := range storedIn(t, g.store) {
		if e.GetIndex() > applied || shardOf(g).table == nil {
			break
		}
		if len(e.Data) > 0 {
			if _, err := shardOf(g).table.Apply(e.Data, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := shardOf(g).table.Hash(); got != live {
		t.Errorf("hash %x from the log, %x live", got, live)
	}
	if err := shardOf(g).table.Audit(false); err != nil {
		t.Error(err)
	}
}

// TestEqualLogEqualBytes: the same script writes the same bytes.
func TestEqualLogEqualBytes(t *testing.T) {
	run := func() (uint64, string) {
		r := newHostHarness(t, func(c *Config) { c.Shards, c.Workers = 3, 2 })
		r.calls.auto = 500
		for i := range 100 {
			r.add(fmt.Sprint("t", i), time.Duration(i)*10*time.Millisecond)
		}
		r.pass(3 * time.Second)
		return r.table().Hash(), r.files()
	}
	h1, b1 := run()
	h2, b2 := run()
	if h1 != h2 || b1 != b2 {
		t.Errorf("hashes %x, %x; %d and %d bytes of files, equal: %t", h1, h2, len(b1), len(b2), b1 == b2)
	}
}

// TestIdentityOfBeforeADoubling: identity.json has the number of shards. If it was put back from a
// copy of before they doubled, the node refuses to start, with the reason, and so does its next
// start: it would count as empty what replicas of the other shards have acknowledged.
func TestIdentityOfBeforeADoubling(t *testing.T) {
	for name, has := range map[string]func(r *hostHarness){
		"in the log": func(r *hostHarness) {
			p, err := r.submit(2, timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: 1 << 41}})
			if r.runIdle(); err != nil || !p.answered() {
				t.Fatal(err)
			}
		},
		"in a snapshot alone": func(r *hostHarness) {
			r.kill()
			r.fs = memfs.New()
			r.change, r.starts = nil, 0
			r.mustOpen()
			w, err := wal.CreateSnapshot(r.fs, r.host.snapshotDir(), wal.SnapshotMeta{Shard: 2, Index: 9, Term: 1, Conf: record.AppendMark(nil, record.Mark{Conf: &pb.ConfState{}})})
			if err == nil {
				err = w.Commit()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
			has(r)
			r.kill()
			r.change = func(c *Config) { c.Shards = 1 }
			for range 2 {
				err := r.open()
				var why *halt.Error
				if !errors.As(err, &why) || why.Reason != halt.OldDirectory || !strings.Contains(err.Error(), "identity.json") || !strings.Contains(err.Error(), "shard 2") {
					t.Fatalf("%v", err)
				}
				if Damaged(err) {
					t.Error("it counts as damage, for which a node is replaced by itself")
				}
			}
		})
	}
}

// TestManyEndsAtTheEndOfALeadership: calls that end at one instant are judged in several turns. A
// leadership that ends meanwhile loses none of their ends, so no call is made again.
func TestManyEndsAtTheEndOfALeadership(t *testing.T) {
	const n = 2*scheduler.PopBudget + scheduler.LeaseBudget
	r := newHostHarness(t, nil)
	for i := range n {
		r.add(fmt.Sprint(i), 0)
	}
	calls := r.calls.take()
	for _, c := range calls {
		c.answer(200)
	}
	r.turn()
	if counts := r.table().Counts(1); len(calls) != n || counts.Leased == 0 {
		t.Fatalf("%d calls, %+v", len(calls), counts)
	}
	r.stepDown()
	r.pass(5 * time.Second)
	if counts := r.table().Counts(1); counts.Done != n || len(r.calls.take()) > 0 {
		t.Errorf("%+v after the end of the leadership", counts)
	}
	r.audit()
}
