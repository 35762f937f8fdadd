package route

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

func fire(n int) *timer.Command {
	return &timer.Command{Kind: timer.Fire, Topic: 1, ID: "a", IfMatch: uint32(n)}
}

// bubble is a test under synctest, in which a property must not ask for the deadline that a
// *testing.T has.
type bubble struct{ *testing.T }

type network = func(ctx context.Context, c fakeCall, deliver func() ([]byte, error)) ([]byte, error)

// TestRouteOne: the cost of one operation in calls and time, asked of node 1 of three for shard 2,
// which node 2 leads.
func TestRouteOne(t *testing.T) {
	lose := func(err error, n int) network {
		return func(_ context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			if n--; n >= 0 {
				return nil, err
			}
			return deliver()
		}
	}
	for name, c := range map[string]struct {
		set   func(*fakeCluster)
		err   error
		calls int
		took  time.Duration
		runs  int // how often it was executed
	}{
		"local":        {set: func(c *fakeCluster) { c.leaders[2] = 1 }, runs: 1},
		"remote":       {set: func(c *fakeCluster) {}, calls: 1, runs: 1},
		"not sent":     {set: func(c *fakeCluster) { c.onCall = lose(errNotSentFake, 1) }, calls: 3, took: 10 * time.Millisecond, runs: 1},
		"never sent":   {set: func(c *fakeCluster) { c.onCall = lose(errNotSentFake, 1000) }, err: timer.ErrNoLeader, calls: 18, took: 1450 * time.Millisecond},
		"broken":       {set: func(c *fakeCluster) { c.onCall = lose(errBrokenFake, 1) }, err: timer.ErrUnknown, calls: 1},
		"answer cut":   {set: func(c *fakeCluster) { c.onCall = lose(nil, 1) }, err: timer.ErrUnknown, calls: 1},
		"nobody leads": {set: func(c *fakeCluster) { c.leaders[2] = 0 }, err: timer.ErrNoLeader, calls: 18, took: 1450 * time.Millisecond},
		"named one is dead": {set: func(c *fakeCluster) {
			// 2 is asked first and says 3; by then 2 is elected.
			c.leaders[2], c.nodes[2].thinks = 0, 3
			c.onCall = func(_ context.Context, call fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
				c.mu.Lock()
				if call.to == 3 {
					c.leaders[2] = 2
					defer c.mu.Unlock()
					return nil, errNotSentFake
				}
				c.mu.Unlock()
				return deliver()
			}
			c.nodes[1].thinks = 2
		}, calls: 4, took: 30 * time.Millisecond, runs: 1},
		"no such shard":        {set: func(c *fakeCluster) { c.shards = 1 }, err: timer.ErrNoLeader, calls: 18, took: 1450 * time.Millisecond},
		"overloaded":           {set: func(c *fakeCluster) { c.nodes[2].answer = timer.ErrOverloaded }, err: timer.ErrOverloaded, calls: 1},
		"low disk":             {set: func(c *fakeCluster) { c.nodes[2].answer = timer.ErrLowDisk }, err: timer.ErrLowDisk, calls: 1},
		"leader stops":         {set: func(c *fakeCluster) { c.nodes[2].answer = timer.ErrStopped }, err: timer.ErrUnknown, calls: 1},
		"this node stops":      {set: func(c *fakeCluster) { c.leaders[2], c.nodes[1].answer = 1, timer.ErrStopped }, err: timer.ErrStopped},
		"this node overloaded": {set: func(c *fakeCluster) { c.leaders[2], c.nodes[1].answer = 1, timer.ErrOverloaded }, err: timer.ErrOverloaded},
		"silent": {set: func(c *fakeCluster) {
			c.onCall = func(ctx context.Context, _ fakeCall, _ func() ([]byte, error)) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}, err: timer.ErrUnknown, calls: 1, took: answerIn},
		"moved on the way": {set: func(c *fakeCluster) {
			c.onCall = func(_ context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
				c.mu.Lock()
				c.leaders[2] = 3
				c.mu.Unlock()
				return deliver()
			}
		}, calls: 2, runs: 1}, // the node that was asked names the new leader: no time passes
		"elected later": {set: func(c *fakeCluster) {
			c.leaders[2] = 0
			time.AfterFunc(time.Second, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.leaders[2] = 1
			})
		}, calls: 13, took: 1050 * time.Millisecond, runs: 1},
	} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, all=%v", name, all), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeCluster(3, 3)
					c.set(f)
					o := timer.Op{Shard: 2, Command: fire(7), Brief: true}
					begin := time.Now()
					if all {
						list := []timer.Op{o}
						f.nodes[1].Router.DoAll(t.Context(), list)
						o = list[0]
					} else {
						o.Result, o.Err = f.nodes[1].Router.Do(t.Context(), 2, o.Command, true)
					}
					if o.Err != c.err || c.err == nil && (o.Result.Code != timer.OK || o.Result.Seq != 7) {
						t.Errorf("%+v, %v, want %v", o.Result, o.Err, c.err)
					}
					if took := time.Since(begin); took != c.took || took > 2*time.Second {
						t.Errorf("took %s, want %s", took, c.took)
					}
					if len(f.calls) != c.calls || len(f.executed[2]) != c.runs {
						t.Errorf("%d calls, want %d; executed %d times, want %d", len(f.calls), c.calls, len(f.executed[2]), c.runs)
					}
					for _, call := range f.calls {
						if call.from != 1 {
							t.Errorf("node %d passed a request on to %d", call.from, call.to)
						}
					}
				})
			})
		}
	}
}

// TestDecider: the node that has decided a request is known, until this node leads itself.
func TestDecider(t *testing.T) {
	f := newFakeCluster(3, 3)
	r := f.nodes[1].Router
	want := func(id timer.ShardID, node uint64) {
		t.Helper()
		if got := r.Decider(id); got != node {
			t.Errorf("shard %d: node %d decided, want %d", id, got, node)
		}
	}
	if _, err := r.Do(t.Context(), 2, fire(1), true); err != nil {
		t.Fatal(err)
	}
	want(1, 0)
	want(2, 2)
	want(3, 0)
	if _, err := r.Timer(t.Context(), 3, 1, "a"); err != nil {
		t.Fatal(err)
	}
	want(3, 3)
	f.leaders[2] = 3
	if _, err := r.Do(t.Context(), 2, fire(1), true); err != nil {
		t.Fatal(err)
	}
	want(2, 3)
	f.nodes[3].answer = timer.ErrUnknown
	f.leaders[2] = 2
	f.nodes[2].answer = timer.ErrOverloaded
	if _, err := r.Do(t.Context(), 2, fire(1), true); err == nil {
		t.Fatal("no error")
	}
	want(2, 3) // nothing was decided
	f.leaders[2] = 1
	want(2, 0)
	want(4, 0)
	want(0, 0)
}

// TestRouteAll: one call for each other node, all at once, and none for shards that are led here.
func TestRouteAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 6)
		f.onCall = func(_ context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			after(100 * time.Millisecond)
			return deliver()
		}
		ops := make([]timer.Op, 60)
		for i := range ops {
			ops[i] = timer.Op{Shard: timer.ShardID(1 + i%6), Command: fire(i)}
		}
		begin := time.Now()
		f.nodes[1].Router.DoAll(t.Context(), ops)
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if len(f.calls) != 2 {
			t.Errorf("calls are %v", f.calls)
		}
		for i, o := range ops {
			if o.Err != nil || o.Result.Seq != uint64(i) {
				t.Errorf("operation %d has %+v, %v", i, o.Result, o.Err)
			}
		}
	})
}

// TestRouteContext: a request whose client has gone is not tried again.
func TestRouteContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 3)
		f.leaders[2] = 0
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := f.nodes[1].Router.Do(ctx, 2, fire(1), true); err != timer.ErrNoLeader || time.Since(begin) != 15*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// TestRouteOvertaken: an operation that was refused while a later one of its shard was done would
// come out of order: it fails.
func TestRouteOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(2, 2)
		ops := []timer.Op{
			{Shard: 2, Command: fire(1), Err: timer.ErrNoLeader},
			{Shard: 2, Command: fire(2), Result: timer.Result{Code: timer.OK}},
			{Shard: 2, Command: fire(3), Err: timer.NotLeaderError{}},
			{Shard: 1, Command: fire(4), Err: timer.NotLeaderError{}},
			{Shard: 1, Command: fire(5), Err: timer.ErrOverloaded},
		}
		f.nodes[1].finish(t.Context(), ops, f.nodes[1].tasks.Now(), true)
		var got []uint32
		for _, cmd := range append(f.executed[2], f.executed[1]...) {
			got = append(got, cmd.IfMatch)
		}
		if want := []uint32{3, 4}; !slices.Equal(got, want) || ops[0].Err != timer.ErrNoLeader || ops[2].Err != nil || ops[3].Err != nil || ops[4].Err != timer.ErrOverloaded {
			t.Errorf("executed %v, want %v: %+v", got, want, ops)
		}
	})
}

// TestRouteChaos: with any messages lost and any leaders, every operation has one answer that is
// true, none is executed twice, those of one id are executed in order, and it is over within two
// seconds.
func TestRouteChaos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			f := newFakeCluster(rapid.IntRange(1, 4).Draw(rt, "nodes"), rapid.IntRange(1, 6).Draw(rt, "shards"))
			f.rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			f.moves = rapid.IntRange(0, 80).Draw(rt, "moves")
			f.faults = rapid.IntRange(0, 40).Draw(rt, "faults")
			ops := make([]timer.Op, rapid.IntRange(1, 30).Draw(rt, "operations"))
			for i := range ops {
				ops[i] = timer.Op{Shard: timer.ShardID(1 + f.rand.IntN(f.shards)), Command: fire(i), Brief: true}
				ops[i].Command.ID = fmt.Sprint(ops[i].Shard, "-", f.rand.IntN(2))
			}
			begin := time.Now()
			if len(ops) == 1 {
				ops[0].Result, ops[0].Err = f.nodes[1].Router.Do(t.Context(), ops[0].Shard, ops[0].Command, true)
			} else {
				f.nodes[1].Router.DoAll(t.Context(), ops)
			}
			if took := time.Since(begin); took > answerIn {
				rt.Fatalf("took %s", took)
			}
			checkExecuted(rt, f, ops)
		})
	})
}

func checkExecuted(t *rapid.T, f *fakeCluster, ops []timer.Op) {
	times := make([]int, len(ops))
	for id, list := range f.executed {
		last := map[string]int{}
		for _, cmd := range list {
			n := int(cmd.IfMatch)
			times[n]++
			if before, ok := last[cmd.ID]; ok && before > n {
				t.Errorf("shard %d: %d of %s was executed after %d", id, n, cmd.ID, before)
			}
			last[cmd.ID] = n
		}
	}
	for i, o := range ops {
		switch o.Err {
		case nil:
			if times[i] != 1 || o.Result.Code != timer.OK || o.Result.Seq != uint64(i) {
				t.Errorf("operation %d answered %+v and was executed %d times", i, o.Result, times[i])
			}
		case timer.ErrUnknown:
			if times[i] > 1 {
				t.Errorf("operation %d is unknown and was executed %d times", i, times[i])
			}
		case timer.ErrNoLeader, timer.ErrOverloaded:
			if times[i] != 0 {
				t.Errorf("operation %d answered %v and was executed %d times", i, o.Err, times[i])
			}
		default:
			t.Errorf("operation %d answered %v", i, o.Err)
		}
	}
}

// TestRouteReads: a read is tried again, also when its answer was lost; each try of a timer has its
// own time.
func TestRouteReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 3)
		f.timers[2] = []*timer.Timer{{ID: "a", Topic: 1, State: timer.Scheduled}}
		var lost atomic.Int32 // a listing asks several nodes at once
		f.onCall = func(ctx context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			switch lost.Add(1) {
			case 1:
				return nil, errBrokenFake
			case 2:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return deliver()
		}
		begin := time.Now()
		got, err := f.nodes[1].Router.Timer(t.Context(), 2, 1, "a")
		if err != nil || got == nil || got.ID != "a" || time.Since(begin) >= answerIn {
			t.Errorf("%+v, %v after %s", got, err, time.Since(begin))
		}
		if got, err := f.nodes[2].Router.Timer(t.Context(), 2, 1, "b"); got != nil || err != nil {
			t.Errorf("a timer that is not there is %+v, %v", got, err)
		}
		for _, c := range []struct{ says, want error }{
			{timer.ErrOverloaded, timer.ErrOverloaded}, {timer.ErrStopped, timer.ErrNoLeader}, {timer.ErrUnknown, timer.ErrNoLeader},
		} {
			f.nodes[2].answer = c.says
			begin := time.Now()
			if _, err := f.nodes[1].Router.Timer(t.Context(), 2, 1, "a"); err != c.want || time.Since(begin) > task.RetryTime {
				t.Errorf("the leader says %v: %v after %s", c.says, err, time.Since(begin))
			}
			if _, err := f.nodes[1].Router.List(t.Context(), &timer.Query{Limit: 5}); err != c.want {
				t.Errorf("the leader says %v: list %v", c.says, err)
			}
		}
	})
}

// TestRouteCounts: each node is asked once, and again when leaders moved meanwhile.
func TestRouteCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calm := newFakeCluster(3, 9)
		counts := func() (timer.Counts, error) {
			list, err := calm.nodes[1].Router.Counts(t.Context(), []timer.TopicID{1, 5})
			if err != nil {
				return timer.Counts{}, err
			}
			if len(list) != 2 || list[1].Scheduled != 5*list[0].Scheduled {
				t.Errorf("two topics in one go: %+v", list)
			}
			return list[0], nil
		}
		if c, err := counts(); err != nil || c.Scheduled != 1<<10-2 || c.OldestOverdueMs != 9 || len(calm.calls) != 2 {
			t.Errorf("%+v, %v in %d calls", c, err, len(calm.calls))
		}
		counted := make(chan bool)
		calm.onCall = func(_ context.Context, call fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			if call.to == 2 {
				defer func() { counted <- true }()
			} else if <-counted; len(calm.calls) == 4 {
				calm.mu.Lock()
				calm.leaders[2] = 3 // it was counted by node 2, and is again
				calm.mu.Unlock()
			}
			return deliver()
		}
		if c, err := counts(); err != nil || c.Scheduled != 1<<10-2 || len(calm.calls) != 6 {
			t.Errorf("a shard moved: %+v, %v in %d calls", c, err, len(calm.calls))
		}
		calm.onCall, calm.nodes[1].blind = nil, true
		if c, err := counts(); err != nil || c.Scheduled != 1<<10-2 {
			t.Errorf("without knowing who leads: %+v, %v", c, err)
		}
		calm.nodes[3].answer = timer.ErrOverloaded
		if _, err := counts(); err != timer.ErrOverloaded {
			t.Errorf("a share is refused: %v", err)
		}
	})
}

// TestRouteCountsChaos: while leaders move each shard is counted once, or nothing is said.
func TestRouteCountsChaos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			f := newFakeCluster(rapid.IntRange(1, 4).Draw(rt, "nodes"), rapid.IntRange(1, 6).Draw(rt, "shards"))
			f.rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			f.moves = rapid.IntRange(0, 30).Draw(rt, "moves")
			f.faults = rapid.IntRange(0, 10).Draw(rt, "faults")
			c, err := f.nodes[1].Router.Counts(t.Context(), []timer.TopicID{1})
			switch {
			case err == nil && c[0].Scheduled != int64(1)<<(f.shards+1)-2:
				rt.Fatalf("of %d shards these were counted: %b", f.shards, c[0].Scheduled)
			case err != nil && !errors.Is(err, timer.ErrNoLeader):
				rt.Fatal(err)
			}
		})
	})
}

// TestServeHostile: a request that cannot be read, or asks for an object that is not here, has an
// answer that says so.
func TestServeHostile(t *testing.T) {
	f := newFakeCluster(2, 2)
	for method := methodOps; method <= methodCounts; method++ {
		answer, err := f.nodes[1].Serve(t.Context(), 2, method, []byte{99})
		testkit.Must(t, err)
		if err := wire.DecodeAnswers(answer, nil); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("method %d: %v", method, err)
		}
	}
	if _, err := f.nodes[1].Serve(t.Context(), 2, 200, nil); err == nil {
		t.Error("a method that is not known is served")
	}
	for _, id := range []timer.ShardID{0, 2, 3, 1 << 31} {
		answer, _ := f.nodes[1].Serve(t.Context(), 2, methodTimer, wire.AppendTimerRequest(nil, id, 1, "a"))
		if _, err := wire.DecodeTimer(answer); !errors.Is(err, timer.ErrNoLeader) {
			t.Errorf("shard %d: %v", id, err)
		}
	}
}

// TestServeMixed: of a list a node decides the operations on shards that it leads and refuses the
// rest, in the order of the list.
func TestServeMixed(t *testing.T) {
	f := newFakeCluster(2, 4)
	ops := make([]timer.Op, 8)
	for i := range ops {
		ops[i] = timer.Op{Shard: timer.ShardID(1 + i%4), Command: fire(i), Brief: true}
	}
	answer, err := f.nodes[1].Serve(t.Context(), 2, methodOps, wire.AppendOps(nil, ops))
	testkit.Must(t, err)
	testkit.Must(t, wire.DecodeAnswers(answer, ops))
	for i, o := range ops {
		if i%2 == 0 && (o.Err != nil || o.Result.Seq != uint64(i)) || i%2 == 1 && o.Err != error(timer.NotLeaderError{Leader: 2}) {
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.Err)
		}
	}
}

// TestRouteAwaits: a node that will soon know the leader is asked, and the one that it then names
// is asked next; no other is.
func TestRouteAwaits(t *testing.T) {
	for _, waiting := range []uint64{1, 2} {
		c := newFakeCluster(3, 1)
		c.leaders[1] = 3
		c.nodes[1].blind, c.nodes[2].blind = true, true
		c.nodes[waiting].waits = true
		if _, err := c.nodes[1].Router.Do(t.Context(), 1, fire(1), true); err != nil {
			t.Fatal(err)
		}
		want := []fakeCall{{1, 3, methodOps}}
		if waiting == 2 {
			want = []fakeCall{{1, 2, methodOps}, {1, 3, methodOps}}
		}
		if len(c.executed[1]) != 1 || !slices.Equal(c.calls, want) {
			t.Errorf("node %d waits: executed %d times, calls %v, want %v", waiting, len(c.executed[1]), c.calls, want)
		}
	}
}

// instantHost leads the shards that it is told to and answers at once, without memory.
type instantHost struct {
	*fakeNode
	leads bool
}

func (h instantHost) Leads(timer.ShardID) bool            { return h.leads }
func (h instantHost) Takes(timer.ShardID) bool            { return h.leads }
func (h instantHost) Leader(timer.ShardID) (uint64, bool) { return 2, true }
func (h instantHost) DoAll([]timer.Op)                    {}
func (h instantHost) Do(timer.ShardID, *timer.Command, bool) (timer.Result, error) {
	return timer.Result{Code: timer.OK}, nil
}

// straight calls another router without a network.
type straight struct{ there *Router }

func (s straight) Call(ctx context.Context, _ uint64, method uint8, body []byte) ([]byte, error) {
	return s.there.Serve(ctx, 1, method, body)
}

func newInstant(self uint64, leads bool, other *Router) *Router {
	begin := time.Now()
	return New(Config{Self: self, Host: instantHost{leads: leads}, Cluster: nobodyElse{shards: 1}, Peers: straight{other}, NotSent: errNotSentFake,
		Tasks: task.NewGoroutines(func() time.Duration { return time.Since(begin) })})
}

func TestRouteLocalTakesNoMemory(t *testing.T) {
	r := newInstant(1, true, nil)
	cmd, ops := fire(1), []timer.Op{{Shard: 1, Command: fire(1)}, {Shard: 1, Command: fire(2)}}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Do(t.Context(), 1, cmd, true); err != nil {
			t.Fatal(err)
		}
		r.DoAll(t.Context(), ops)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRoute is the cost of routing one operation, both ends together, without network and
// host.
func BenchmarkRoute(b *testing.B) {
	for _, local := range []bool{true, false} {
		b.Run(fmt.Sprintf("local=%v", local), func(b *testing.B) {
			here := newInstant(1, local, newInstant(2, true, nil))
			cmd := fire(1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := here.Do(b.Context(), 1, cmd, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRouteWalk: a walk goes on at the next leader, and calls that fail are made again from where
// the step began.
func TestRouteWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 3)
		for i := range 40 {
			f.timers[2] = append(f.timers[2], &timer.Timer{ID: fmt.Sprint(i), Version: uint32(i)})
		}
		n := 0
		f.onCall = func(_ context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			f.mu.Lock()
			if n++; n%5 == 0 {
				f.leaders[2] = 2 + uint64(n/5)%2
			}
			broken := n%4 == 0
			f.mu.Unlock()
			if broken {
				_, _ = deliver()
				return nil, errBrokenFake
			}
			return deliver()
		}
		met := 0
		for steps := []timer.Step{{Shard: 2}}; !steps[0].At.Done(); {
			testkit.Must(t, f.nodes[1].Router.Walk(t.Context(), f.shards, &timer.Query{Limit: 3}, steps))
			for _, m := range steps[0].Refs {
				if m.ID != fmt.Sprint(met) {
					t.Fatalf("%s after %d others", m.ID, met)
				}
				met++
			}
		}
		if met != 40 {
			t.Errorf("%d of 40", met)
		}
	})
}

// TestWalkTakesStepsAtOnce: a node with many shards does not take their steps one after the other:
// each waits until the shard's leader is confirmed. They find no more than was asked for.
func TestWalkTakesStepsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 64
		f := newBulkCluster(shards)
		steps := make([]timer.Step, shards)
		for i := range steps {
			id := timer.ShardID(1 + i)
			steps[i].Shard = id
			for n := range 100 {
				f.add(id, fmt.Sprintf("%d-%d", id, n), 1000)
			}
		}
		f.takes = 2 * time.Millisecond
		router := f.nodes[1]
		begin, met := time.Now(), 0
		for done := false; !done; {
			testkit.Must(t, router.Walk(t.Context(), shards, &timer.Query{Limit: 4000}, steps))
			found := 0
			done = true
			for i := range steps {
				found += len(steps[i].Refs)
				done = done && steps[i].At.Done()
			}
			if found > 4000 {
				t.Fatalf("%d timers, 4000 were asked for", found)
			}
			met += found
		}
		if took := time.Since(begin); met != 100*shards || took > 5*shards/stepsAtOnce*f.takes/2 {
			t.Errorf("%d of %d timers in %v", met, 100*shards, took)
		}
	})
}
