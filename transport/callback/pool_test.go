package callback

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func destinationKey(n int) Key {
	return Key{Scheme: "http", Host: fmt.Sprintf("d%d.example", n), Port: 80}
}

func newPool(t testing.TB, config Config) *Pool {
	t.Helper()
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustPermit(t testing.TB, p *Pool, k Key, limit int) Permit {
	t.Helper()
	permit, v := p.Acquire(k, limit, Breaker{}, newWaiter())
	if v.Kind != Granted {
		t.Fatalf("%+v, want a permit", v)
	}
	return permit
}

func TestConfigFaultsAllAtOnce(t *testing.T) {
	_, err := New(Config{MaxCalls: -1, MaxDestinations: -1, ConnIdle: time.Minute, UserAgent: "a\nb", Drain: -1})
	for _, name := range []string{"MaxCalls", "MaxDestinations", "ConnIdle", "UserAgent", "Drain"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestPermitUsedTwicePanics(t *testing.T) {
	f := func(name string, use func(Permit)) {
		t.Helper()
		p := newPool(t, Config{})
		permit := mustPermit(t, p, destinationKey(1), 0)
		permit.Cancel()
		next := mustPermit(t, p, destinationKey(1), 0) // may be on the same ticket
		defer next.Cancel()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
			if p.InFlight() != 1 {
				t.Errorf("%s: %d in flight", name, p.InFlight())
			}
		}()
		use(permit)
	}
	f("Cancel", Permit.Cancel)
	f("Start", func(p Permit) { p.Start(post("http://d1.example"), func(Outcome) {}) })
	f("zero", func(Permit) { Permit{}.Cancel() })
}

func TestQueueIsFairAndForgets(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	permit := mustPermit(t, p, k, 1)
	a, b, c := newWaiter(), newWaiter(), newWaiter()
	for _, w := range []*waiter{a, b, a, c, a} { // asking again keeps the place
		if _, v := p.Acquire(k, 1, Breaker{}, w); v.Kind != Queued {
			t.Fatalf("%+v", v)
		}
	}
	if !p.Forget(b) || p.Forget(b) {
		t.Error("Forget must report once")
	}
	permit.Cancel()
	got := <-a.granted
	if _, v := p.Acquire(k, 1, Breaker{}, a); v.Kind != Queued { // behind c now
		t.Fatalf("%+v", v)
	}
	if got.Key() != k {
		t.Errorf("key %v", got.Key())
	}
	got.Cancel()
	(<-c.granted).Cancel()
	(<-a.granted).Cancel()
	if len(b.granted) != 0 || p.InFlight() != 0 || len(p.waiting) != 0 {
		t.Errorf("b was granted %d, in flight %d, waiting %d", len(b.granted), p.InFlight(), len(p.waiting))
	}
}

// TestLimitsOfOneDestination: a topic with a low limit gets its share beside one
// with a high limit, and the destination never has more calls than the high one.
func TestLimitsOfOneDestination(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	var high []Permit
	for range 8 {
		high = append(high, mustPermit(t, p, k, 10))
	}
	low := []Permit{mustPermit(t, p, k, 2), mustPermit(t, p, k, 2)}
	third, more := newWaiter(), newWaiter()
	if _, v := p.Acquire(k, 2, Breaker{}, third); v.Kind != Queued {
		t.Errorf("third under limit 2: %+v", v)
	}
	if _, v := p.Acquire(k, 10, Breaker{}, more); v.Kind != Queued {
		t.Errorf("eleventh under limit 10: %+v", v)
	}
	high[0].Cancel() // frees a slot of the high limit only
	(<-more.granted).Cancel()
	if len(third.granted) != 0 {
		t.Error("third call under limit 2")
	}
	low[0].Cancel()
	(<-third.granted).Cancel()
	low[1].Cancel()
	for _, permit := range high[1:] {
		permit.Cancel()
	}
	if d := p.destinations[k]; len(d.classes) != 0 || d.permits != 0 {
		t.Errorf("left over: %+v", d.classes)
	}
}

// TestNodeWideSlots: a few busy destinations cannot take the last quarter, and who
// waits for the node is served in turn.
func TestNodeWideSlots(t *testing.T) {
	p := newPool(t, Config{MaxCalls: 128})
	var held []Permit
	for range 96 {
		held = append(held, mustPermit(t, p, destinationKey(1), 1000))
	}
	busy := newWaiter()
	if _, v := p.Acquire(destinationKey(1), 1000, Breaker{}, busy); v.Kind != Queued {
		t.Fatalf("%+v", v)
	}
	for i := range 32 { // the last quarter is for others
		held = append(held, mustPermit(t, p, destinationKey(2+i), 0))
	}
	var others []*waiter
	for i := range 3 {
		w := newWaiter()
		if _, v := p.Acquire(destinationKey(100+i), 0, Breaker{}, w); v.Kind != Queued {
			t.Fatalf("%+v", v)
		}
		others = append(others, w)
	}
	for i, w := range others {
		held[i].Cancel()
		(<-w.granted).Cancel()
	}
	if len(busy.granted) != 0 {
		t.Fatal("the busy destination was granted from the last quarter")
	}
	for _, permit := range held[3:] {
		permit.Cancel()
	}
	(<-busy.granted).Cancel()
	if p.InFlight() != 0 || p.light.first != nil || p.heavy.first != nil {
		t.Error("not empty at the end")
	}
}

func TestEvictionSparesWhatIsInUse(t *testing.T) {
	p := newPool(t, Config{MaxDestinations: 3})
	held := mustPermit(t, p, destinationKey(0), 1)
	queued := newWaiter()
	p.Acquire(destinationKey(0), 1, Breaker{}, queued)
	for i := range 50 {
		mustPermit(t, p, destinationKey(1+i), 0).Cancel()
		if len(p.destinations) > 3 || p.recent.Len() != len(p.destinations) {
			t.Fatalf("%d destinations", len(p.destinations))
		}
	}
	if p.destinations[destinationKey(0)] == nil {
		t.Fatal("the destination in use was dropped")
	}
	more := []Permit{mustPermit(t, p, destinationKey(1), 0), mustPermit(t, p, destinationKey(2), 0)}
	if _, v := p.Acquire(destinationKey(3), 0, Breaker{}, newWaiter()); v.Kind != Open || !v.RetryAt.After(time.Now()) {
		t.Errorf("with all in use: %+v", v)
	}
	held.Cancel()
	(<-queued.granted).Cancel()
	for _, permit := range more {
		permit.Cancel()
	}
}

func TestSweepForgetsUnused(t *testing.T) {
	var clock atomic.Int64
	p := newPool(t, Config{Now: func() time.Time { return noon.Add(time.Duration(clock.Load())) }})
	held := mustPermit(t, p, destinationKey(1), 0)
	mustPermit(t, p, destinationKey(2), 0).Cancel()
	clock.Store(int64(11 * time.Minute))
	p.sweep()
	if len(p.destinations) != 1 || p.destinations[destinationKey(1)] == nil {
		t.Errorf("%d destinations left", len(p.destinations))
	}
	held.Cancel()
}

func TestGatesAreBounded(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	for i := range 3 * maxGates {
		k.Scope = fmt.Sprint("topic-", i)
		mustPermit(t, p, k, 0).Cancel()
	}
	if n := len(p.destinations[k.destination()].gates); n > maxGates+1 {
		t.Errorf("%d breakers", n)
	}
}

// TestAcquireModel drives Acquire, Cancel and Forget at random and checks after every
// step that no limit is passed, and no waiter is left while it could be served.
func TestAcquireModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxCalls := rapid.IntRange(1, 40).Draw(t, "maxCalls")
		p, err := New(Config{MaxCalls: maxCalls, MaxDestinations: 4})
		if err != nil {
			t.Fatal(err)
		}
		waiters := make([]*waiter, 12)
		at := map[*waiter]int{} // queued at which destination
		for i := range waiters {
			waiters[i] = newWaiter()
		}
		var held []Permit
		collect := func() {
			for _, w := range waiters {
				select {
				case permit := <-w.granted:
					held = append(held, permit)
					delete(at, w)
				default:
				}
			}
		}
		limits := []int{1, 2, 5, 30}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 5).Draw(t, "op"); {
			case op <= 2:
				w := waiters[rapid.IntRange(0, len(waiters)-1).Draw(t, "waiter")]
				if _, queued := at[w]; queued {
					continue // one place at a time keeps the model small
				}
				n := rapid.IntRange(0, 3).Draw(t, "dest")
				permit, v := p.Acquire(destinationKey(n), limits[rapid.IntRange(0, 3).Draw(t, "limit")], Breaker{}, w)
				switch v.Kind {
				case Granted:
					held = append(held, permit)
				case Queued:
					at[w] = n
				default:
					t.Fatalf("%+v", v)
				}
			case op <= 4 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "held")
				permit := held[i]
				held = append(held[:i], held[i+1:]...)
				permit.Cancel()
			case op == 5:
				w := waiters[rapid.IntRange(0, len(waiters)-1).Draw(t, "waiter")]
				_, queued := at[w]
				if p.Forget(w) != queued {
					t.Fatal("Forget disagrees with the model")
				}
				delete(at, w)
			}
			collect()
			checkPool(t, p, len(held), at)
		}
		for len(held) > 0 {
			permit := held[0]
			held = held[1:]
			permit.Cancel()
			collect()
			checkPool(t, p, len(held), at)
		}
		if len(at) != 0 {
			t.Fatalf("%d waiters lost", len(at))
		}
	})
}

func checkPool(t *rapid.T, p *Pool, held int, at map[*waiter]int) {
	if p.permits != held || p.permits > p.config.MaxCalls || len(p.waiting) != len(at) {
		t.Fatalf("permits %d, held %d, waiting %d, model %d", p.permits, held, len(p.waiting), len(at))
	}
	for _, d := range p.destinations {
		sum, cumulative := 0, 0
		for _, c := range d.classes {
			sum += c.permits
			cumulative += c.permits
			if cumulative > c.limit {
				t.Fatalf("%s: %d calls under limit %d", d.label, cumulative, c.limit)
			}
		}
		if sum != d.permits {
			t.Fatalf("%s: classes hold %d, destination %d", d.label, sum, d.permits)
		}
		for _, l := range d.lines {
			if l.first == nil || p.freeLocked(d) && d.room(l.limit) {
				t.Fatalf("%s: a waiter under limit %d stands with room to spare (%d of %d out)", d.label, l.limit, p.permits, p.config.MaxCalls)
			}
		}
	}
}

// TestNoWaiterIsLost runs many lanes against few slots on real goroutines: every
// lane gets through all its rounds, and within bounds of each other.
func TestNoWaiterIsLost(t *testing.T) {
	const lanes, rounds = 24, 150
	p := newPool(t, Config{MaxCalls: 7, MaxDestinations: 5})
	var wait sync.WaitGroup
	var out atomic.Int32
	for lane := range lanes {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(lane)))
			w := newWaiter()
			for range rounds {
				permit, v := p.Acquire(destinationKey(random.IntN(5)), 1+random.IntN(3), Breaker{}, w)
				if v.Kind == Queued {
					if random.IntN(8) == 0 && p.Forget(w) {
						continue
					}
					permit = <-w.granted
				} else if v.Kind != Granted {
					t.Errorf("%+v", v)
					return
				}
				if n := out.Add(1); n > 7 {
					t.Errorf("%d permits out", n)
				}
				out.Add(-1)
				permit.Cancel()
			}
		})
	}
	wait.Wait()
	if p.InFlight() != 0 || len(p.waiting) != 0 {
		t.Errorf("%d in flight, %d waiting at the end", p.InFlight(), len(p.waiting))
	}
}

// TestRoundRobin: lanes that ask again at once are served in turn.
func TestRoundRobin(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	held := mustPermit(t, p, k, 1)
	lanes := []*waiter{newWaiter(), newWaiter(), newWaiter(), newWaiter()}
	for _, w := range lanes {
		p.Acquire(k, 1, Breaker{}, w)
	}
	for range 20 {
		for i, w := range lanes {
			held.Cancel()
			if len(w.granted) != 1 {
				t.Fatalf("lane %d was passed over", i)
			}
			held = <-w.granted
			p.Acquire(k, 1, Breaker{}, w)
		}
	}
	for _, w := range lanes {
		p.Forget(w)
	}
	held.Cancel()
}

func TestDestinations(t *testing.T) {
	p := newPool(t, Config{})
	for i := range maxListed + 5 {
		mustPermit(t, p, destinationKey(i), 0).Cancel()
	}
	held := mustPermit(t, p, destinationKey(3), 0)
	defer held.Cancel()
	seen, first := 0, DestinationStat{}
	p.Destinations(func(s DestinationStat) {
		if seen == 0 {
			first = s
		}
		seen++
	})
	if seen != maxListed || first.Destination != "http://d3.example:80" || first.Permits != 1 {
		t.Errorf("%d listed, first %+v", seen, first)
	}
}
