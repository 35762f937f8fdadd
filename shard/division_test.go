package shard

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"carillon/timer"
)

// dividing is a host of one node whose shard 1 is to be divided.
type dividing struct {
	*hostHarness
	child Assignment
}

func newDividing(t *testing.T, run func(d *dividing)) {
	bubbleHarness(t, nil, func(r *hostHarness) {
		run(&dividing{hostHarness: r, child: Assignment{Group: 2, Epoch: 1, From: 1, Members: []Member{{Node: 7, Replica: ReplicaID(7, 1)}}}})
	})
}

// shardOfID is the shard that a timer of topic 1 belongs to, if there are so many.
func (h *hostHarness) shardOfID(id string, of int) timer.ShardID {
	return timer.ShardOf(h.topics[1], id, of)
}

// begin divides the shard, up to where the child serves.
func (d *dividing) begin() {
	d.t.Helper()
	d.host.Grow(2, 1)
	d.host.Place([]Assignment{d.child})
	for n := 0; !d.host.group(2).serving; n++ {
		if n == 100 {
			d.t.Fatalf("the child does not serve\n%s", d.log.String())
		}
		d.pass(20 * time.Millisecond)
	}
}

// divideUnknown divides the shard in a host that does not know of the child, as a follower does
// that has the leader's entry before its node has grown.
func (d *dividing) divideUnknown() {
	d.t.Helper()
	s := d.host.shard(1)
	s.division.child = d.child
	for range 10 {
		d.host.Place([]Assignment{d.child})
		d.pass(100 * time.Millisecond)
	}
	if s.table.DividedOf() != 2 {
		d.t.Fatal("it is not divided: the test is about nothing")
	}
}

// look has the leader look at all slots, and make no entry yet.
func (d *dividing) look() *timerShard {
	d.host.Grow(2, 1)
	s := d.host.shard(1)
	s.division.rows = []Assignment{d.child}
	s.division.child = d.child
	for !s.division.ready {
		s.division.lookForHalf()
	}
	return s
}

// finishDivision lets the parent drop what has left.
func (d *dividing) finishDivision() {
	d.t.Helper()
	d.child.Settled = true
	d.host.Place([]Assignment{d.child})
	for n := 0; d.host.shard(1).table.Leaving(); n++ {
		if n == 100 {
			d.t.Fatal("the parent still has the child's timers")
		}
		d.pass(20 * time.Millisecond)
	}
}

// reopen kills the process and starts another one, which knows of both shards.
func (d *dividing) reopen() {
	d.t.Helper()
	d.kill()
	d.change = func(cfg *Config) { cfg.Shards = 2 }
	d.rows = append(soleRows(2, 7), d.child)
	if err := d.open(); err != nil {
		d.t.Fatal(err)
	}
	d.host.Grow(2, 1)
	d.host.Place([]Assignment{d.child})
	d.pass(100 * time.Millisecond)
}

// readAt reads a timer as a client does that asks a shard.
func (d *dividing) readAt(id timer.ShardID, name string) (found *timer.Timer, err error) {
	d.t.Helper()
	d.blocking(func() { found, err = d.host.Timer(id, 1, name) })
	return found, err
}

// wants checks that each timer is in its shard, and in no other, and that a listing of both shards
// has each once.
func (d *dividing) wants(names []string, states map[string]timer.State) {
	d.t.Helper()
	found := map[string]int{}
	all := 0
	for _, id := range []timer.ShardID{1, 2} {
		d.blocking(func() {
			list := listOf(d.t, d.host, id, timer.Query{Topic: 1, States: 0xff, Limit: 1000})
			for _, m := range list {
				found[m.ID]++
			}
			all += len(list)
			refs, _, err := d.host.Walk(id, &timer.Query{Topic: 1, States: 0xff, Limit: 1000}, timer.ScanCursor{})
			if err != nil || len(refs) != len(list) {
				d.t.Errorf("a walk of shard %d has %d timers, a listing %d: %v", id, len(refs), len(list), err)
			}
		})
	}
	for _, name := range names {
		m, err := d.readAt(d.shardOfID(name, 2), name)
		switch {
		case err != nil || m == nil:
			d.t.Errorf("%s is gone: %v", name, err)
		case states[name] != 0 && m.State != states[name]:
			d.t.Errorf("%s is in state %d, want %d", name, m.State, states[name])
		}
		if found[name] != 1 {
			d.t.Errorf("%s is listed %d times", name, found[name])
		}
	}
	if len(found) != len(names) {
		d.t.Errorf("%d timers are listed, want %d", len(found), len(names))
	}
	d.blocking(func() { // both shards in one listing
		page, led, err := d.host.List([]timer.ShardID{1, 2}, &timer.Query{Topic: 1, States: 0xff, Limit: 1000})
		if err != nil || len(led) != 2 || len(page.Timers) != all {
			d.t.Errorf("a listing of shards %v has %d timers, want %d: %v", led, len(page.Timers), all, err)
		}
	})
}

// TestShardDivides: a shard is divided while calls run. Each timer is where clients look for it at
// every moment, numbers and versions stay, no call is made again, and a start after any step goes
// on.
func TestShardDivides(t *testing.T) {
	for _, crash := range []string{"", "before", "divided", "settled", "swept"} {
		t.Run("crash "+crash, func(t *testing.T) {
			newDividing(t, func(d *dividing) {
				var names []string
				seqs := map[string]uint64{}
				origins := map[string]timer.ShardID{}
				states := map[string]timer.State{}
				add := func(at timer.ShardID, name string, delay time.Duration) {
					t.Helper()
					p, err := d.submit(at, timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: d.clock.wallMs + delay.Milliseconds()}})
					if err != nil {
						t.Fatal(err)
					}
					for n := 0; !p.answered(); n++ {
						if n > 40 {
							t.Fatalf("no answer for %s", name)
						}
						d.pass(50 * time.Millisecond)
					}
					if p.op.err != nil || p.op.result.Code != timer.Created {
						t.Fatalf("add %s: code %d, %v", name, p.op.result.Code, p.op.err)
					}
					names = append(names, name)
					seqs[name] = p.op.result.Seq
					if origins[name] = 1; d.host.shard(1).table.DividedOf() != 0 {
						origins[name] = d.shardOfID(name, 2)
					}
				}
				for i := range 40 {
					add(1, fmt.Sprint("later", i), time.Hour)
				}
				for i := range 10 {
					add(1, fmt.Sprint("now", i), 0)
				}
				d.pass(50 * time.Millisecond)
				calls := d.calls.take()
				if len(calls) != 10 {
					t.Fatalf("%d calls", len(calls))
				}
				step := func(name string) {
					t.Helper()
					if name == crash {
						d.reopen()
						d.pass(5 * time.Second)
						for _, c := range d.calls.take() { // of the leases of a process that has ended
							c.answer(200)
						}
						calls = nil
					}
				}
				d.host.Grow(2, 1)
				d.wants(names, nil)
				for i := range 4 { // of nodes that know of the second shard
					name := fmt.Sprint("early", i)
					add(d.shardOfID(name, 2), name, time.Hour)
				}
				step("before")
				d.begin()
				step("divided")
				for i := range 4 { // of nodes that do not know yet
					name := fmt.Sprint("late", i)
					add(1, name, time.Hour)
				}
				d.pass(time.Second)
				if n := len(d.calls.take()); n != 0 {
					t.Errorf("%d calls are made again", n)
				}
				for _, c := range calls {
					c.answer(200)
				}
				d.pass(time.Second)
				for i := range 10 {
					states[fmt.Sprint("now", i)] = timer.Done
				}
				d.wants(names, states)
				if d.host.shard(1).table.Swept() {
					t.Error("the parent drops what has left before all replicas of the child have it")
				}
				step("settled")
				d.finishDivision()
				step("swept")
				d.wants(names, states)
				for name, seq := range seqs {
					m, _ := d.readAt(d.shardOfID(name, 2), name)
					if m == nil || m.Seq != seq || m.Version != 1 {
						t.Errorf("%s is %+v, want number %d", name, m, seq)
						continue
					}
					if cmp.Or(m.Origin, d.shardOfID(name, 2)) != origins[name] {
						t.Errorf("%s has its number from shard %d, want %d", name, m.Origin, origins[name])
					}
				}
				if n := len(d.calls.take()); n != 0 {
					t.Errorf("%d calls are made again", n)
				}
				if n := d.host.StepDrain(); n != 0 {
					t.Errorf("%d leases are left", n)
				}
				d.audit()
			})
		})
	}
}

// TestConsumersLeasesLeaveWithTheirTimers: consumers hold timers while the shard is divided. What
// they say of them reaches the shard that has them; a lease lasts as long as before; and the
// topic's limit counts each once.
func TestConsumersLeasesLeaveWithTheirTimers(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.pulled(func(p *timer.Policy) { p.Concurrency = 12 })
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprint("p", i))
			d.add(names[i], 0)
		}
		d.pass(10 * time.Millisecond)
		pulled := d.pull(12)
		if len(pulled) != 12 || d.host.Held(1) != 12 {
			t.Fatalf("%d are pulled, %d count", len(pulled), d.host.Held(1))
		}
		d.add("more", 0)
		d.begin()
		d.pass(time.Second)
		if n := d.host.Held(1); n != 12 {
			t.Errorf("%d leases count at the limit", n)
		}
		if got := d.pull(5); len(got) != 0 {
			t.Errorf("%d more are pulled, beyond the limit", len(got))
		}
		place := uint64(0)
		says := func(shard timer.ShardID, kind timer.Kind, p timer.PulledTimer) timer.Code {
			t.Helper()
			o, err := d.submitOf(shard, place, timer.Command{Kind: kind, Topic: 1, Claim: &timer.LeaseUpdate{Handle: p.Handle, Seq: p.Timer.Seq, Fence: p.Timer.Fence}})
			if err != nil {
				t.Fatal(err)
			}
			d.runIdle()
			if !o.answered() || o.op.err != nil {
				t.Fatalf("no answer: %v", o.op.err)
			}
			return o.op.result.Code
		}
		var left []timer.PulledTimer
		for i, p := range pulled {
			switch {
			case i < 4: // by the receipt of before
				if code := says(1, timer.AckLease, p); code != timer.OK {
					t.Errorf("an ack of %s: code %d", p.Timer.ID, code)
				}
			default:
				left = append(left, p)
			}
		}
		d.pass(time.Second)
		if n := d.host.Held(1); n != 8 {
			t.Errorf("%d leases count at the limit after 4 acks", n)
		}
		d.finishDivision()
		placed := 0
		for i, p := range left[:4] {
			kind := timer.AckLease
			if i%2 == 0 {
				kind = timer.ExtendLease
			}
			shard := d.shardOfID(p.Timer.ID, 2)
			if shard == 2 { // by a node that knows of one shard only
				placed++
				shard, place = 1, 1+timer.PlaceOf(d.topics[1], p.Timer.ID)%1024
			}
			if code := says(shard, kind, p); code != timer.OK {
				t.Errorf("update %d, of %s: code %d", i, p.Timer.ID, code)
			}
			place = 0
		}
		if placed == 0 {
			t.Error("none has left: the test is about nothing")
		}
		d.pass(20 * time.Second)
		for _, p := range left[4:] {
			if m, _ := d.readAt(d.shardOfID(p.Timer.ID, 2), p.Timer.ID); m == nil || m.State != timer.Leased {
				t.Errorf("%s is %+v before its lease ends", p.Timer.ID, m)
			}
		}
		d.pass(40 * time.Second)
		for _, p := range left[4:] {
			if m, _ := d.readAt(d.shardOfID(p.Timer.ID, 2), p.Timer.ID); m == nil || m.State != timer.Scheduled || m.Attempts != 1 {
				t.Errorf("%s is %+v after its lease has ended", p.Timer.ID, m)
			}
		}
		d.audit()
	})
}

// TestLeasesInTheSecondDoubling: a consumer's ack names the shard that will have its timer. As long
// as that is yet to be divided from a shard that was divided before, this one takes the ack.
func TestLeasesInTheSecondDoubling(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.pulled(func(p *timer.Policy) { p.Concurrency = 20 })
		for i := range 20 {
			d.add(fmt.Sprint("p", i), 0)
		}
		d.pass(10 * time.Millisecond)
		pulled := d.pull(20)
		d.begin()
		d.finishDivision()
		d.host.Grow(4, 2)
		for _, p := range pulled {
			asked := d.shardOfID(p.Timer.ID, 4)
			o, err := d.submit(asked, timer.Command{Kind: timer.AckLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: p.Handle, Seq: p.Timer.Seq, Fence: p.Timer.Fence}})
			if err != nil {
				t.Fatal(err)
			}
			d.pass(100 * time.Millisecond)
			if !o.answered() || o.op.err != nil || o.op.result.Code != timer.OK {
				t.Errorf("an ack of %s at shard %d: answered %v, %v, %v", p.Timer.ID, asked, o.answered(), o.op.result.Code, o.op.err)
			}
		}
	})
}

// TestNoReplicaBeforeTheNodeGrows: a node applies the division before its own copy of the meta
// group's state says that there are more shards, which it stores before its host grows. Until then
// it makes no replica of the child, even if it is given the row: the next start would not know the
// child's records. What it knows of the child's leases waits for the child.
func TestNoReplicaBeforeTheNodeGrows(t *testing.T) {
	newDividing(t, func(d *dividing) {
		for i := range 10 {
			d.add(fmt.Sprint("now", i), 0)
		}
		d.pass(50 * time.Millisecond)
		calls := d.calls.take()
		d.divideUnknown()
		if len(d.host.all()) > 2 && d.host.group(2).raft != nil {
			t.Fatal("there is a replica of the child")
		}
		d.begin()
		d.pass(time.Second)
		for _, c := range calls {
			c.answer(200)
		}
		d.pass(time.Second)
		if n := len(d.calls.take()); n != 0 {
			t.Errorf("%d calls are made again", n)
		}
	})
}

// TestNoAddForAChildThatTheNodeDoesNotKnow: a process that starts with a table that was divided,
// before the node knows that there are more shards, takes no add for the child: it would stay in
// the parent, where nobody looks for it.
func TestNoAddForAChildThatTheNodeDoesNotKnow(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.divideUnknown()
		d.kill()
		if err := d.open(); err != nil {
			t.Fatal(err)
		}
		d.pass(time.Second)
		if d.host.shard(1).table.DividedOf() != 2 || d.host.Shards() != 1 || !d.host.Leads(1) {
			t.Fatal("the node knows of the child, or leads no shard: the test is about nothing")
		}
		for i := range 20 {
			name := fmt.Sprint("late", i)
			o, err := d.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: d.clock.wallMs + 3_600_000}})
			if err != nil {
				t.Fatal(err)
			}
			d.pass(100 * time.Millisecond)
			_, moved := errors.AsType[timer.NotLeaderError](o.op.err)
			switch of := d.shardOfID(name, 2); {
			case !o.answered():
				t.Errorf("%s of shard %d has no answer", name, of)
			case of == 2 && !moved, of == 1 && o.op.err != nil:
				t.Errorf("%s of shard %d: %v, %v", name, of, o.op.result.Code, o.op.err)
			}
		}
	})
}

// TestListingOverADivision: a shard is scanned for its child, and divided before the page is
// copied. The page has no child then, and the caller asks again, rather than a page that lacks its
// timers.
func TestListingOverADivision(t *testing.T) {
	newDividing(t, func(d *dividing) {
		for i := range 20 {
			d.add(fmt.Sprint("a", i), time.Hour)
		}
		d.host.Grow(2, 1)
		l := d.host.newListing([]timer.ShardID{1, 2}, &timer.Query{Topic: 1, States: 0xff, Limit: 1000})
		scan := func(part int) {
			d.blocking(func() {
				d.host.onWorkers(func(w *worker) {
					if r := l.parts[part].read; r.group.w == w && !r.serve(math.MaxInt) {
						t.Error("the scan has not ended")
					}
				})
			})
		}
		scan(1)
		d.begin()
		scan(0)
		led, err := l.answered()
		page, _ := l.page()
		if err != nil || len(led) != 1 || led[0] != 1 {
			t.Errorf("a page of %d timers is of shards %v, want that of shard 1 alone: %v", len(page.Timers), led, err)
		}
	})
}

// TestAnswersNameWhoGaveTheNumber: the number of shards may double between an answer and its
// reader, so each answer itself says which shard gave a timer its number.
func TestAnswersNameWhoGaveTheNumber(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.pulled(func(*timer.Policy) {})
		spec := &timer.Spec{DueMs: d.clock.wallMs}
		named := func(what string, origin timer.ShardID) {
			t.Helper()
			if origin != 1 {
				t.Errorf("%s says that shard %d gave the number, want 1", what, origin)
			}
		}
		for _, kind := range []timer.Kind{timer.Add, timer.Put} { // it makes one, or finds it
			d.blocking(func() {
				r, err := d.host.Do(1, &timer.Command{Kind: kind, Topic: 1, ID: "a", Spec: spec}, false)
				if err != nil || r.Timer == nil {
					t.Errorf("no timer: %+v, %v", r, err)
					return
				}
				named("the answer to a change", r.Timer.Origin)
			})
		}
		if found, err := d.readAt(1, "a"); err == nil {
			named("a read", found.Origin)
		}
		d.blocking(func() {
			for _, found := range listOf(t, d.host, 1, timer.Query{Topic: 1, States: 0xff, Limit: 10}) {
				named("a listing", found.Origin)
			}
			refs, _, _ := d.host.Walk(1, &timer.Query{Topic: 1, States: 0xff, Limit: 10}, timer.ScanCursor{})
			for i := range refs {
				named("a walk", refs[i].Origin)
			}
		})
		d.pass(10 * time.Millisecond)
		pulled := d.pull(1)
		if len(pulled) != 1 {
			t.Fatalf("%d are pulled", len(pulled))
		}
		named("a pull", pulled[0].Timer.Origin)
	})
}

// TestTimersAddedMeanwhileLeave: timers that are added after the leader has looked at the slots,
// and before it proposes the entry, go where they belong.
func TestTimersAddedMeanwhileLeave(t *testing.T) {
	newDividing(t, func(d *dividing) {
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprint("a", i))
			d.add(names[i], time.Hour)
		}
		s := d.look()
		for i := range 20 { // in the entry before
			name := fmt.Sprint("b", i)
			names = append(names, name)
			at := d.shardOfID(name, 2)
			s.waiting = append(s.waiting, &op{shard: s, asked: at, deadline: d.clock.mono + time.Hour,
				cmd: &timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: d.clock.wallMs + 3_600_000}}})
		}
		s.division.ready = false
		s.propose()
		s.division.ready = true
		d.begin()
		d.wants(names, nil)
	})
}

// TestMarksGoWithTheirTimers: slots become free after the leader has looked at them, and others
// take them before the entry is proposed. Each timer goes where it belongs, whose slot it has got.
func TestMarksGoWithTheirTimers(t *testing.T) {
	newDividing(t, func(d *dividing) {
		const long = 1000 * time.Hour
		var names []string
		for i := range 20 {
			name := fmt.Sprint("gone", i)
			d.add(name, long)
			d.do(timer.Command{Kind: timer.Cancel, ID: name})
		}
		s := d.look()
		marked, looked := s.division.half[0], s.division
		s.division.child = Assignment{}
		d.pass(timer.KeptMs*time.Millisecond + time.Minute)
		last := s.table.LastHandle()
		for i := range 20 {
			names = append(names, fmt.Sprint("b", i))
			d.add(names[i], long)
		}
		if marked == 0 || s.table.LastHandle() > last+1 {
			t.Fatalf("marks %x, %d slots of %d: the test is about nothing", marked, s.table.LastHandle(), last)
		}
		s.division = looked // as if it had waited for other entries all the time
		d.begin()
		d.wants(names, nil)
	})
}

// addsRefused checks that an add of a child's timer is refused at once, so that its client asks
// another node.
func (d *dividing) addsRefused() {
	d.t.Helper()
	if d.host.Takes(2) {
		d.t.Error("commands for the child are taken here")
	}
	for i := range 20 {
		name := fmt.Sprint("late", i)
		if d.shardOfID(name, 2) == 1 {
			continue
		}
		for _, asked := range []timer.ShardID{1, 2} {
			o, err := d.submit(asked, timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: d.clock.wallMs + 3_600_000}})
			if err == nil {
				d.pass(time.Millisecond)
				err = o.op.err
			}
			if _, moved := errors.AsType[timer.NotLeaderError](err); !moved {
				d.t.Errorf("an add of %s to shard %d is answered %v", name, asked, err)
			}
		}
	}
}

// TestNobodyWaitsWhereNoChildIsCreated: a command for the child does not wait for a replica that
// will not come.
func TestNobodyWaitsWhereNoChildIsCreated(t *testing.T) {
	elsewhere := []Member{{Node: 8, Replica: ReplicaID(8, 1)}}
	t.Run("the first members are others", func(t *testing.T) {
		newDividing(t, func(d *dividing) {
			d.child.Members = elsewhere
			d.host.Grow(2, 1)
			d.host.Place([]Assignment{d.child})
			for n := 0; d.host.shard(1).table.DividedOf() != 2; n++ {
				if n == 100 {
					t.Fatal("the shard is not divided")
				}
				d.pass(20 * time.Millisecond)
			}
			d.addsRefused()
		})
	})
	t.Run("it was created and moved away", func(t *testing.T) {
		newDividing(t, func(d *dividing) {
			d.begin()
			moved := d.child
			moved.Epoch, moved.Settled, moved.Founders, moved.Members = 2, true, d.child.Members, elsewhere
			d.host.Place([]Assignment{moved})
			d.pass(20 * time.Millisecond)
			if d.host.group(2).raft != nil {
				t.Fatal("the replica is still here")
			}
			d.addsRefused()
		})
	})
}

// TestNoDivisionOnALowDisk: no shard is divided while a voter's disk is low.
func TestNoDivisionOnALowDisk(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.fs.SetFree(int64(d.host.stream.Disk().Limit) - 1)
		d.pass(2 * time.Second)
		d.host.Grow(2, 1)
		d.host.Place([]Assignment{d.child})
		d.pass(5 * time.Second)
		if of := d.host.shard(1).table.DividedOf(); of != 0 {
			t.Error("the shard is divided, though the disk is low")
		}
		if err := d.host.NotReady(true); err != nil {
			t.Errorf("nothing is wrong with the shards, and the node is not ready: %v", err)
		}
		d.fs.SetCapacity(0)
		d.pass(5 * time.Second)
		if !d.host.group(2).serving {
			t.Errorf("there is room, and the child does not serve\n%s", d.log.String())
		}
	})
}

// TestNoDivisionWithoutMemory: no shard is divided while the node of a voter, this one or another,
// has almost used its memory. What is divided already goes on.
func TestNoDivisionWithoutMemory(t *testing.T) {
	for _, other := range []bool{false, true} {
		newDividing(t, func(d *dividing) {
			d.host.cfg.MemoryLimit = 1 << 30
			disks, use := &fakeShortages{}, int64(100<<20)
			d.host.cfg.Shortages, d.host.cfg.MemoryUse = disks, func() int64 { return use }
			lacks := func(lacks bool) {
				disks.tight, use = []uint64{99}, 100<<20
				switch {
				case lacks && other:
					disks.tight = []uint64{99, 7}
				case lacks:
					use = 900 << 20
				}
				d.pass(time.Second)
			}
			lacks(true)
			d.host.Grow(2, 1)
			d.host.Place([]Assignment{d.child})
			d.pass(5 * time.Second)
			if of := d.host.shard(1).table.DividedOf(); of != 0 {
				t.Fatal("the shard is divided, though there is no memory")
			}
			if err := d.host.NotReady(true); err != nil {
				t.Errorf("nothing is wrong with the shards, and the node is not ready: %v", err)
			}
			if _, err := d.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "x", Spec: &timer.Spec{DueMs: d.clock.wallMs + time.Hour.Milliseconds()}}); err != nil {
				t.Errorf("adds have memory: %v", err)
			}
			lacks(false)
			if !d.host.group(2).serving {
				t.Fatalf("there is memory, and the child does not serve\n%s", d.log.String())
			}
			lacks(true)
			d.finishDivision()
		})
	}
}

// TestLookBeginsAgainAfterAWait: where a division waits, its leader looks at the timers from the
// start when it can go on: as many may have come as no turn has time for.
func TestLookBeginsAgainAfterAWait(t *testing.T) {
	newDividing(t, func(d *dividing) {
		s := d.look()
		lacks := &fakeShortages{tight: []uint64{7}}
		d.host.cfg.Shortages = lacks
		d.pass(time.Second)
		if s.division.begun || s.division.ready {
			t.Error("what was looked at before a wait counts after it")
		}
		lacks.tight = nil
		d.host.Place([]Assignment{d.child})
		d.pass(time.Second)
		if !d.host.group(2).serving {
			t.Errorf("there is memory, and the child does not serve\n%s", d.log.String())
		}
	})
}

// TestChildOnAFullDisk: the disk fills as the shard is divided. The new shard is made in less room
// than other snapshots leave; as long as there is too little, the node is not ready.
func TestChildOnAFullDisk(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.pass(2 * time.Second)
		d.fs.SetFree(1) // the disk is looked at once a second
		d.host.Grow(2, 1)
		d.host.Place([]Assignment{d.child})
		d.pass(creationTimeout + 3*time.Second)
		if d.host.shard(1).table.DividedOf() != 2 || d.host.group(2).raft != nil {
			t.Fatal("the shard is not divided, or the child made without room: the test is about nothing")
		}
		var lacks *NoLeaderError
		if err := d.host.NotReady(true); !errors.As(err, &lacks) || lacks.Group != 2 {
			t.Errorf("the new shard's timers wait for long, and the node says %v", err)
		}
		if !d.host.LacksLeader(2, true) {
			t.Error("the new shard lacks no leader")
		}
		d.fs.SetFree(int64(d.host.stream.SnapshotFloor()) / 2)
		d.pass(5 * time.Second)
		if !d.host.group(2).serving {
			t.Errorf("there is room for the child, and it does not serve\n%s", d.log.String())
		}
		if err := d.host.NotReady(true); err != nil {
			t.Errorf("all is well, and the node says %v", err)
		}
	})
}

// TestUnknownChildIsNotAwaitedForEver: a node learns only after it has waited for a while that the
// child is created on other nodes. It is ready then.
func TestUnknownChildIsNotAwaitedForEver(t *testing.T) {
	newDividing(t, func(d *dividing) {
		d.child.Members = []Member{{Node: 8, Replica: ReplicaID(8, 1)}}
		d.look()
		d.host.shard(1).g.w.touch(d.host.group(1))
		d.pass(creationTimeout + time.Second)
		if d.host.shard(1).table.DividedOf() != 2 {
			t.Fatal("the shard is not divided: the test is about nothing")
		}
		if d.host.NotReady(true) == nil {
			t.Error("timers have waited for the child for long, and the node is ready")
		}
		d.host.Place([]Assignment{d.child})
		d.pass(100 * time.Millisecond)
		if err := d.host.NotReady(true); err != nil {
			t.Errorf("the child is on another node, and this one says %v", err)
		}
		d.addsRefused()
	})
}

// TestDividedShardIsSaved: once the cluster does not grow any more, a shard that was divided is
// saved, so that a start does not divide it again. While it grows that waits, because the shard may
// be divided again. Where the growth stands, it does not wait for ever.
func TestDividedShardIsSaved(t *testing.T) {
	for _, grown := range []bool{true, false} {
		newDividing(t, func(d *dividing) {
			for i := range 40 {
				name := fmt.Sprint("later", i)
				d.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: d.clock.wallMs + time.Hour.Milliseconds()}})
			}
			d.pass(100 * time.Millisecond)
			d.begin()
			d.finishDivision()
			d.pass(time.Second)
			parent := d.host.group(1)
			if n := parent.files.Newest.Index; n != 0 {
				t.Fatalf("it was saved with entry %d, while the cluster grows", n)
			}
			if grown {
				d.host.Grow(2, 2)
				d.pass(time.Second)
			} else {
				d.pass(saveDividedAfter)
			}
			if n := parent.files.Newest.Index; n < parent.files.swept || n == 0 {
				t.Fatalf("it was divided by entry %d, and saved with %d", parent.files.swept, n)
			}
			saved := parent.files.Newest.Index
			d.pass(2 * saveDividedAfter)
			if n := parent.files.Newest.Index; n != saved {
				t.Errorf("it was saved with entries %d and %d", saved, n)
			}
			d.reopen()
			if n := d.host.group(1).files.swept; n != 0 {
				t.Errorf("the start divided it again, by entry %d", n)
			}
		})
	}
}
