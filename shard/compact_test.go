package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// line adds the given number of timers of one key, due a minute from now in order, and lets them
// come due while their topic is paused.
func line(t *testing.T, timers int) *hostHarness {
	t.Helper()
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = 200_000 })
	pause(r, true)
	due := r.clock.wallMs + 60_000
	for i := range timers {
		if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("{k}%05d", i), Spec: &timer.Spec{DueMs: due + int64(i%1000)}}); err != nil {
			t.Fatal(err)
		}
	}
	r.runIdle()
	r.pass(62 * time.Second)
	return r
}

func pause(r *hostHarness, paused bool) {
	r.topic(1, func(t *timer.Topic) { t.Policy.Serial, t.Paused = true, paused })
	r.topicsChanged()
}

// TestLineIsSetAside: a key queue with rescheduled front timers is compacted in steps. The
// timer behind them then becomes the head.
func TestLineIsSetAside(t *testing.T) {
	const timers = 12 * scheduler.PopBudget
	r := line(t, timers)
	later := r.clock.wallMs + time.Hour.Milliseconds()
	for i := range timers {
		if i%1000 == 999 {
			continue
		}
		if _, err := r.submit(1, timer.Command{Kind: timer.Modify, Topic: 1, ID: fmt.Sprintf("{k}%05d", i), Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: later}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.runIdle()
	r.calls.auto = 200
	pause(r, false)
	r.pass(time.Second)
	for i := range timers {
		id, want := fmt.Sprintf("{k}%05d", i), "scheduled 0"
		if i%1000 == 999 {
			want = "done 1"
		}
		if i%500 == 499 {
			r.wantState(id, want)
		}
	}
	if n := len(r.calls.started); n != timers/1000 {
		t.Errorf("%d were called, want %d", n, timers/1000)
	}
	if q := r.scheduler().View.Inspect().Topics[1]; q.InLine < 0 {
		t.Errorf("%d in line", q.InLine)
	}
	r.audit()
}

// TestDropSerialInSlices: each slice of a dropped topic removes its timers from the key queues, in
// any order of the timers. A timer that reuses their slots, under the same ID in another
// topic, is called.
func TestDropSerialInSlices(t *testing.T) {
	r := line(t, 8*scheduler.PopBudget)
	r.topic(2, func(t *timer.Topic) { t.Policy.Serial = true })
	r.topicsChanged()
	slices := 0
	for from := timer.Handle(0); slices == 0 || from != 0; slices++ {
		got := r.do(timer.Command{Kind: timer.CloseTopic, Topic: 1, Force: true, Work: 17 * 500, From: from})
		if n := r.scheduler().View.Inspect().GoneRefs; n != 0 {
			t.Fatalf("after slice %d, %d dropped timers have a place in a line", slices, n)
		}
		from = got.Handle
		r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: fmt.Sprint("{k}", slices), Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	}
	if slices < 10 {
		t.Fatalf("%d slices", slices)
	}
	r.calls.auto = 200
	for _, c := range r.calls.take() {
		c.answer(200)
	}
	r.pass(2*sweepEvery + time.Second)
	if c := r.table().Counts(2); c.Done != int64(slices) {
		t.Errorf("%+v, want %d done", c, slices)
	}
	if l := r.scheduler().View.Inspect(); l.KeyRefs != 0 || l.Compacting != 0 || l.Topics[1].InLine != 0 || l.Topics[1].Queued > 512 {
		t.Errorf("left: %d places in lines, %d queues to go through, %+v", l.KeyRefs, l.Compacting, l.Topics[1])
	}
	r.audit()
}

// TestSerialNoMoreAndAgain: a topic that stops being serial and becomes serial again at once has
// correct key queues.
func TestSerialNoMoreAndAgain(t *testing.T) {
	r := line(t, 10)
	for _, serial := range []bool{false, true, false, true} {
		r.topic(1, func(t *timer.Topic) { t.Policy.Serial, t.Paused = serial, true })
		r.host.TopicsChanged()
		r.turn()
	}
	r.runIdle()
	if n := r.scheduler().View.Inspect().OldRefs; n != 0 {
		t.Errorf("%d places are in lines of an earlier time", n)
	}
	pause(r, false)
	for i := range 10 {
		call := r.one()
		if want := fmt.Sprintf("{k}%05d", i); call.Job.ID != want {
			t.Fatalf("call %d is of %s, want %s", i, call.Job.ID, want)
		}
		call.answer(200)
		r.runIdle()
	}
	r.audit()
}
