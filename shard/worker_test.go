package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
)

// TestTouchedBetweenTurns: work that a group gets between two turns is done in the next turn, as is
// work that it gets within a turn. The simulator's planned stops touched groups between turns, and
// those groups were never processed again.
func TestTouchedBetweenTurns(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	call := r.one()
	if n := r.host.StepDrain(); n != 1 {
		t.Fatalf("%d calls are in flight, want 1", n)
	}
	call.answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	if n := r.host.StepDrain(); n != 0 {
		t.Errorf("%d calls are in flight, want none", n)
	}
}

// touching touches a group again when one of its entries is applied, at the end of a turn's time.
type touching struct{ again func() }

func (t touching) Record(timer.ShardID, uint64, []table.HistoryEvent) { t.again() }

// TestTouchedTwiceInATurn: a group that has had its time in a turn, and is touched again after that
// is over, is not late: it would come before the others in the next turn, and again after that.
// Found by the simulator, seed 1000144.
func TestTouchedTwiceInATurn(t *testing.T) {
	var r *hostHarness
	visited, late := 0, false
	r = newHostHarness(t, func(c *Config) {
		c.History = touching{again: func() {
			g := r.host.group(1)
			if visited++; visited == 1 {
				g.w.budget.over = true
				g.w.touch(g)
			}
		}}
	})
	r.add("a", 0)
	r.one().answer(200)
	for range 10 {
		r.turn()
		late = late || r.host.group(1).turn.late
	}
	if visited == 0 || late {
		t.Errorf("applied %d times; late: %t", visited, late)
	}
}

// slowClock is that of a machine on which the time of a turn is over whenever it is looked at.
type slowClock struct{ *fakeClock }

func (c slowClock) Mono() time.Duration { return c.mono + 2*turnTime }

// TestOthersDoNotWaitForAHerd: timers of one instant, each to a receiver of its own, do not hold up
// another topic's in any shard, however little time a turn has.
func TestOthersDoNotWaitForAHerd(t *testing.T) {
	const shards, herd = 4, 4_000
	r := newHostHarness(t, func(c *Config) { c.Shards, c.Clock, c.MaxQueued = shards, slowClock{c.Clock.(*fakeClock)}, 1<<20 })
	r.topic(2, nil)
	r.topicsChanged()
	r.calls.auto = 200
	instant := r.clock.wallMs + 60_000
	for id := timer.ShardID(1); id <= shards; id++ {
		for i := range herd {
			spec := &timer.Spec{DueMs: instant}
			spec.Callback.URL = fmt.Sprintf("http://receiver-%d-%d/", id, i)
			if _, err := r.submit(id, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: spec}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.submit(id, timer.Command{Kind: timer.Add, Topic: 2, ID: "other", Spec: &timer.Spec{DueMs: instant + 5}}); err != nil {
			t.Fatal(err)
		}
	}
	r.runIdle()
	r.step(time.Minute + 10*time.Millisecond)
	others, calls, within := 0, 0, 0
	for turns := 1; r.busy(); turns++ {
		r.turn()
		for _, c := range r.calls.take() {
			if calls++; c.Topic.ID == 2 {
				others, within = others+1, turns
			}
		}
	}
	if calls != shards*(herd+1) || others != shards || within > 8 {
		t.Errorf("%d calls, %d of them the other topic's, within %d turns", calls, others, within)
	}
}

// workingClock is one that moves by half a millisecond whenever a turn looks how long it has taken.
type workingClock struct {
	*fakeClock
	moves *bool
}

func (c workingClock) Mono() time.Duration {
	if *c.moves {
		if c.mono += time.Millisecond / 2; c.mono%time.Millisecond == 0 {
			c.wallMs++
		}
	}
	return c.mono
}

// TestHeldCallsStartWithinATurn: a call that is leased begins when it is due, though the turn is not
// over: another shard is busy with timers of one instant.
func TestHeldCallsStartWithinATurn(t *testing.T) {
	const herd = 4_000
	moves := false
	r := newHostHarness(t, func(c *Config) {
		c.Shards, c.Clock, c.MaxQueued = 2, workingClock{c.Clock.(*fakeClock), &moves}, 1<<20
	})
	r.topic(2, nil)
	r.topicsChanged()
	r.calls.auto = 200
	instant := r.clock.wallMs + 60_000
	add := func(id timer.ShardID, topic timer.TopicID, name string, dueMs int64) {
		if _, err := r.submit(id, timer.Command{Kind: timer.Add, Topic: topic, ID: name, Spec: &timer.Spec{DueMs: dueMs}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range herd {
		add(1, 1, fmt.Sprint(i), instant)
	}
	for i := range 10 {
		add(2, 2, fmt.Sprint("other", i), instant+5+int64(i))
	}
	r.runIdle()
	r.step(time.Minute)
	moves = true
	others, longest := 0, time.Duration(0)
	for r.clock.wallMs < instant+20 {
		before := r.clock.mono
		r.turn()
		longest = max(longest, r.clock.mono-before)
		for _, c := range r.calls.take() {
			if c.Topic.ID == 2 {
				others++
			}
		}
		if due := min(max(0, int(r.clock.wallMs-instant-4)), 10); others != due {
			t.Errorf("%d ms after the instant %d calls have begun at the end of a turn, want %d", r.clock.wallMs-instant, others, due)
		}
	}
	if longest < turnTime || longest > 2*turnTime {
		t.Errorf("the longest turn took %v", longest)
	}
}

// TestTurnOfManyShardsIsBounded: after a turn's time only some shards do their least. The others have
// their turns: all timers are called.
func TestTurnOfManyShardsIsBounded(t *testing.T) {
	const shards, each, most = 200, 100, 4_096
	r := newHostHarness(t, func(c *Config) { c.Shards, c.Clock, c.MaxQueued = shards, slowClock{c.Clock.(*fakeClock)}, 1<<20 })
	r.calls.auto = 200
	instant := r.clock.wallMs + 60_000
	for id := timer.ShardID(1); id <= shards; id++ {
		for i := range each {
			if _, err := r.submit(id, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: instant}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.runIdle()
	r.step(time.Minute + 10*time.Millisecond)
	calls, longest := 0, uint64(0)
	for r.busy() {
		before := r.host.Effort().Steps
		r.turn()
		longest = max(longest, r.host.Effort().Steps-before)
		calls += len(r.calls.take())
	}
	if calls != shards*each || longest > most {
		t.Errorf("%d calls of %d, at most %d steps in a turn", calls, shards*each, longest)
	}
}

// TestLeasesThatAwaitTheirCommit: a herd has few leases on their way to disk, so that another
// topic's are not behind many. All are called in the end.
func TestLeasesThatAwaitTheirCommit(t *testing.T) {
	const herd = 1_000
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	for i := range herd {
		if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: r.clock.wallMs + 60_000}}); err != nil {
			t.Fatal(err)
		}
	}
	r.runIdle()
	r.step(time.Minute)
	r.freeze = true
	for range 10 {
		r.turn()
	}
	if n := r.scheduler().View.Inspect().Proposed; n < 100 || n > 200 {
		t.Errorf("%d leases wait for their commit", n)
	}
	r.audit()
	r.freeze = false
	r.runIdle()
	if n := len(r.calls.take()); n != herd {
		t.Errorf("%d calls, want %d", n, herd)
	}
	r.audit()
}

// TestQuietWorkerWakesWithRaftsTicks: an idle worker wakes ten times a second, and twice as often
// while it writes. It starts at any time.
func TestQuietWorkerWakesWithRaftsTicks(t *testing.T) {
	r := makeHarness(t, memfs.New(), nil)
	r.clock.mono += 37 * time.Millisecond
	r.mustOpen()
	wakes := func(d time.Duration) (n int) {
		for end := r.clock.mono + d; ; n++ {
			r.runIdle()
			if r.clock.mono >= end {
				return n
			}
			r.step(max(r.host.workers[0].untilWake(), time.Millisecond))
		}
	}
	wakes(quietAfter + time.Second)
	if n := wakes(10 * time.Second); n < 100 || n > 110 {
		t.Errorf("an idle worker wakes %d times in 10 s", n)
	}
	r.add("far", 3_600_000)
	if n := wakes(quietAfter); n < 10 || n > 15 {
		t.Errorf("a worker that has just written wakes %d times in %s", n, quietAfter)
	}
}
