package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/table"
)

// inHostCluster runs a test of a cluster of so many nodes, all of which have shard 1.
func inHostCluster(t *testing.T, nodes int, run func(c *hostCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var founders []int
		for i := range nodes {
			founders = append(founders, i)
		}
		c := newHostCluster(t, nodes, founders)
		defer c.end()
		defer func() {
			if p := recover(); p != nil {
				f, ok := p.(fault)
				if !ok {
					panic(p)
				}
				t.Error(f)
			}
		}()
		run(c)
	})
}

// pass lets time go by, with a timer added each second.
func (c *hostCluster) pass(d time.Duration) {
	for end := c.hosts[0].clock.mono + d; c.hosts[0].clock.mono < end; {
		c.add()
		for range 20 {
			c.tick()
		}
	}
}

// alive checks that no host has failed and no replica is stopped.
func (c *hostCluster) alive() {
	for i, r := range c.hosts {
		if err := r.host.failed(); err != nil {
			c.fatalf("node %d has stopped: %v", firstNode+i, err)
		}
		for _, g := range r.host.groups {
			if g.stopped != nil {
				c.fatalf("node %d: group %d is stopped: %v", firstNode+i, g.id, g.stopped)
			}
		}
	}
}

// at is the number of the harness that leads, or of one that follows.
func (c *hostCluster) at(leads bool) int {
	for i, r := range c.hosts {
		if (r == c.leader()) == leads {
			return i
		}
	}
	c.fatalf("there is none that leads: %v", leads)
	return 0
}

// refilled checks that one replica gets another's state, and no other does, and that all are the
// same then.
func (c *hostCluster) refilled(wrong int) {
	c.until("the wrong replica has got another's state", 4*time.Minute, func() bool {
		c.add()
		return c.shard(wrong).refilled > 0 && c.shard(wrong).quarantine == nil
	})
	c.pass(15 * time.Second)
	c.concludes(10 * time.Second)
	for i := range c.hosts {
		if g := c.shard(i); i != wrong && g.refilled > 0 || g.quarantine != nil || g.damaged {
			c.fatalf("node %d: refilled %d times, quarantine %v, damaged %v", firstNode+i, g.refilled, g.quarantine, g.damaged)
		}
		if err := c.shard(i).table.Audit(true); err != nil {
			c.fatalf("node %d: %v", firstNode+i, err)
		}
	}
	c.alive()
}

// TestOneWrongReplicaIsRefilled: a bit flips in the memory of one of three replicas, of the leader
// or of a follower. No right replica stops, the shard goes on, and the wrong one gets the state of
// a right one. The old way was that the leader's word stopped all who differed from it, at each
// start again.
func TestOneWrongReplicaIsRefilled(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(map[bool]string{true: "leader", false: "follower"}[leads], func(t *testing.T) {
			inHostCluster(t, 3, func(c *hostCluster) {
				c.takes(5 * time.Second)
				wrong := c.at(leads)
				c.shard(wrong).table.Strike(table.FaultOfSum, 0, "", 3)
				c.refilled(wrong)
				if leads && c.at(true) == wrong && c.shard(wrong).servingSince < time.Hour {
					t.Error("the wrong one has led on")
				}
				for i := range c.hosts { // whoever starts again meets the comparison in its log
					c.crash(i)
					c.open(i)
					c.takes(20 * time.Second)
				}
				c.alive()
				c.concludes(20 * time.Second)
			})
		})
	}
}

// TestFaultOfWhatNobodyTouches: what changes by itself in a timer that only waits is not in the
// hash, which the changes keep. The replica finds it when it looks through its memory, knows that
// it is the wrong one, and is refilled.
func TestFaultOfWhatNobodyTouches(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for fault := range table.MemoryFault(table.MemoryFaults) {
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprint(fault, leads), func(t *testing.T) {
				inHostCluster(t, 3, func(c *hostCluster) {
					c.takes(5 * time.Second)
					id := c.acked[0]
					c.until("all have it", 5*time.Second, c.followed)
					wrong := c.at(leads)
					if !c.shard(wrong).table.Strike(fault, 1, id, 5) {
						t.Fatal("nothing has happened")
					}
					c.refilled(wrong)
				})
			})
		}
	}
}

// TestOfTwoThatDifferNobodyIsStopped: of two replicas nobody knows which is wrong. Both go on, and
// it is said.
func TestOfTwoThatDifferNobodyIsStopped(t *testing.T) {
	inHostCluster(t, 2, func(c *hostCluster) {
		c.takes(5 * time.Second)
		wrong := c.at(false)
		c.until("all have it", 5*time.Second, c.followed)
		// A fault of the program, say: memory holds what was applied. (The last fence is in the
		// hash, and in no sum.)
		c.shard(wrong).table.Strike(table.FaultOfFence, 0, "", 2)
		c.pass(30 * time.Second)
		c.alive()
		for i, r := range c.hosts {
			if g := c.shard(i); g.quarantine != nil || !g.compare.differs || !strings.Contains(r.log.String(), "replicas have different states") {
				t.Errorf("node %d: quarantine %v, differs %v", firstNode+i, g.quarantine, g.compare.differs)
			}
		}
		c.takes(5 * time.Second)
	})
}

// TestOfTwoTheOneWhoseMemoryFailsIsRefilled: there it is known.
func TestOfTwoTheOneWhoseMemoryFailsIsRefilled(t *testing.T) {
	for _, leads := range []bool{true, false} {
		inHostCluster(t, 2, func(c *hostCluster) {
			c.takes(5 * time.Second)
			c.until("all have it", 5*time.Second, c.followed)
			c.pass(15 * time.Second) // they have heard of each other's states
			wrong := c.at(leads)
			c.shard(wrong).table.Strike(table.FaultOfSlot, 1, c.acked[0], 5)
			c.refilled(wrong)
		})
	}
}

// TestBuildWithAnotherHash: a build that makes another hash of the same states is alone with it.
// It leads nothing; those of the other build go on, and none of them is taken for wrong.
func TestBuildWithAnotherHash(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		other := c.at(true)
		var last *table.Table
		c.after = func() {
			if g := c.shard(other); g != nil && g.table != last {
				g.table.Strike(table.FaultOfHash, 0, "", 6)
				last = g.table
			}
		}
		c.pass(time.Minute)
		elected := 0
		for _, r := range c.hosts {
			elected -= r.observer.elected
		}
		c.pass(2 * time.Minute)
		for _, r := range c.hosts {
			elected += r.observer.elected
		}
		if elected > 0 {
			t.Errorf("%d elections in two minutes: the leadership goes round", elected)
		}
		for i := range c.hosts {
			if g := c.shard(i); i != other && (g.quarantine != nil || g.refilled > 0) {
				t.Errorf("node %d: quarantine %v, refilled %d times", firstNode+i, g.quarantine, g.refilled)
			}
		}
		c.alive()
		c.takes(10 * time.Second)
		if c.leader() == c.hosts[other] {
			t.Error("the one that is alone with its states leads")
		}
	})
}

// TestLeaderWhoseStateIsRightAgainLeads: a leader in quarantine has told another to lead, which
// does not take over. When its state is right again it goes on by itself.
func TestLeaderWhoseStateIsRightAgainLeads(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		g := c.shard(c.at(true))
		g.enterQuarantine(errors.New("a test"))
		g.transferee, g.transferSent, g.transferUntil = c.shard(c.at(false)).replica, true, g.w.now.Mono+handOverLimit
		g.leaveQuarantine()
		c.until("it serves", 10*time.Second, g.serves)
		c.takes(5 * time.Second)
	})
}

// TestWordOfOneVoterIsNoMajority: a group that is on its way from one node to another has one voter
// for a while. What that one says does not make the state of another wrong: it may be the wrong
// one.
func TestWordOfOneVoterIsNoMajority(t *testing.T) {
	inHostCluster(t, 2, func(c *hostCluster) {
		c.takes(5 * time.Second)
		g, other := c.shard(0), c.shard(1).replica
		g.store.conf = &pb.ConfState{Voters: []uint64{other}, Learners: []uint64{g.replica}}
		own := g.ownPoint()
		said := own
		said.hash++
		g.compare.note(g.replica, own)
		g.compare.note(other, said)
		g.judge(own.index)
		if g.quarantine != nil || !g.compare.differs {
			t.Errorf("quarantine %v, differs %v", g.quarantine, g.compare.differs)
		}
	})
}

// TestMemoryFaultOfOneThatIsAlone: the process ends, as its disk has the right state and nobody
// else has it; the next one reads that.
func TestMemoryFaultOfOneThatIsAlone(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Hour)
	want := r.timer("a")
	if !r.table().Strike(table.FaultOfSlot, 1, "a", 7) {
		t.Fatal("nothing has happened")
	}
	r.pass(2 * scrubEach)
	if err := r.failure(); !errors.Is(err, ErrMemoryFault) {
		t.Fatalf("after a minute: %v", err)
	}
	r.restart()
	if got := r.timer("a"); got == nil || got.DueMs != want.DueMs {
		t.Errorf("after a restart: %+v, want %+v", got, want)
	}
}

// TestNoSnapshotOfDamagedMemory: what memory has changed by itself does not get into a snapshot,
// which would be all that is left when the log before it is gone.
func TestNoSnapshotOfDamagedMemory(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("a", time.Hour)
		if !r.table().Strike(table.FaultOfSlot, 1, "a", 7) {
			t.Fatal("nothing has happened")
		}
		g := r.host.groups[1]
		g.scrubAt = 1 << 62 // the walk would find it first
		g.wantSnapshot = true
		r.pass(time.Second)
		if g.files.newest != 0 || len(r.snapshotFiles(1)) != 0 {
			t.Errorf("there is a snapshot of entry %d: %v", g.files.newest, r.snapshotFiles(1))
		}
		if err := r.failure(); !errors.Is(err, ErrMemoryFault) {
			t.Errorf("the host goes on: %v", err)
		}
	})
}

// TestRefillReplacesSnapshots: the snapshots that a replica wrote while its state was wrong may be
// wrong too. They go as soon as one of the right state is there, and nothing is left of the stream.
func TestRefillReplacesSnapshots(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		wrong := c.at(false)
		// A fault of the program, say: what is in a snapshot is what is in memory.
		c.shard(wrong).table.Strike(table.FaultOfFence, 0, "", 2)
		for range 2 {
			c.shard(wrong).wantSnapshot = true
			c.pass(2 * time.Second)
		}
		had := c.hosts[wrong].snapshotFiles(1)
		if len(had) < 2 {
			t.Fatalf("it has the snapshots %v", had)
		}
		c.refilled(wrong)
		for _, s := range c.hosts[wrong].snapshotFiles(1) {
			if slices.Contains(had, s) {
				t.Errorf("snapshot %v is of the wrong state", s)
			}
		}
		if g := c.shard(wrong); g.files.suspect != 0 || g.files.newest == 0 || g.files.older != g.files.newest {
			t.Errorf("suspect up to %d, newest %d, older %d", g.files.suspect, g.files.newest, g.files.older)
		}
		list, err := c.hosts[wrong].fs.ReadDir("data/snapshots/refill")
		if err != nil || len(list) > 0 {
			t.Errorf("files of the stream are left: %v, %v", list, err)
		}
		c.crash(wrong)
		c.open(wrong)
		c.concludes(20 * time.Second)
		c.pass(30 * time.Second)
		if g := c.shard(wrong); g.refilled > 0 || g.quarantine != nil {
			t.Errorf("after a restart it is wrong again: refilled %d times", g.refilled)
		}
	})
}

// TestMemoryFaultOfTheOnlyOneThatHasTheLog: a leader's memory fails while another could take over;
// that one goes down, and the third lacks entries that are in no log in memory any more. The
// leader's process ends, as its disk has them, and the next one serves (I14). Found by the
// simulator.
func TestMemoryFaultOfTheOnlyOneThatHasTheLog(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.until("all have it", 5*time.Second, c.followed)
		c.pass(15 * time.Second) // they have heard of each other's states
		wrong := c.at(true)
		other, behind := (wrong+1)%3, (wrong+2)%3
		c.away[behind] = true
		for range 60 { // more than a leader keeps in memory for who is away
			c.takes(5 * time.Second)
		}
		g := c.shard(wrong)
		g.wantSnapshot = true
		c.pass(2 * time.Second)
		if first, _ := g.store.FirstIndex(); first <= c.shard(behind).applied+1 {
			t.Fatalf("the log in memory begins at %d; the one that is behind has %d: the test is about nothing", first, c.shard(behind).applied)
		}
		c.crash(other)
		g.table.Strike(table.FaultOfSlot, 1, c.acked[0], 5)
		g.memoryFailed()
		c.away[behind] = false
		c.tell()
		c.mayEnd = ErrMemoryFault
		c.until("the process ends", time.Minute, func() bool { return c.ended != nil })
		c.mayEnd = nil
		c.open(wrong)
		c.takes(20 * time.Second)
		c.open(other)
		c.concludes(20 * time.Second)
		c.alive()
	})
}

// TestWhoIsRightAgainTakesOver: a replica was wrong when the states were compared last, and is
// right since, as its process has begun anew or it has got another's state. A leader whose memory
// fails gives the scheduler to it, or gets its state, before anybody could compare again: that
// wants a leader that serves (I14). Found by the simulator.
func TestWhoIsRightAgainTakesOver(t *testing.T) {
	for _, name := range []string{"restart", "refill"} {
		t.Run(name, func(t *testing.T) {
			inHostCluster(t, 3, func(c *hostCluster) {
				c.takes(5 * time.Second)
				c.until("all have it", 5*time.Second, c.followed)
				leads := c.at(true)
				wrong, third := (leads+1)%3, (leads+2)%3
				g := c.shard(leads)
				c.shard(wrong).table.Strike(table.FaultOfSum, 0, "", 3)
				c.until("the leader knows who is wrong", time.Minute, func() bool { c.add(); return g.isWrong(c.shard(wrong).replica) })
				if name == "restart" {
					c.crash(wrong)
					c.open(wrong)
				} else {
					c.until("it has got another's state", time.Minute, func() bool { return c.shard(wrong).refilled > 0 })
				}
				c.until("all have the same", 5*time.Second, c.followed)
				if !g.serves() || !g.isWrong(c.shard(wrong).replica) {
					t.Fatal("the states were compared meanwhile: the test is about nothing")
				}
				g.table.Strike(table.FaultOfSlot, 1, c.acked[0], 5)
				g.memoryFailed()
				if g.quarantine == nil {
					t.Fatal("the leader is not in quarantine: the test is about nothing")
				}
				c.away[third] = true
				c.until("the shard is served", 8*time.Second, func() bool { return c.leader() != nil })
				c.takes(5 * time.Second)
				c.away[third] = false
				c.pass(time.Minute)
				c.concludes(20 * time.Second)
				c.alive()
			})
		})
	}
}
