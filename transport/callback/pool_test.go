package callback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"
	"carillon/transport/callback/slots"
)

func destinationKey(n int) address.Key {
	return address.Key{Scheme: "http", Host: fmt.Sprintf("d%d.example", n), Port: 80}
}

func newPool(t testing.TB, config Config) *Pool {
	t.Helper()
	return New(config)
}

func mustPermit(t testing.TB, p *Pool, k address.Key, limit int) Permit {
	t.Helper()
	permit, v := acquire(p, Call{Key: k, Limit: limit}, newWaiter())
	if v.Kind != delivery.Granted {
		t.Fatalf("%+v, want a permit", v)
	}
	return permit
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

func TestQueueIsFair(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	permit := mustPermit(t, p, k, 1)
	a, c := newWaiter(), newWaiter()
	for _, w := range []*waiter{a, c} {
		if _, v := acquire(p, Call{Key: k, Limit: 1}, w); v.Kind != delivery.ReceiverFull {
			t.Fatalf("%+v", v)
		}
	}
	permit.Cancel()
	got := <-a.granted
	if _, v := acquire(p, Call{Key: k, Limit: 1}, a); v.Kind != delivery.ReceiverFull { // behind c now
		t.Fatalf("%+v", v)
	}
	if key := got.t.dest.key; key != k {
		t.Errorf("key %v", key)
	}
	got.Cancel()
	(<-c.granted).Cancel()
	(<-a.granted).Cancel()
	if p.InFlight() != 0 || p.slots.Waiting() != 0 {
		t.Errorf("in flight %d, waiting %d", p.InFlight(), p.slots.Waiting())
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
	slow := Call{Key: k, Limit: 2, Number: 2}
	var low []Permit
	for range 2 {
		permit, _ := acquire(p, slow, newWaiter())
		low = append(low, permit)
	}
	third, more := newWaiter(), newWaiter()
	if _, v := acquire(p, slow, third); v.Kind != delivery.ReceiverFull {
		t.Errorf("third under limit 2: %+v", v)
	}
	if _, v := acquire(p, Call{Key: k, Limit: 10}, more); v.Kind != delivery.ReceiverFull {
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
	if d := p.destinations[k]; !d.idle() {
		t.Errorf("left over: %d calls", d.slots.Calls())
	}
}

// answers has a destination count as one that answers.
func answers(t testing.TB, p *Pool, k address.Key) {
	t.Helper()
	ticket := mustPermit(t, p, k, 0).take()
	ticket.slot.Report(nil)
	p.release(ticket, slots.Answered)
}

// TestNodeWideSlots: one topic's receiver cannot take the last quarter of the node's slots. A
// caller that waits for a slot of the node is served when one is free for it.
func TestNodeWideSlots(t *testing.T) {
	p := newPool(t, Config{MaxCalls: 128})
	busy, other := Call{Key: destinationKey(1), Limit: 1000, Number: 1}, Call{Key: destinationKey(2), Limit: 1000, Number: 2}
	answers(t, p, busy.Key)
	answers(t, p, other.Key)
	take := func(a Call) (held []Permit, last *waiter) {
		for {
			w := newWaiter()
			permit, v := acquire(p, a, w)
			if v.Kind != delivery.Granted {
				return held, w
			}
			held = append(held, permit)
		}
	}
	first, waits := take(busy)
	if len(first) != 48 {
		t.Errorf("%d calls of one receiver, want three quarters of the 64 for those that answer", len(first))
	}
	second, alsoWaits := take(other)
	if len(second) != 12 {
		t.Errorf("%d calls of the next, want three quarters of the rest", len(second))
	}
	for _, permit := range first[:4] {
		permit.Cancel()
	}
	if len(alsoWaits.granted) != 1 || len(waits.granted) != 0 {
		t.Errorf("served: %d of who has few, %d of who has many", len(alsoWaits.granted), len(waits.granted))
	}
	for _, permit := range append(first[4:], second...) {
		permit.Cancel()
	}
	(<-alsoWaits.granted).Cancel()
	(<-waits.granted).Cancel()
	if p.InFlight() != 0 || p.slots.Waiting() != 0 {
		t.Error("not empty at the end")
	}
}

func TestEvictionSparesWhatIsInUse(t *testing.T) {
	p := newPool(t, Config{MaxDestinations: 3})
	held := mustPermit(t, p, destinationKey(0), 1)
	queued := newWaiter()
	acquire(p, Call{Key: destinationKey(0), Limit: 1}, queued)
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
	if _, v := acquire(p, Call{Key: destinationKey(3)}, newWaiter()); v.Kind != delivery.Shut || v.RetryIn <= 0 {
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
	if n := len(p.destinations[k.Unscoped()].gates); n > maxGates+1 {
		t.Errorf("%d breakers", n)
	}
}

// TestAcquireModel drives Acquire and Cancel at random and checks after every step that permits,
// credits and waiters are those of the model; package slots has the rest.
func TestAcquireModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxCalls := rapid.IntRange(1, 40).Draw(t, "maxCalls")
		p := New(Config{MaxCalls: maxCalls, MaxDestinations: 100})
		waiters := make([]*waiter, 12)
		at := map[*waiter]int{} // waits at which destination
		asks := map[*waiter]bool{}
		for i := range waiters {
			waiters[i] = newWaiter()
		}
		var held []Permit
		collect := func() {
			for i := 0; i < len(waiters); i++ {
				w := waiters[i]
				select {
				case permit := <-w.granted:
					held = append(held, permit)
					delete(at, w)
				case c := <-w.credits:
					delete(asks, w)
					c.Cancel()
					i = -1 // another may have it now
				default:
				}
			}
		}
		limits := []int{1, 2, 5, 30}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 4).Draw(t, "op"); {
			case op <= 2:
				w := waiters[rapid.IntRange(0, len(waiters)-1).Draw(t, "waiter")]
				if _, queued := at[w]; queued || asks[w] {
					continue // one place at a time keeps the model small
				}
				n := rapid.IntRange(0, 3).Draw(t, "dest")
				permit, v := acquire(p, Call{Key: destinationKey(n), Limit: limits[rapid.IntRange(0, 3).Draw(t, "limit")]}, w)
				switch v.Kind {
				case delivery.Granted:
					held = append(held, permit)
				case delivery.ReceiverFull:
					at[w] = n
				case delivery.NodeFull:
					asks[w] = true
				default:
					t.Fatalf("%+v", v)
				}
			case op <= 4 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "held")
				permit := held[i]
				held = append(held[:i], held[i+1:]...)
				permit.Cancel()
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
		if len(at)+len(asks) != 0 {
			t.Fatalf("%d waiters lost", len(at))
		}
	})
}

func checkPool(t *rapid.T, p *Pool, held int, at map[*waiter]int) {
	if n := p.InFlight(); n != held || n > p.config.MaxCalls || p.slots.Waiting() != len(at) {
		t.Fatalf("%d in flight, %d held, %d waiting, %d by the model", n, held, p.slots.Waiting(), len(at))
	}
}

// TestNoWaiterIsLost runs many lanes against few slots on real goroutines: every
// lane gets through all its rounds, and within bounds of each other.
func TestNoWaiterIsLost(t *testing.T) {
	const lanes, rounds = 24, 150
	p := newPool(t, Config{MaxCalls: 7, MaxDestinations: 8})
	var wait sync.WaitGroup
	var out atomic.Int32
	for lane := range lanes {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(lane)))
			w := newWaiter()
			for range rounds {
				permit, _ := await(p, Call{Key: destinationKey(random.IntN(5)), Limit: 1 + random.IntN(3)}, w)
				if n := out.Add(1); n > 7 {
					t.Errorf("%d permits out", n)
				}
				out.Add(-1)
				permit.Cancel()
			}
		})
	}
	wait.Wait()
	if p.InFlight() != 0 || p.slots.Waiting() != 0 {
		t.Errorf("%d in flight, %d waiting at the end", p.InFlight(), p.slots.Waiting())
	}
}

// TestRoundRobin: lanes that ask again at once are served in turn.
func TestRoundRobin(t *testing.T) {
	p := newPool(t, Config{})
	k := destinationKey(1)
	held := mustPermit(t, p, k, 1)
	lanes := []*waiter{newWaiter(), newWaiter(), newWaiter(), newWaiter()}
	for _, w := range lanes {
		acquire(p, Call{Key: k, Limit: 1}, w)
	}
	for range 20 {
		for i, w := range lanes {
			held.Cancel()
			if len(w.granted) != 1 {
				t.Fatalf("lane %d was passed over", i)
			}
			held = <-w.granted
			acquire(p, Call{Key: k, Limit: 1}, w)
		}
	}
	held.Cancel()
	for _, w := range lanes {
		(<-w.granted).Cancel()
	}
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

// TestTopicsOfADestination: the first topics that call a destination are kept, each once, and that
// there were others.
func TestTopicsOfADestination(t *testing.T) {
	var d destination
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range maxCallers {
				d.calledBy(fmt.Sprint("topic-", (worker+i)%maxCallers))
			}
			d.calledBy("") // a call of no topic
		})
	}
	all.Wait()
	kept := d.topics.Load()
	if got := slices.Sorted(slices.Values(kept.topics)); len(slices.Compact(got)) != maxCallers || len(kept.topics) != maxCallers || kept.more {
		t.Errorf("kept are %q, more %v", kept.topics, kept.more)
	}
	d.calledBy("another")
	if after := d.topics.Load(); !after.more || !slices.Equal(after.topics, kept.topics) {
		t.Errorf("after another, kept are %q, more %v", after.topics, after.more)
	}
}

// lastingClose is a connection whose end lasts until a channel is closed.
type lastingClose struct {
	net.Conn
	until chan struct{}
}

func (c lastingClose) Close() error {
	<-c.until
	return c.Conn.Close()
}

// TestAcquireClosesNoConnection: the call that takes the place of an idle destination closes its
// connections, and not who asks for the call, who may be a shard.
func TestAcquireClosesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, until := &memory{serve: always(answer200)}, make(chan struct{})
		p := startPool(t, Config{MaxDestinations: 1, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := m.dial(ctx, network, address)
			return lastingClose{conn, until}, err
		}})
		callOnce(t, p, post("http://d1.example/"))
		synctest.Wait() // until its destination is idle
		given := make(chan Permit, 1)
		go func() { given <- mustPermit(t, p, destinationKey(2), 0) }()
		var permit Permit
		select {
		case permit = <-given:
		case <-time.After(time.Second):
			close(until)
			t.Fatal("a permit waits until a connection is closed")
		}
		out := make(chan Outcome, 1)
		permit.Start(post("http://d2.example/"), func(o Outcome) { out <- o })
		close(until)
		if o := <-out; o.Status != 200 || p.idleConns.Load() != 1 {
			t.Errorf("%+v, %d idle connections", o, p.idleConns.Load())
		}
		mustPermit(t, p, destinationKey(3), 0).Cancel()
		if p.idleConns.Load() != 0 {
			t.Error("a call that was not made left connections of the destination whose place it took")
		}
	})
}
