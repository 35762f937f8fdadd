package shard

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// dividingCluster is three nodes whose shard 1 is divided, with clients that add timers.
type dividingCluster struct {
	*hostCluster
	t       *testing.T
	added   map[string]bool // acknowledged
	open    []*pending
	n       int
	calls   map[string]int // started, by id and attempt
	longest time.Duration  // that an add waited
	begun   map[*pending]time.Duration
}

func withDividing(t *testing.T, run func(d *dividingCluster)) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if f := recover(); f != nil {
				if fault, ok := f.(fault); ok {
					t.Fatal(fault.error)
				}
				panic(f)
			}
		}()
		d := &dividingCluster{t: t, added: map[string]bool{}, calls: map[string]int{}, begun: map[*pending]time.Duration{}}
		d.hostCluster = newHostClusterOf(t, 3, []int{0, 1, 2}, func(_ int, cfg *Config) {
			if d.hostCluster != nil && d.shards == 2 {
				cfg.Shards = 2
			}
		})
		defer d.end()
		run(d)
	})
}

// grow lets all nodes know of the second shard.
func (d *dividingCluster) grow() {
	d.shards = 2
	d.placeAll()
}

// divide gives shard 1 a child.
func (d *dividingCluster) divide() {
	d.child = Assignment{Group: 2, Epoch: 1, From: 1, Members: slices.Clone(d.row.Members)}
	d.placeAll()
}

// leads returns the node that leads a shard; nil: none does.
func (d *dividingCluster) leads(id timer.ShardID) *hostHarness {
	for i, r := range d.hosts {
		if r.host != nil && !d.away[i] && int(id) < len(r.host.all()) && r.host.Leads(id) {
			return r
		}
	}
	return nil
}

// addSome has clients add a timer each, by the number of shards that they know.
func (d *dividingCluster) addSome(of, timers int, delay time.Duration) {
	for range timers {
		d.n++
		name := fmt.Sprint("t", d.n)
		id := d.hosts[0].shardOfID(name, of)
		if r := d.leads(id); r != nil {
			cmd := timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: r.clock.wallMs + delay.Milliseconds()}}
			if p, err := r.submit(id, cmd); err == nil {
				d.open = append(d.open, p)
				d.begun[p] = r.clock.mono
			}
		}
	}
}

// answers collects the answers.
func (d *dividingCluster) answers() {
	now := d.hosts[0].clock.mono
	d.open = slices.DeleteFunc(d.open, func(p *pending) bool {
		if !p.answered() {
			return false
		}
		if p.op.err == nil && p.op.result.Code == timer.Created {
			d.added[p.cmd.ID] = true
			d.longest = max(d.longest, now-d.begun[p])
		}
		return true
	})
}

// work lets time pass while clients add timers.
func (d *dividingCluster) work(of int, rounds int) {
	for range rounds {
		d.addSome(of, 2, time.Hour)
		d.tick()
		d.answers()
	}
}

// finish waits until both shards go on by themselves, and checks that nothing is lost, and that all
// replicas agree.
func (d *dividingCluster) finish() {
	d.t.Helper()
	for i := range d.hosts {
		if d.hosts[i].host == nil {
			d.open1(i)
		}
		d.away[i] = false
	}
	d.placeAll()
	d.until("the child is settled", time.Minute, func() bool { d.answers(); return d.child.Settled })
	d.placeAll()
	d.until("the parent has dropped what left", time.Minute, func() bool {
		d.answers()
		for _, r := range d.hosts {
			for _, id := range []timer.ShardID{1, 2} {
				if t := r.host.shard(id).table; t.DividedOf() != 2 || t.Leaving() || r.host.group(id).raft == nil {
					return false
				}
			}
		}
		return d.leads(1) != nil && d.leads(2) != nil
	})
	for range 40 { // calls end, and followers get what the leaders have
		d.tick()
	}
	// A spare voter writes up to spareFor later than the others: an entry of this very moment, as of
	// the shard's own timer, may not be in its log yet.
	d.until("the followers have what the leaders have", 2*time.Second, d.agree)
	d.answers()
	for name := range d.added {
		id := d.hosts[0].shardOfID(name, 2)
		for _, other := range []timer.ShardID{1, 2} {
			if has := d.leads(other).host.shard(other).table.Read(1, name) != nil; has != (other == id) {
				d.t.Errorf("shard %d has %s: %v; it belongs to %d", other, name, has, id)
			}
		}
	}
	for _, id := range []timer.ShardID{1, 2} {
		for _, r := range d.hosts {
			g := r.host.group(id)
			if err := shardOf(g).table.Audit(false); err != nil && !shardOf(g).scheduler.Leads() {
				d.t.Error(err)
			}
		}
	}
}

// agree reports whether all replicas of both shards have the state of their leader. The state of a
// replica at its leader's entry is the leader's, or the test fails.
func (d *dividingCluster) agree() bool {
	all := true
	for _, id := range []timer.ShardID{1, 2} {
		r := d.leads(id)
		if r == nil {
			return false
		}
		lead := r.host.group(id)
		for i, r := range d.hosts {
			g := r.host.group(id)
			if g.applied != lead.applied {
				all = false
			} else if g.machine.hash() != lead.machine.hash() {
				d.t.Fatalf("shard %d of node %d has state %x at entry %d, its leader %x", id, firstNode+i, g.machine.hash(), g.applied, lead.machine.hash())
			}
		}
	}
	return all
}

func (d *dividingCluster) open1(i int) { d.hostCluster.open(i) }

// TestClusterDivides: three nodes divide a shard under load.
func TestClusterDivides(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		d.work(1, 20)
		d.grow()
		d.work(2, 5)
		d.divide()
		d.work(2, 40)
		d.work(1, 10) // clients that do not know of it
		d.finish()
		if len(d.added) < 100 {
			t.Errorf("%d timers were added", len(d.added))
		}
		if d.longest > 500*time.Millisecond {
			t.Errorf("an add waited %s", d.longest)
		}
	})
}

// TestClusterDividesWithAKillAtEachStep: whichever node ends, or all at once, and at whichever step
// of the division, the others and the next processes go on.
func TestClusterDividesWithAKillAtEachStep(t *testing.T) {
	every := 3
	if testing.Short() {
		every = 17
	}
	steps := 0
	for kill := -1; kill < steps; kill += every {
		for victim := range 4 {
			nodes := []int{victim}
			if victim == 3 {
				nodes = []int{0, 1, 2}
			}
			withDividing(t, func(d *dividingCluster) {
				d.work(1, 6)
				d.grow()
				begin := d.steps
				due := kill >= 0
				d.after = func() {
					if due && d.steps-begin >= kill {
						due = false
						for _, i := range nodes {
							d.crash(i)
						}
					}
				}
				d.divide()
				d.work(2, 15)
				if kill < 0 {
					steps = d.steps - begin
				}
				for _, i := range nodes {
					if d.hosts[i].host == nil {
						d.open1(i)
					}
				}
				d.work(2, 10)
				d.finish()
				if t.Failed() {
					t.Fatalf("kill of nodes %v at step %d", nodes, kill)
				}
			})
		}
	}
	t.Logf("%d steps", steps)
}

// TestClusterDividesWhileANodeIsAway: a follower that was away learns the child's state from the
// leader, if the parent's was swept meanwhile; and so does one that comes in the middle.
func TestClusterDividesWhileANodeIsAway(t *testing.T) {
	for _, back := range []string{"divided", "swept"} {
		withDividing(t, func(d *dividingCluster) {
			d.work(1, 10)
			away := 2
			if d.leader() == d.hosts[2] {
				away = 1
			}
			d.away[away] = true
			d.grow()
			d.divide()
			d.until("the child is settled", time.Minute, func() bool { return d.child.Settled })
			if back == "swept" {
				d.placeAll()
				d.until("the parent is swept", time.Minute, func() bool {
					r := d.leads(1)
					return r != nil && !r.host.shard(1).table.Leaving()
				})
			}
			d.work(2, 10)
			d.finish()
		})
	}
}

// run20 has twenty calls run, and returns how often each is started.
func (d *dividingCluster) run20() map[string]int {
	d.t.Helper()
	started := map[string]int{}
	for _, r := range d.hosts {
		r.calls.onStart = func(c *fakeCall) { started[c.Job.ID]++ }
	}
	d.addSome(1, 20, 0)
	d.until("the calls run", 5*time.Second, func() bool { d.answers(); return len(started) == 20 })
	return started
}

// calledOnce checks that each of these timers was called once, and is done.
func (d *dividingCluster) calledOnce(started map[string]int) {
	d.t.Helper()
	for name, n := range started {
		id := d.hosts[0].shardOfID(name, d.shards)
		if m := shardOf(d.leads(id).host.resolve(id)).table.Read(1, name); n != 1 || m == nil || m.State != timer.Done || m.Attempts != 1 {
			d.t.Errorf("%s was called %d times, and is %+v", name, n, m)
		}
	}
}

// TestClusterMakesNoCallAgain: calls run while the shard is divided and its leader changes; they
// end, and none is made twice.
func TestClusterMakesNoCallAgain(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started := d.run20()
		old := d.leader()
		g := old.host.group(1)
		g.transfer.begin(g, ReplicaID(firstNode+1, 1))
		d.until("another leads", 5*time.Second, func() bool { r := d.leader(); return r != nil && r != old })
		d.grow()
		d.divide()
		d.until("the child is settled", time.Minute, func() bool { return d.child.Settled })
		for range 20 {
			d.tick()
		}
		for _, r := range d.hosts {
			for _, c := range slices.Clone(r.calls.running) {
				c.answer(200)
			}
		}
		d.finish()
		d.calledOnce(started)
	})
}

// divideWithoutLeader cuts the leader off while it makes twenty calls. The others divide the shard,
// and sweep it.
func (d *dividingCluster) divideWithoutLeader() (started map[string]int, old int) {
	d.t.Helper()
	started = d.run20()
	old = slices.Index(d.hosts, d.leader())
	d.away[old] = true
	d.until("another leads", 10*time.Second, func() bool { return d.leader() != nil })
	d.grow()
	d.divide()
	d.until("the child is settled", 10*time.Second, func() bool { return d.child.Settled })
	d.placeAll()
	d.until("the parent is swept", 10*time.Second, func() bool {
		r := d.leads(1)
		return r != nil && !r.host.shard(1).table.Leaving()
	})
	return started, old
}

// forgetLog has clients add timers, and the others save shard 1, until the node that is away needs
// a snapshot.
func (d *dividingCluster) forgetLog(away int) {
	d.t.Helper()
	d.until("the log is forgotten", 10*time.Second, func() bool {
		d.addSome(2, 2, time.Hour)
		d.answers()
		forgotten := true
		for i, r := range d.hosts {
			if g := r.host.group(1); i != away {
				if g.w.snapshot == nil {
					g.w.beginSnapshot(g)
				}
				first, _ := g.store.FirstIndex()
				forgotten = forgotten && first > d.hosts[away].host.group(1).applied+1
			}
		}
		return forgotten
	})
}

// TestCallsOfANodeThatWasAwayAreReported: calls run on a leader that is cut off. The others divide
// the shard and sweep it, so that the node learns of that from a snapshot; but the child has not
// waited the leases out yet. What the node reports then reaches the child. Found by the simulator.
func TestCallsOfANodeThatWasAwayAreReported(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started, old := d.divideWithoutLeader()
		d.forgetLog(old)
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		d.finish()
		if d.hosts[old].host.group(1).snapshots.installs == 0 {
			t.Error("it got no snapshot: the test is about nothing")
		}
		d.calledOnce(started)
	})
}

// TestCallsOfARemovedReplicaAreReported: as above, and the shards are moved away from the node
// before it is back. It never applies the division, and reports to the shard that has the timer by
// the number of shards. Found by the simulator.
func TestCallsOfARemovedReplicaAreReported(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started, old := d.divideWithoutLeader()
		for _, row := range []*Assignment{&d.row, &d.child} {
			row.Epoch, row.Settled = 2, false
			row.Members = slices.DeleteFunc(slices.Clone(row.Members), func(m Member) bool { return m.Node == firstNode+uint64(old) })
		}
		d.placeAll()
		d.until("both are moved", 10*time.Second, func() bool { return d.row.Settled && d.child.Settled })
		d.away[old] = false
		d.placeAll()
		d.until("the node's replica is removed", 10*time.Second, func() bool { return d.hosts[old].host.group(1).raft == nil })
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		for range 60 {
			d.tick()
		}
		d.calledOnce(started)
	})
}

// divideAgain divides shard 1 a second time, while the leader of the first calls is away. Shard 2
// is yet to be divided: it has the timers of shard 4, too.
func (d *dividingCluster) divideAgain() (started map[string]int, old int) {
	d.t.Helper()
	started, old = d.divideWithoutLeader()
	d.shards = 4
	d.later = Assignment{Group: 3, Epoch: 1, From: 1, Members: slices.Clone(d.row.Members)}
	d.placeAll()
	d.until("shard 1 is divided again, and swept", 10*time.Second, func() bool {
		r := d.leads(1)
		return r != nil && r.host.shard(1).table.DividedOf() == 4 && !r.host.shard(1).table.Leaving()
	})
	d.forgetLog(old)
	d.away[old] = false
	d.placeAll()
	d.until("the node knows", 10*time.Second, func() bool { return d.hosts[old].host.shard(1).table.DividedOf() == 4 })
	if d.hosts[old].host.group(1).snapshots.installs == 0 {
		d.t.Error("it got no snapshot: the test is about nothing")
	}
	return started, old
}

// TestCallsAreReportedToTheShardBeforeItsDivision: a leader is cut off while its calls run, and
// learns of two divisions at once. Some of the timers will belong to shard 4, which there is not
// yet: their leases and the ends of their calls go to shard 2, which has them. Found by the
// simulator (growing 1040414).
func TestCallsAreReportedToTheShardBeforeItsDivision(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started, old := d.divideAgain()
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		for range 60 {
			d.tick()
		}
		d.calledOnce(started)
	})
}

// TestLeaderKnowsItsCallsBeforeADivision: as above, and the node leads shard 2 while the calls run.
// It knows of them, and makes none again.
func TestLeaderKnowsItsCallsBeforeADivision(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started, old := d.divideAgain()
		leads := d.hosts[old].host.group(2).serves
		d.until("the node leads shard 2", 20*time.Second, func() bool {
			if g := d.leads(2).host.group(2); g.transfer.to == 0 && !leads() {
				g.transfer.begin(g, ReplicaID(firstNode+uint64(old), 1))
			}
			return leads()
		})
		for range 60 {
			d.tick()
		}
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		for range 60 {
			d.tick()
		}
		d.calledOnce(started)
	})
}

// TestCallsOfARemovedReplicaBeforeTheDivision: a leader's replica is removed while its calls run.
// Its node knows that some of the timers are to go to another shard, and reports to that; but nodes
// lack memory, and it is not divided from the first one. The nodes of that know.
func TestCallsOfARemovedReplicaBeforeTheDivision(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started := d.run20()
		old := slices.Index(d.hosts, d.leader())
		d.away[old] = true
		d.until("another leads", 10*time.Second, func() bool { return d.leader() != nil })
		d.row.Epoch, d.row.Settled = 2, false
		d.row.Members = slices.DeleteFunc(slices.Clone(d.row.Members), func(m Member) bool { return m.Node == firstNode+uint64(old) })
		for _, r := range d.hosts {
			r.host.cfg.Shortages = &fakeShortages{tight: []uint64{firstNode, firstNode + 1, firstNode + 2}}
		}
		d.placeAll()
		d.until("it is moved", 10*time.Second, func() bool { return d.row.Settled })
		d.grow()
		d.divide()
		d.away[old] = false
		d.placeAll()
		d.until("the node's replica is removed", 10*time.Second, func() bool { return d.hosts[old].host.group(1).raft == nil })
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		for range 60 {
			d.tick()
		}
		if of := d.leader().host.shard(1).table.DividedOf(); of != 0 {
			t.Error("it is divided: the test is about nothing")
		}
		d.calledOnce(started)
	})
}

// TestCallsOfAReplicaThatCameBack: a leader's replica is removed while its calls run. The shard is
// divided twice, and the node gets a replica of the last child, and then one of the shard again: so
// it learns of both divisions at once, and had no table by which to tell where a timer has gone.
func TestCallsOfAReplicaThatCameBack(t *testing.T) {
	withDividing(t, func(d *dividingCluster) {
		started := d.run20()
		old := slices.Index(d.hosts, d.leader())
		all := slices.Clone(d.row.Members)
		move := func(row *Assignment, members []Member) {
			row.Epoch, row.Settled, row.Members = row.Epoch+1, false, members
			d.placeAll()
			d.until("it is moved", 10*time.Second, func() bool { return row.Settled })
			d.placeAll()
		}
		swept := func(of int) {
			d.until("shard 1 is divided, and swept", 10*time.Second, func() bool {
				r := d.leads(1)
				return r != nil && r.host.shard(1).table.DividedOf() == of && !r.host.shard(1).table.Leaving()
			})
		}
		back := func(row *Assignment) []Member {
			return append(slices.Clone(row.Members), Member{Node: firstNode + uint64(old), Replica: ReplicaID(firstNode+uint64(old), row.Epoch+1)})
		}
		move(&d.row, slices.DeleteFunc(all, func(m Member) bool { return m.Node == firstNode+uint64(old) }))
		d.until("the node's replica is removed", 10*time.Second, func() bool { return d.hosts[old].host.group(1).raft == nil })
		d.grow()
		d.divide()
		d.until("shard 2 is settled", 10*time.Second, func() bool { return d.child.Settled })
		swept(2)
		d.shards = 4
		d.later = Assignment{Group: 3, Epoch: 1, From: 1, Members: slices.Clone(d.row.Members)}
		d.placeAll()
		d.until("shard 3 is settled", 10*time.Second, func() bool { return d.later.Settled })
		swept(4)
		move(&d.later, back(&d.later))
		move(&d.row, back(&d.row))
		d.until("the node knows", 10*time.Second, func() bool { return d.hosts[old].host.shard(1).table.DividedOf() == 4 })
		for _, c := range slices.Clone(d.hosts[old].calls.running) {
			c.answer(200)
		}
		for range 60 {
			d.tick()
		}
		d.calledOnce(started)
	})
}
