package shard

import (
	"testing"
	"time"

	"carillon/test/memfs"
	"carillon/timer"
)

func (h *hostHarness) fire(id string) *timer.Timer {
	h.t.Helper()
	got := h.do(timer.Command{Kind: timer.Fire, ID: id})
	if got.Code != timer.OK {
		h.t.Fatalf("fire %s: %d", id, got.Code)
	}
	return got.Timer
}

// TestFireInBackoff: the next attempt is made now, with its number and the same webhook-id.
func TestFireInBackoff(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(time.Second)
	first := r.one()
	first.answer(500)
	r.pass(300 * time.Millisecond) // of a second
	asked := r.clock.wallMs
	r.fire("a")
	second := r.one()
	if j := second.Job; j.Attempts != 2 || j.DueMs != first.Job.DueMs || j.Seq != first.Job.Seq || j.Tag != first.Job.Tag || j.Version != first.Job.Version || j.Fence <= first.Job.Fence || j.AskedMs != asked {
		t.Fatalf("the second attempt is %+v, the first was %+v", j, first.Job)
	}
	second.answer(500)
	r.pass(1900 * time.Millisecond)
	r.wantCalls("") // the backoff is that of any attempt
	r.pass(100 * time.Millisecond)
	if c := r.one(); c.Job.Attempts != 3 || c.Job.AskedMs != asked {
		t.Errorf("the third attempt: %+v", c.Job)
	}
	r.audit()
}

// TestFireEarly: retries of an attempt that was asked for early come by the backoff, also before
// the due time, and lateness counts from the request.
func TestFireEarly(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r := newHostHarness(t, nil)
		r.add("a", 5*time.Minute)
		r.pass(time.Minute)
		asked := r.clock.wallMs
		r.fire("a")
		c := r.one()
		if crash {
			r.restart()
		} else {
			c.answer(500)
			r.pass(time.Second)
		}
		if c := r.one(); c.Job.Attempts != 2 || c.Job.DueMs != fakeEpochMs+300_000 || c.Job.AskedMs != asked {
			t.Fatalf("crash %v: the retry is %+v", crash, c.Job)
		} else {
			c.answer(200)
		}
		r.runIdle()
		if v := r.timer("a"); v.State != timer.Done || v.LatenessMs != 0 || v.AskedMs != asked || v.DueMs != fakeEpochMs+300_000 {
			t.Errorf("crash %v: at the end %+v", crash, v)
		}
		r.pass(10 * time.Minute)
		r.wantCalls("")
		r.audit()
	}
}

// TestFireKeepsTheGates: a paused topic holds a fired timer, also one of a series that would skip
// what it missed.
func TestFireKeepsTheGates(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.add("a", time.Second, repeats(timer.Repeat{EveryMs: 60_000, CatchUp: timer.CatchUpSkip}))
	r.fire("a")
	r.pass(30 * time.Second)
	r.wantCalls("")
	r.topic(1, nil)
	r.topicsChanged()
	r.runIdle()
	r.wantCalls("a")
}

// TestFireOfASeriesKeepsItsTimes: the coming occurrence is made early, as that occurrence; the one
// after it comes at its own time.
func TestFireOfASeriesKeepsItsTimes(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		r := newHostHarness(t, nil)
		r.add("a", 10*time.Second, repeats(timer.Repeat{EveryMs: 10_000, Count: 3, Overlap: overlap}))
		r.pass(4 * time.Second)
		r.fire("a")
		first := r.one()
		if first.Job.DueMs != fakeEpochMs+10_000 || first.Job.AskedMs != r.clock.wallMs {
			t.Fatalf("fired: %+v", first.Job)
		}
		first.answer(200)
		r.pass(15*time.Second + 900*time.Millisecond)
		r.wantCalls("")
		for n := int64(2); n <= 3; n++ {
			r.pass(time.Duration(100+9900*(n-2)) * time.Millisecond)
			c := r.one()
			if c.Job.DueMs != fakeEpochMs+10_000*n || c.Job.AskedMs != 0 || c.Job.Seq == first.Job.Seq {
				t.Errorf("overlap %v: occurrence %d is %+v", overlap, n, c.Job)
			}
			c.answer(200)
			r.pass(100 * time.Millisecond)
		}
		r.pass(time.Minute)
		r.wantCalls("")
		r.wantState("a", "done 1")
		r.audit()
	}
}

// TestFireInOrder: a timer that is fired early does not pass one of its key that is due, and blocks
// its key while it is in backoff before its due time.
func TestFireInOrder(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{a}1", time.Second)
	r.add("{a}2", time.Minute)
	r.pass(time.Second)
	first := r.one()
	r.fire("{a}2")
	r.wantCalls("")
	first.answer(200)
	r.runIdle()
	c := r.one()
	c.answer(500)
	r.add("{a}3", 0)
	r.pass(500 * time.Millisecond)
	r.wantCalls("")
	r.pass(500 * time.Millisecond)
	r.one().answer(200)
	r.runIdle()
	r.wantCalls("{a}3")
	r.audit()
}

// TestFireByAClockThatWasAhead: what was asked for by a wrong clock is made once the clock is
// right.
func TestFireByAClockThatWasAhead(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.clock.wallMs += time.Hour.Milliseconds()
	r.runIdle()
	r.add("a", 2*time.Hour)
	r.fire("a")
	r.clock.wallMs -= time.Hour.Milliseconds()
	r.pass(5 * time.Second)
	r.topic(1, nil)
	r.topicsChanged()
	r.pass(5 * time.Second)
	c := r.one()
	if c.Job.AskedMs > r.clock.wallMs || c.Job.DueMs != fakeEpochMs+3*3_600_000 {
		t.Errorf("called: %+v", c.Job)
	}
	r.audit()
}

// wantWait checks why the timer of a number among those of its id waits.
func (h *hostHarness) wantWait(id string, seq uint64, want timer.Wait) {
	h.t.Helper()
	got := h.scheduler().View.Standing(h.table().Named(1, []byte(id), seq))
	if got.Wait != want {
		h.t.Errorf("%s of number %d waits for %q, %q", id, seq, got.For, got.On)
	}
}

// TestRedrivenOccurrenceWaitsItsTurn: in a serial topic a redriven occurrence and its series run
// one after the other.
func TestRedrivenOccurrenceWaitsItsTurn(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{a}1", 0, repeats(timer.Repeat{EveryMs: 10_000}))
	dead := r.one()
	dead.answer(410)
	r.pass(10 * time.Second)
	second := r.one()
	if got := r.do(timer.Command{Kind: timer.Redrive, ID: "{a}1", Seq: dead.Job.Seq}); got.Code != timer.OK {
		t.Fatalf("redriven: %d", got.Code)
	}
	r.pass(time.Second)
	r.wantCalls("")
	r.wantWait("{a}1", dead.Job.Seq, timer.Wait{For: timer.WaitKey, On: "another occurrence of {a}1"})
	r.wantWait("{a}1", 0, timer.Wait{})
	second.answer(200)
	r.runIdle()
	r.wantWait("{a}1", dead.Job.Seq, timer.Wait{})
	c := r.one()
	if c.Job.Seq != dead.Job.Seq || c.Job.DueMs != dead.Job.DueMs || c.Job.Attempts != 1 || c.Job.Fence <= second.Job.Fence {
		t.Errorf("redriven: %+v", c.Job)
	}
	c.answer(200)
	r.pass(9 * time.Second)
	if c := r.one(); c.Job.DueMs != fakeEpochMs+20_000 {
		t.Errorf("the next occurrence: %+v", c.Job)
	}
	if n := len(r.observer.latenessMs); n != 2 {
		t.Errorf("lateness was measured %d times: a redriven timer is not late", n)
	}
	r.audit()
}

// TestRedriveSurvivesCrashes: what a redrive answered is there after a crash.
func TestRedriveSurvivesCrashes(t *testing.T) {
	r := makeHarness(t, memfs.New(), nil)
	r.mustOpen()
	r.add("a", 0, repeats(timer.Repeat{EveryMs: 60_000}))
	dead := r.one()
	dead.answer(410)
	r.runIdle()
	if got := r.do(timer.Command{Kind: timer.Redrive, ID: "a", Seq: dead.Job.Seq, DueMs: r.clock.wallMs + 5000}); got.Code != timer.OK {
		t.Fatalf("redriven: %d", got.Code)
	}
	r.restart()
	r.pass(5 * time.Second)
	if c := r.one(); c.Job.Seq != dead.Job.Seq {
		t.Errorf("after a crash: %+v", c.Job)
	}
	r.audit()
}
