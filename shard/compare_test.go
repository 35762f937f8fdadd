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

// inHostCluster runs a test with a cluster of the given number of nodes, all with a replica of
// shard 1.
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

// pass lets time go by and adds a timer each second.
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

// at returns the index of the leader's harness, or of a follower's.
func (c *hostCluster) at(leads bool) int {
	for i, r := range c.hosts {
		if (r == c.leader()) == leads {
			return i
		}
	}
	c.fatalf("there is none that leads: %v", leads)
	return 0
}

// refilled checks that only the wrong replica is refilled from another one, and that all states are
// equal afterwards.
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

// TestOneWrongReplicaIsRefilled: a bit flips in the memory of one of three replicas, the leader or
// a follower. No correct replica stops, the shard goes on, and the wrong replica is refilled from a
// correct one. An earlier design trusted the leader's hash and stopped every replica that differed
// from it, again at each start.
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
				for i := range c.hosts { // a restarted replica finds the comparison in its log
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

// TestFaultOfWhatNobodyTouches: a bit that flips in a waiting timer does not show in the state
// hash, which only changes update. The replica finds the fault when it scrubs its memory, knows
// that its own state is wrong, and is refilled.
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

// TestOfTwoThatDifferNobodyIsStopped: if two replicas differ, neither is known to be the wrong one.
// Both go on, and the difference is reported.
func TestOfTwoThatDifferNobodyIsStopped(t *testing.T) {
	inHostCluster(t, 2, func(c *hostCluster) {
		c.takes(5 * time.Second)
		wrong := c.at(false)
		c.until("all have it", 5*time.Second, c.followed)
		// This stands for a program error: the memory matches the applied entries. (The last fence
		// is part of the hash, and of no checksum.)
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

// TestOfTwoTheOneWhoseMemoryFailsIsRefilled: a memory fault shows which of two replicas is wrong.
func TestOfTwoTheOneWhoseMemoryFailsIsRefilled(t *testing.T) {
	for _, leads := range []bool{true, false} {
		inHostCluster(t, 2, func(c *hostCluster) {
			c.takes(5 * time.Second)
			c.until("all have it", 5*time.Second, c.followed)
			c.pass(15 * time.Second) // they have exchanged their state hashes
			wrong := c.at(leads)
			c.shard(wrong).table.Strike(table.FaultOfSlot, 1, c.acked[0], 5)
			c.refilled(wrong)
		})
	}
}

// TestBuildWithAnotherHash: a replica on a build with another state hash differs from all others.
// It does not lead. The others go on, and none of them is considered wrong.
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

// TestLeaderWhoseStateIsRightAgainLeads: a quarantined leader has asked a transferee to take over,
// and the transferee does not. Once its state is correct again, the leader serves again by itself.
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

// TestWordOfOneVoterIsNoMajority: a group that moves from one node to another has one voter for a
// while. Its hash alone does not prove another replica wrong: the voter may be the wrong one.
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

// TestMemoryFaultOfOneThatIsAlone: the process ends, because only its own disk has the correct
// state. The next process recovers from there.
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

// TestNoSnapshotOfDamagedMemory: damaged memory is not written to a snapshot. The snapshot would be
// the only copy once the log before it is deleted.
func TestNoSnapshotOfDamagedMemory(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("a", time.Hour)
		if !r.table().Strike(table.FaultOfSlot, 1, "a", 7) {
			t.Fatal("nothing has happened")
		}
		g := r.host.groups[1]
		g.scrubAt = 1 << 62 // the scrubber would find it first
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

// TestRefillReplacesSnapshots: snapshots that a replica wrote while its state was wrong may be
// wrong too. They are deleted as soon as one of the correct state exists, and nothing is left of
// the transfer.
func TestRefillReplacesSnapshots(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		wrong := c.at(false)
		// This stands for a program error: the snapshot matches the memory.
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

// TestMemoryFaultOfTheOnlyOneThatHasTheLog: a leader's memory fails while another replica could
// take over. Then that replica fails, and the third lacks entries that no log in memory has any
// more. The leader's process ends, because its disk has them, and the next process serves (I14).
// Found by the simulator.
func TestMemoryFaultOfTheOnlyOneThatHasTheLog(t *testing.T) {
	inHostCluster(t, 3, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.until("all have it", 5*time.Second, c.followed)
		c.pass(15 * time.Second) // they have exchanged their state hashes
		wrong := c.at(true)
		other, behind := (wrong+1)%3, (wrong+2)%3
		c.away[behind] = true
		for range 60 { // more entries than a leader keeps in memory for an absent replica
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

// TestWhoIsRightAgainTakesOver: a replica was wrong at the last comparison and has been corrected
// since, by a restart or a refill. A leader with a memory fault hands leadership over to it, or is
// refilled from it, without another comparison: a comparison needs a leader that serves (I14).
// Found by the simulator.
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
