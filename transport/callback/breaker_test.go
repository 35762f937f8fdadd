package callback

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"
)

// sickbed is a pool on a fake clock with one receiver in memory, whose status can
// be changed; 0 hangs until the call times out.
type sickbed struct {
	*testing.T
	p      *Pool
	key    address.Key
	status atomic.Int32
	net    memory
}

func inSickbed(t *testing.T, test func(s *sickbed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sickbed{T: t, key: address.Key{Scheme: "http", Host: "sick.example", Port: 80}}
		s.net.serve = func(c net.Conn, in *bufio.Reader) {
			for {
				if _, _, err := readRequest(in); err != nil {
					return
				}
				status := int(s.status.Load())
				if status == 0 {
					hang(c, in)
					return
				}
				if _, err := io.WriteString(c, answerOf(status)); err != nil {
					return
				}
			}
		}
		s.p = startPool(t, Config{Dial: s.net.dial})
		test(s)
	})
}

// call returns the verdict of an Acquire, and makes the call if it was granted.
func (s *sickbed) call(b Breaker, status int) delivery.Verdict {
	s.Helper()
	permit, verdict := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
	if verdict.Kind == delivery.Granted {
		s.finish(permit, status)
	}
	return verdict
}

func (s *sickbed) finish(permit Permit, status int) {
	s.Helper()
	s.status.Store(int32(status))
	req := post("http://sick.example/")
	req.Timeout = 10 * time.Second
	outs := make(chan Outcome, 1)
	permit.Start(req, func(o Outcome) { outs <- o })
	if out := <-outs; out.Status != status {
		s.Fatalf("%+v, want status %d", out, status)
	}
	synctest.Wait() // the slot is freed after done
}

func (s *sickbed) calls(n int, b Breaker, status int) {
	s.Helper()
	for i := range n {
		if v := s.call(b, status); v.Kind != delivery.Granted {
			s.Fatalf("call %d of %d: %+v", i, n, v)
		}
	}
}

func (s *sickbed) wantOpen(b Breaker) time.Time {
	s.Helper()
	permit, v := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
	if permit != (Permit{}) || v.Kind != delivery.Shut || v.RetryIn <= 0 {
		s.Fatalf("%+v at %v, want an open breaker with a later time", v, time.Now())
	}
	return time.Now().Add(v.RetryIn)
}

func (s *sickbed) wantState(want delivery.BreakerState) {
	s.Helper()
	seen := want + 1
	s.p.Breakers(func(destination string, state delivery.BreakerState) {
		if destination != "http://sick.example:80" {
			s.Errorf("destination %q", destination)
		}
		seen = state
	})
	if seen != want {
		s.Fatalf("state %d, want %d", seen, want)
	}
}

// TestBreakerOfRareCalls: failures within a long window count, however far apart the calls are;
// those of before are forgotten with their receiver.
func TestBreakerOfRareCalls(t *testing.T) {
	for _, scope := range []string{"", "topic"} {
		inSickbed(t, func(s *sickbed) {
			s.key.Scope = scope
			b := Breaker{Failures: 3, Window: time.Hour, Open: time.Minute}
			s.calls(1, b, 500)
			time.Sleep(61 * time.Minute)
			s.p.Breakers(func(destination string, _ delivery.BreakerState) {
				t.Errorf("%s is kept", destination)
			})
			for range 3 {
				time.Sleep(20 * time.Minute)
				s.calls(1, b, 500)
			}
			s.wantOpen(b)
		})
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		var b Breaker // defaults: 5 failures, open 5 s, 1 probe
		s.calls(4, b, 500)
		s.calls(1, b, 404) // the answer of a live receiver: starts the count anew
		s.calls(4, b, 503)
		s.wantState(delivery.BreakerClosed)
		s.calls(1, b, 599)
		s.wantState(delivery.BreakerOpen)
		retryAt := s.wantOpen(b)
		if wait := time.Until(retryAt); wait < 5*time.Second || wait > 5*time.Second+10*time.Millisecond {
			t.Errorf("open for %v, want 5 s", wait)
		}
		time.Sleep(time.Until(retryAt)) // fake time
		s.wantState(delivery.BreakerHalfOpen)

		probe, v := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
		if v.Kind != delivery.Granted {
			t.Fatalf("%+v, want the probe", v)
		}
		behind := newWaiter()
		if _, v := acquire(s.p, Call{Key: s.key, Breaker: b}, behind); v.Kind != delivery.ReceiverFull {
			t.Errorf("%+v beside a probe, want to wait for its end", v)
		}
		s.finish(probe, 502)
		s.wantState(delivery.BreakerOpen) // a failed probe opens it again
		if wait := time.Until(<-behind.refused); wait < 4*time.Second {
			t.Errorf("the breaker that opened again says to wait for %v", wait)
		}
		time.Sleep(time.Until(s.wantOpen(b)))
		s.calls(1, b, 200)
		s.wantState(delivery.BreakerClosed)
		s.calls(3, b, 200)
	})
}

// TestBreakerOpensOnHangs: calls that take as long as the window still count. The
// library's own window would drop every one of them.
func TestBreakerOpensOnHangs(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		b := Breaker{Failures: 3, Window: 10 * time.Second}
		var permits []Permit
		for range 3 {
			permit, _ := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
			permits = append(permits, permit)
		}
		outs := make(chan Outcome, 3)
		req := post("http://sick.example/")
		req.Timeout = 15 * time.Second
		for _, permit := range permits {
			permit.Start(req, func(o Outcome) { outs <- o })
		}
		for range 3 {
			if out := <-outs; out.Err != "timeout" || out.Took != 15*time.Second {
				t.Errorf("%+v", out)
			}
		}
		s.wantState(delivery.BreakerOpen)
	})
}

// TestCallsOfAnOpenBreakerAreNotMade (I17): once a breaker has opened, no call begins that was
// granted before, whether it is in line or has not been started.
func TestCallsOfAnOpenBreakerAreNotMade(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		s.status.Store(500)
		var permits [60]Permit
		for i := range permits {
			permits[i], _ = acquire(s.p, Call{Key: s.key}, newWaiter())
		}
		outs := make(chan Outcome, len(permits))
		start := func(permit Permit) { permit.Start(post("http://sick.example/"), func(o Outcome) { outs <- o }) }
		for _, permit := range permits[1:] {
			start(permit)
		}
		made := 0
		for i := range permits {
			if i == len(permits)-1 {
				start(permits[0])
			}
			switch o := <-outs; {
			case o.Status == 500:
				made++
			case !o.NotSent || o.Sent:
				t.Errorf("%+v", o)
			}
		}
		if most := 5 + leastPace; made < 5 || made > most { // what ran when the fifth failed
			t.Errorf("%d calls were made, want 5 to %d", made, most)
		}
		s.wantState(delivery.BreakerOpen)
		time.Sleep(time.Until(s.wantOpen(Breaker{})))
		s.calls(1, Breaker{}, 200) // the probe
		s.wantState(delivery.BreakerClosed)
	})
}

func TestBreakerWindow(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		b := Breaker{Failures: 3, Window: 10 * time.Second}
		for range 8 { // six seconds apart: never three within ten
			s.calls(1, b, 500)
			time.Sleep(6 * time.Second)
		}
		s.wantState(delivery.BreakerClosed)
		s.calls(2, b, 500)
		s.wantState(delivery.BreakerOpen) // these and the one six seconds ago
	})
}

func TestBreakerCountsNoConnection(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		s.net.fail = errNoRoute
		s.calls(5, Breaker{}, 0)
		s.wantState(delivery.BreakerOpen)
	})
}

func TestBreakerProbes(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		b := Breaker{Failures: 1, Open: time.Second, Probes: 2}
		s.calls(1, b, 500)
		time.Sleep(time.Until(s.wantOpen(b)))
		first, _ := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
		second, v := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
		if v.Kind != delivery.Granted {
			t.Fatalf("second probe: %+v", v)
		}
		third := newWaiter()
		if _, v := acquire(s.p, Call{Key: s.key, Breaker: b}, third); v.Kind != delivery.ReceiverFull {
			t.Fatalf("third probe: %+v", v)
		}
		first.Cancel() // a cancelled probe is made by another
		first = <-third.granted
		s.finish(second, 204)
		s.wantState(delivery.BreakerHalfOpen)
		s.finish(first, 200)
		s.wantState(delivery.BreakerClosed)
	})
}

// TestBreakerIgnores: cancelled, guarded and refused calls say nothing.
func TestBreakerIgnores(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		b := Breaker{Failures: 2}
		for range 5 {
			permit, _ := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
			permit.Cancel()
			permit, _ = acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
			req := post("http://sick.example/")
			req.Deadline = s.p.config.Lease() + 1
			outs := make(chan Outcome, 1)
			permit.Start(req, func(o Outcome) { outs <- o })
			if out := <-outs; !out.NotSent {
				t.Fatalf("%+v", out)
			}
		}
		synctest.Wait()
		s.wantState(delivery.BreakerClosed)
		s.calls(1, b, 500)
		permit, _ := acquire(s.p, Call{Key: s.key, Breaker: b}, newWaiter())
		permit.Cancel() // not a success either
		s.calls(1, b, 500)
		s.wantState(delivery.BreakerOpen)
	})
}

func TestBreakerScopes(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		s.calls(5, Breaker{}, 500)
		s.wantOpen(Breaker{})
		s.key.Scope = "orders"
		own := Breaker{Failures: 2, Open: time.Minute}
		s.calls(2, own, 500)
		if wait := time.Until(s.wantOpen(own)); wait < 50*time.Second {
			t.Errorf("the scope's breaker opens for %v", wait)
		}
		s.key.Scope = "mail"
		s.calls(9, Breaker{Failures: 10}, 500)
		s.wantState(delivery.BreakerOpen) // the worst
		s.key.Scope = "orders"
		s.calls(1, Breaker{Failures: 3}, 200) // another policy: another breaker
	})
}

// TestWaitersOfAnOpenBreaker: those that wait when the breaker opens are handed back with the time
// of its probe, so that they hold no place at the destination. Then the first is the probe, and the
// others wait for its end.
func TestWaitersOfAnOpenBreaker(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		a := Call{Key: s.key, Limit: 1, Breaker: Breaker{Failures: 1, Open: 5 * time.Second}}
		permit, _ := acquire(s.p, a, newWaiter())
		var queue []*waiter
		for range 3 * refusedAtOnce {
			w := newWaiter()
			queue = append(queue, w)
			if _, v := acquire(s.p, a, w); v.Kind != delivery.ReceiverFull {
				t.Fatalf("%+v", v)
			}
		}
		s.finish(permit, 500)
		opened := time.Now()
		s.wantState(delivery.BreakerOpen)
		for _, w := range queue {
			if wait := time.Until(<-w.refused); wait < 4*time.Second || wait > 6*time.Second {
				t.Fatalf("a waiter is to ask again in %v", wait)
			}
		}
		if s.p.slots.Waiting() != 0 {
			t.Errorf("%d wait for an open breaker", s.p.slots.Waiting())
		}
		time.Sleep(5*time.Second + 10*time.Millisecond) // fake time
		probe, v := acquire(s.p, a, queue[0])
		if v.Kind != delivery.Granted {
			t.Fatalf("%+v, want the probe", v)
		}
		for _, w := range queue[1:] {
			acquire(s.p, a, w)
		}
		s.finish(probe, 200)
		for _, w := range queue[1:] {
			s.finish(<-w.granted, 200)
		}
		if took := time.Since(opened); took > 6*time.Second {
			t.Errorf("queue drained after %v", took)
		}
		s.wantState(delivery.BreakerClosed)
	})
}

// TestRunDrains: Run waits for the calls in flight, and gives up at its bound.
func TestRunDrains(t *testing.T) {
	f := func(timeout, want time.Duration, err bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			m := &memory{serve: hang}
			p := New(Config{Dial: m.dial})
			ctx, cancel := context.WithCancel(t.Context())
			req := post("http://sick.example/")
			req.Timeout = timeout
			permit, _ := acquire(p, Call{Key: keyOf(t, req.URL), Limit: 1}, newWaiter())
			out := make(chan Outcome, 1)
			permit.Start(req, func(o Outcome) { out <- o })
			idle := newWaiter()
			if _, v := acquire(p, Call{Key: keyOf(t, req.URL), Limit: 1}, idle); v.Kind != delivery.ReceiverFull {
				t.Errorf("%+v, want queued", v)
			}
			started := time.Now()
			cancel()
			got := p.Run(ctx)
			if (got != nil) != err || time.Since(started) != want {
				t.Errorf("Run: %v after %v, want %v", got, time.Since(started), want)
			}
			if o := <-out; !o.failed() || !o.Sent || err != (o.Err == "shut down") {
				t.Errorf("%+v", o)
			}
			if _, v := acquire(p, Call{Key: keyOf(t, req.URL)}, idle); v.Kind != delivery.Closed {
				t.Errorf("%+v, want closed", v)
			}
			if len(idle.granted) != 0 || p.InFlight() != 0 {
				t.Errorf("%d grants after the end, %d in flight", len(idle.granted), p.InFlight())
			}
			if p.Run(ctx) == nil {
				t.Error("a second Run")
			}
			m.wait.Wait()
		})
	}
	f(7*time.Second, 7*time.Second, false)
	f(time.Minute, 30*time.Second, true)
}

// TestStartAfterShutDown: a permit that outlived the pool ends as not sent.
func TestStartAfterShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Drain: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		req := post("http://sick.example/")
		permit, _ := acquire(p, Call{Key: keyOf(t, req.URL)}, newWaiter())
		cancel()
		if p.Run(ctx) == nil {
			t.Error("Run did not tell of the permit left")
		}
		outs := make(chan Outcome, 1)
		permit.Start(req, func(o Outcome) { outs <- o })
		if o := <-outs; !o.NotSent || o.Sent {
			t.Errorf("%+v", o)
		}
	})
}
