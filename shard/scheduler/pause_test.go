package scheduler

import (
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
)

func (r *replica) hold(id string) { r.command(timer.Command{Kind: timer.Pause, ID: id}) }
func (r *replica) letGo(id string) {
	h := r.command(timer.Command{Kind: timer.Resume, ID: id, DueMs: r.now.WallMs}).Handle
	r.Keys.Resumed(h)
	r.turn()
}

// TestPaused: a timer that a client holds is not called when it is due, and is counted as waiting
// for that. Others of its topic are called.
func TestPaused(t *testing.T) {
	for _, after := range []bool{false, true} { // held when it is due already, and has left the wheel
		r := newReplica(t)
		inMs := int64(5)
		if after {
			inMs = 0
			r.pause(true)
		}
		a := r.add("a", inMs)
		r.add("b", inMs)
		if after {
			r.turn()
			r.waits(a, timer.WaitPaused)
		}
		r.hold("a")
		if after {
			r.pause(false)
		}
		r.pass(20 * time.Millisecond)
		r.waits(a, timer.WaitHeld)
		r.want("b")
		count := func(want int64) {
			t.Helper()
			var sums [1]timer.Counts
			r.View.Count([]timer.TopicID{1}, sums[:])
			var all timer.Waiting
			at := 0
			for !r.View.Waiting(&at, &all) {
			}
			if sums[0].Waiting[timer.WaitHeld] != want || all[timer.WaitHeld] != want {
				t.Errorf("%d and %d are held, want %d", sums[0].Waiting[timer.WaitHeld], all[timer.WaitHeld], want)
			}
		}
		count(1)
		r.End()
		r.takeover(r.cfg.Owner)
		r.Begin()
		r.pass(20 * time.Millisecond)
		count(1)
		r.letGo("a")
		r.pass(20 * time.Millisecond)
		count(0)
		r.want("ba")
		if err := r.table.Audit(true); err != nil {
			t.Error(err)
		}
	}
}

// TestPausedExpires: the expiry counts on.
func TestPausedExpires(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 0, func(c *timer.Command) { c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = true, 1000 })
	r.hold("a")
	r.pass(900 * time.Millisecond)
	r.state(a, timer.Scheduled)
	r.pass(200 * time.Millisecond)
	r.state(a, timer.Dead)
	r.want("")
}

// TestPausedSeriesCatchesUp: occurrences that came due while the series was held follow its rule,
// the pending one too, however short the pause was.
func TestPausedSeriesCatchesUp(t *testing.T) {
	f := func(catchUp timer.CatchUp, calls string, next int64) {
		t.Helper()
		r := newReplica(t)
		r.add("a", 100, every(time.Second, func(p *timer.Repeat) { p.CatchUp = catchUp }))
		begin := r.now.WallMs
		r.hold("a")
		r.pass(3200 * time.Millisecond) // due at 100, 1100, 2100 and 3100
		r.want("")
		r.letGo("a")
		called := ""
		for range 8 {
			r.pass(20 * time.Millisecond)
			for len(r.calls) > 0 {
				called += r.end(delivery.Outcome{Status: 200}).Job.ID
			}
		}
		if called != calls {
			t.Errorf("catch-up %d: calls of %q, want %q", catchUp, called, calls)
		}
		if d := r.state(r.named("a"), timer.Scheduled); d.NextMs != begin+next {
			t.Errorf("catch-up %d: the next is due at %d, want %d", catchUp, d.NextMs-begin, next)
		}
	}
	f(timer.CatchUpSkip, "", 4100)
	f(timer.CatchUpOne, "a", 4100)
	f(timer.CatchUpAll, "aaaa", 4100)
}

// TestPausedInASerialTopic: a timer that is held gives up its place, also in backoff, and takes it
// again when it is let go.
func TestPausedInASerialTopic(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Serial, p.MinBackoffMs, p.Jitter = true, 1000, 0 })
	r.add("{k}a", 0)
	r.add("{k}b", 1)
	r.pass(20 * time.Millisecond)
	r.want("{k}a")
	r.end(delivery.Outcome{Status: 500, Err: "status 500"})
	r.pass(20 * time.Millisecond)
	r.want("") // it blocks its key through its backoff
	r.hold("{k}a")
	r.pass(20 * time.Millisecond)
	r.want("{k}b")
	r.end(delivery.Outcome{Status: 200})
	r.letGo("{k}a")
	r.add("{k}c", 0)
	r.pass(20 * time.Millisecond)
	r.want("")
	r.pass(time.Second)
	r.want("{k}a")
}
