package callback

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
)

// TestPace: the limit follows the shortest answer time of ten seconds, and what ran when calls had
// waited too long.
func TestPace(t *testing.T) {
	var p destinationPace
	start := time.Unix(1_700_000_000, 0)
	for i, step := range []struct {
		after   time.Duration // since the start
		took    time.Duration // of an answer; 0: none
		overdue int           // calls that run by now, some of which had waited too long; 0: none had
		limit   int
	}{
		{0, 0, 0, 16}, // nothing is known
		{time.Second, 4 * time.Millisecond, 0, 216},
		{2 * time.Second, 100 * time.Microsecond, 0, 21},
		{3 * time.Second, 4 * time.Millisecond, 0, 21},
		{12 * time.Second, 4 * time.Millisecond, 0, 21},
		{22 * time.Second, 4 * time.Millisecond, 0, 216}, // the short one is of the window before the last
		{40 * time.Second, 0, 300, 300},
		{41 * time.Second, 100 * time.Microsecond, 0, 150},
		{51 * time.Second, 100 * time.Microsecond, 0, 75},
		{61 * time.Second, 100 * time.Microsecond, 0, 37},
		{71 * time.Second, 100 * time.Microsecond, 0, 21},
		{72 * time.Second, -1, 0, 18}, // a clock that stands still
	} {
		if step.overdue > 0 {
			p.running = step.overdue
			p.overdue()
		} else if step.took != 0 {
			p.answered(step.took, start.Add(step.after))
		}
		if got := p.limit(); got != step.limit {
			t.Errorf("step %d: limit %d, want %d: %+v", i, got, step.limit, p)
		}
	}
}

// slowReceiver answers each request after a while, and counts those that it has at once.
type slowReceiver struct {
	memory
	after        time.Duration // negative: never
	mu           sync.Mutex
	atOnce, most int
}

func (r *slowReceiver) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atOnce += n
	r.most = max(r.most, r.atOnce)
}

func (r *slowReceiver) counts() (atOnce, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.atOnce, r.most
}

func newSlowReceiver(after time.Duration) *slowReceiver {
	r := &slowReceiver{after: after}
	r.serve = func(c net.Conn, in *bufio.Reader) {
		for {
			if _, _, err := readRequest(in); err != nil {
				return
			}
			r.count(1)
			if r.after < 0 {
				hang(c, in)
				return
			}
			time.Sleep(r.after)
			r.count(-1)
			_, _ = io.WriteString(c, answer200)
		}
	}
	return r
}

func beginMany(t *testing.T, p *Pool, n int) []<-chan Outcome {
	t.Helper()
	outs := make([]<-chan Outcome, n)
	for i := range outs {
		outs[i] = begin(t, p, post("http://shop.example/"))
	}
	return outs
}

// TestCallsAtOnceFollowThePace: a receiver nearby gets as many calls at once as keep it busy, one
// far away all that there are.
func TestCallsAtOnceFollowThePace(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		calls int
		most  int
		lasts time.Duration
	}{
		{100 * time.Microsecond, 210, 21, time.Millisecond},
		{20 * time.Millisecond, 210, 210, 20 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowReceiver(c.after)
			p := startPool(t, Config{Dial: r.dial, MaxCalls: 8192})
			for range 2 { // the second one's connection is open
				callOnce(t, p, post("http://shop.example/"))
			}
			began := time.Now()
			for _, out := range beginMany(t, p, c.calls) {
				if o := <-out; o.Err != "" {
					t.Fatalf("%+v", o)
				}
			}
			took := time.Since(began)
			if _, most := r.counts(); most != c.most || took != c.lasts {
				t.Errorf("answers after %v: at most %d calls at once, %v in all; want %d and %v", c.after, most, took, c.most, c.lasts)
			}
		})
	}
}

// TestNoCallWaitsLongForThePace: calls that get no answer hold up others for longestWait at most.
func TestNoCallWaitsLongForThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReceiver(-1)
		p := startPool(t, Config{Dial: r.dial, MaxCalls: 8192})
		outs := beginMany(t, p, 40)
		time.Sleep(10 * time.Millisecond)
		outs = append(outs, beginMany(t, p, 20)...)
		for _, step := range []struct {
			wait time.Duration
			run  int
		}{{longestWait - 10*time.Millisecond - 1, leastPace}, {1, 40}, {10*time.Millisecond - 1, 40}, {1, 60}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if n, _ := r.counts(); n != step.run {
				t.Errorf("%d calls run, want %d", n, step.run)
			}
		}
		for _, out := range outs {
			if o := <-out; o.Err != "timeout" || o.Took != patience {
				t.Fatalf("%+v", o)
			}
		}
	})
}

// TestLineEndsWithThePool: every call that waits for its pace when the pool is shut down ends,
// once.
func TestLineEndsWithThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReceiver(-1)
		p := New(Config{Dial: r.dial, MaxCalls: 8192, Drain: longestWait / 2})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		outs := beginMany(t, p, 40)
		cancel()
		if err := <-ended; err == nil {
			t.Error("Run gave up no call")
		}
		for i, out := range outs {
			o := <-out
			if ran := i < leastPace; o.Sent != ran || ran && o.Err != "shut down" || !ran && !o.NotSent {
				t.Errorf("call %d: %+v", i, o)
			}
		}
		time.Sleep(2 * longestWait)
		if n := p.InFlight(); n != 0 {
			t.Errorf("%d calls are left", n)
		}
	})
}

// TestStartsAfterTheEnd: permits that are used after the pool's end are answered, all of them.
func TestStartsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Dial: newSlowReceiver(0).dial, MaxCalls: 8192, Drain: 1})
		var permits [200]Permit
		for i := range permits {
			permits[i], _ = acquire(p, Call{Key: keyOf(t, "http://shop.example/")}, newWaiter())
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := p.Run(ctx); err == nil {
			t.Error("Run gave up no permit")
		}
		outs := make(chan Outcome, 2*len(permits))
		for _, permit := range permits {
			permit.Start(post("http://shop.example/"), func(o Outcome) { outs <- o })
		}
		time.Sleep(2 * longestWait)
		if len(outs) != len(permits) || p.InFlight() != 0 {
			t.Errorf("%d of %d calls ended, %d are left", len(outs), len(permits), p.InFlight())
		}
		for range len(outs) {
			if o := <-outs; !o.NotSent {
				t.Errorf("%+v", o)
			}
		}
	})
}

// TestLineIsInOrder: calls run in the order in which they came.
func TestLineIsInOrder(t *testing.T) {
	d := &destination{}
	for i := range leastPace {
		if !d.begin(&callSlot{}) {
			t.Fatalf("call %d waits", i)
		}
	}
	var line [5]callSlot
	for i := range line {
		if d.begin(&line[i]) {
			t.Fatalf("call %d of the line runs", i)
		}
	}
	defer d.line.alarm.Stop()
	for i := range line {
		next, more := d.ended(&Outcome{Outcome: delivery.Outcome{Status: 200}, dialled: true})
		if next != &line[i] || more != nil {
			t.Fatalf("call %d of the line does not run next", i)
		}
	}
	for i := range leastPace {
		if next, _ := d.ended(&Outcome{}); next != nil {
			t.Fatalf("something runs after call %d", i)
		}
	}
	if d.line.pace.running != 0 {
		t.Errorf("%d run", d.line.pace.running)
	}
}
