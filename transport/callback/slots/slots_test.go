package slots

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fuse is a breaker that a test opens and closes. probes bounds its calls at once; 0 does not.
type fuse struct {
	open          bool
	probes, calls int
}

func (f *fuse) Blocked() bool { return f.open }
func (f *fuse) Allow() func(error) {
	if f.open || f.probes > 0 && f.calls >= f.probes {
		return nil
	}
	f.calls++
	return func(error) { f.calls-- }
}

// bench is a node's slots under test.
type bench struct {
	*Slots
	held []Slot
}

// receiver makes a destination.
func receiver(answered bool) *Destination { return &Destination{answered: answered} }

var closed = &fuse{}

func (b *bench) ask(d *Destination, of Share, who any) (Slot, Result) {
	slot, result, _ := b.Acquire(&Request{Destination: d, Breaker: closed, Limit: 1 << 20, Share: of, Waiter: who, Topic: who})
	return slot, result
}

func (b *bench) serve() []Grant { return b.Serve(nil, func(Breaker) {}) }

// takeAll takes slots for a topic until there is none, each at the destination that next returns.
func (b *bench) takeAll(of Share, next func() *Destination) (taken int) {
	for ; ; taken++ {
		slot, result := b.ask(next(), of, of)
		if result != Granted {
			return taken
		}
		b.held = append(b.held, slot)
	}
}

func same(d *Destination) func() *Destination { return func() *Destination { return d } }

func others(answered bool) func() *Destination {
	return func() *Destination { return receiver(answered) }
}

func topic(n int) Share { return Share{Topic: uint64(n)} }

// TestWhateverOneTakesAPartIsLeft: what one may have of 2,048 slots, and what is left beside it.
func TestWhateverOneTakesAPartIsLeft(t *testing.T) {
	f := func(name string, want int, of Share, next func() *Destination, before ...func(*bench)) {
		t.Helper()
		b := &bench{Slots: New(2048)}
		for _, do := range before {
			do(b)
		}
		if got := b.takeAll(of, next); got != want {
			t.Errorf("%s: %d calls, want %d", name, got, want)
		}
	}
	hog := func(of Share, next func() *Destination) func(*bench) {
		return func(b *bench) { b.takeAll(of, next) }
	}
	many := func(n int, tenant string, next func() *Destination) func(*bench) {
		return func(b *bench) {
			for i := range n {
				b.takeAll(Share{tenant, uint64(100 + i)}, next)
			}
		}
	}
	f("one receiver alone", 768, topic(1), same(receiver(true)))
	f("a topic with many receivers", 896, topic(1), others(true))
	f("a receiver that has not answered", 768, topic(1), same(receiver(false)))
	f("receivers that hang", 896, topic(1), others(false))
	f("another receiver of a topic beside one", 128, topic(1), same(receiver(true)), hog(topic(1), same(receiver(true))))
	f("a topic beside one with many receivers", 96, topic(2), same(receiver(true)), hog(topic(1), others(true)))
	f("a topic beside one whose receivers hang", 768, topic(2), same(receiver(true)), hog(topic(1), others(false)))
	f("an unknown receiver beside those that hang", 112, topic(2), others(false), hog(topic(1), others(false)))
	f("a receiver that answers beside a thousand topics whose receivers hang", 768, topic(2), same(receiver(true)), many(1000, "", others(false)))
	f("a tenant with one topic", 896, Share{"a", 1}, others(true))
	f("one more topic of a tenant with a thousand", 0, Share{"a", 1}, others(true), many(1000, "a", others(true)))
	f("another tenant beside it", 48, Share{"b", 2}, same(receiver(true)), many(1000, "a", others(true)))
	f("a new receiver of another tenant beside a thousand topics that hang", 48, Share{"b", 2}, same(receiver(false)), many(1000, "a", others(false)))
	f("few are not divided", 10, topic(1), same(receiver(false)), func(b *bench) { b.Slots = New(10) })
}

// TestLongCallsArePartOfTheRisk: a long time-out counts as not answering.
func TestLongCallsArePartOfTheRisk(t *testing.T) {
	b := &bench{Slots: New(256)}
	long := 0
	for {
		_, result, _ := b.Acquire(&Request{Destination: receiver(true), Breaker: closed, Limit: 1, Long: true, Share: topic(long % 40), Topic: long})
		if result != Granted {
			break
		}
		long++
	}
	if long > 128 {
		t.Errorf("%d long calls of 256", long)
	}
	if _, result := b.ask(receiver(true), topic(999), "v"); result != Granted {
		t.Error("no slot for a short one")
	}
}

// TestAnswersMoveADestination: with its new calls, and with its waiters.
func TestAnswersMoveADestination(t *testing.T) {
	b := &bench{Slots: New(64)}
	d := receiver(false)
	first, _ := b.ask(d, topic(1), "first")
	for n := range 30 {
		b.takeAll(topic(2+n), others(false))
	}
	if _, result := b.ask(d, topic(1), "waiter"); result != AtReceiver {
		t.Fatal("not all is taken")
	}
	b.Release(first, Answered)
	grants := b.serve()
	if len(grants) == 0 || grants[0].Waiter != "waiter" || grants[0].Class != steady {
		t.Fatalf("%+v", grants)
	}
	b.Release(grants[0].Slot, Silent)
	if d.class(false) != risky {
		t.Errorf("a receiver that fell silent is of class %d", d.class(false))
	}
}

// TestTurns: tenants in turn, in each its topics.
func TestTurns(t *testing.T) {
	b := &bench{Slots: New(10)} // too few for needs to differ: all is a matter of turn
	for range 10 {
		slot, _ := b.ask(receiver(true), topic(9), "")
		b.held = append(b.held, slot)
	}
	shares := []Share{{"a", 1}, {"a", 2}, {"b", 3}}
	ask := func(of Share) { b.ask(receiver(true), of, of) }
	for _, of := range shares {
		ask(of)
	}
	var tenants, topics string
	for range 12 {
		b.Release(b.held[0], Unknown)
		b.held = b.held[1:]
		grants := b.serve()
		if len(grants) != 1 || !grants[0].Topic {
			t.Fatalf("%d grants", len(grants))
		}
		of := grants[0].Waiter.(Share)
		slot, result, _ := b.Acquire(&Request{Destination: receiver(true), Breaker: closed, Limit: 1, Share: of, Waiter: of, Topic: of, Credit: grants[0].Slot})
		if result != Granted {
			t.Fatal("a credit was not used")
		}
		b.held = append(b.held, slot)
		tenants += of.Tenant
		topics += fmt.Sprint(of.Topic)
		ask(of)
	}
	if tenants != "abababababab" || topics != "132313231323" {
		t.Errorf("tenants %s, topics %s", tenants, topics)
	}
}

// TestPriorityOfFewCalls: one that has few calls is served before one that has many.
func TestPriorityOfFewCalls(t *testing.T) {
	b := &bench{Slots: New(2048)}
	big, small := Share{"big", 1}, Share{"small", 2}
	b.takeAll(big, others(true))
	b.takeAll(small, others(true))
	for range 60 {
		b.Release(b.held[0], Unknown) // of big
		b.held = b.held[1:]
		for _, g := range b.serve() {
			if g.Waiter != small {
				t.Fatalf("%v was served before one with fewer calls", g.Waiter)
			}
			b.held = append(b.held, g.Slot)
			b.ask(receiver(true), small, small)
		}
	}
}

// TestABreakerParksItsWaiters: others of the receiver go on, and its waiters are handed back.
func TestABreakerParksItsWaiters(t *testing.T) {
	b := &bench{Slots: New(10)}
	d, sick := receiver(true), &fuse{}
	ask := func(f *fuse, topic uint64, who string) (Slot, Result) {
		slot, result, _ := b.Acquire(&Request{Destination: d, Breaker: f, Limit: 2, Share: Share{Topic: topic}, Waiter: who, Topic: who})
		return slot, result
	}
	one, _ := ask(sick, 1, "")
	two, _ := ask(closed, 2, "")
	for n := range 5 {
		ask(sick, 1, fmt.Sprint("sick", n))
	}
	ask(closed, 2, "well")
	sick.open = true
	one.Report(nil)
	b.Release(one, Silent)
	if !b.Wake(d, sick) {
		t.Fatal("nobody is told that the breaker is open")
	}
	if grants := b.serve(); len(grants) != 1 || grants[0].Waiter != "well" {
		t.Fatalf("%+v", grants)
	}
	if list := b.TakeRefused(d, sick, 3); fmt.Sprint(list) != "[sick0 sick1 sick2]" {
		t.Errorf("%v", list)
	}
	if list := b.TakeRefused(d, sick, 3); fmt.Sprint(list) != "[sick3 sick4]" || d.Waits() {
		t.Errorf("%v", list)
	}
	if _, result := ask(sick, 1, "late"); result != Refused {
		t.Error("an open breaker lets somebody wait")
	}
	sick.open, sick.probes = false, 1 // half-open
	b.Release(two, Answered)
	probe, result := ask(sick, 1, "")
	if result != Granted {
		t.Fatal("no probe")
	}
	for _, who := range []string{"x", "y"} {
		if _, result := ask(sick, 1, who); result != AtReceiver {
			t.Fatal("one does not wait for a probe")
		}
	}
	if len(b.serve()) != 0 {
		t.Fatal("two probes at once")
	}
	sick.probes = 0
	probe.Report(nil)
	b.Release(probe, Answered)
	b.Wake(d, sick)
	if grants := b.serve(); len(grants) == 0 || grants[0].Waiter != "x" {
		t.Errorf("%+v", grants)
	}
}

// TestAcquireModel draws requests, ends and breakers, and checks after every step that no bound is
// passed, that the counts agree, and that nobody waits who may have a slot.
func TestAcquireModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(rapid.IntRange(1, 80).Draw(t, "max"))
		var destinations []*Destination
		for range 6 {
			destinations = append(destinations, receiver(rapid.Bool().Draw(t, "answered")))
		}
		fuses := []*fuse{{}, {probes: 2}}
		shares := []Share{{"", 1}, {"", 2}, {"a", 3}, {"a", 4}, {"b", 5}}
		limits := []int{1, 3, 40}
		var held []Slot
		var credits []Grant
		waits, asks := map[any]bool{}, map[any]bool{}
		hold := func(slot Slot) {
			if d := slot.standing.gate.destination; d.calls > d.most() || slot.standing.calls > slot.standing.limit {
				t.Fatalf("%d calls at a receiver, %d of the topic, by limits %v", d.calls, slot.standing.calls, d.limits)
			}
			held = append(held, slot)
		}
		serve := func() {
			for _, g := range s.Serve(nil, func(Breaker) {}) {
				if g.Topic {
					if !asks[[2]any{g.Waiter, g.Class}] {
						t.Fatal("a credit for one that does not wait")
					}
					delete(asks, [2]any{g.Waiter, g.Class})
					credits = append(credits, g)
					continue
				}
				if !waits[g.Waiter] {
					t.Fatal("a slot for one that does not wait")
				}
				delete(waits, g.Waiter)
				hold(g.Slot)
			}
		}
		ask := func(who int, of Share, credit Slot) bool {
			r := Request{
				Destination: destinations[rapid.IntRange(0, 5).Draw(t, "destination")], Breaker: fuses[rapid.IntRange(0, 1).Draw(t, "fuse")],
				Limit: limits[rapid.IntRange(0, 2).Draw(t, "limit")], Long: rapid.Bool().Draw(t, "long"),
				Share: of, Waiter: who, Topic: of, Credit: credit,
			}
			slot, result, class := s.Acquire(&r)
			switch result {
			case Granted:
				hold(slot)
			case AtReceiver:
				waits[who] = true
			case AtNode:
				asks[[2]any{of, class}] = true
			}
			return result == Granted
		}
		end := func(i int) {
			slot := held[i]
			held = append(held[:i], held[i+1:]...)
			slot.Report(nil)
			s.Release(slot, Answer(rapid.IntRange(0, 2).Draw(t, "answer")))
			d, b := slot.standing.gate.destination, slot.Breaker()
			if s.Wake(d, b) {
				for _, who := range s.TakeRefused(d, b, 1<<20) {
					delete(waits, who)
				}
			}
			serve()
		}
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 8).Draw(t, "op"); {
			case op <= 3:
				ask(step, shares[rapid.IntRange(0, 4).Draw(t, "share")], Slot{})
				serve()
			case op <= 5 && len(held) > 0:
				end(rapid.IntRange(0, len(held)-1).Draw(t, "held"))
			case op <= 7 && len(credits) > 0:
				c := credits[0]
				credits = credits[1:]
				if op == 6 || !ask(step, c.Waiter.(Share), c.Slot) {
					s.Release(c.Slot, Unknown)
				}
				serve()
			case op == 8:
				f := fuses[rapid.IntRange(0, 1).Draw(t, "fuse")]
				f.open = !f.open
				for _, d := range destinations {
					if s.Wake(d, f) {
						for _, who := range s.TakeRefused(d, f, 1<<20) {
							delete(waits, who)
						}
					}
				}
				serve()
			}
			check(t, s, held, credits, len(waits), len(asks), destinations)
		}
		for _, f := range fuses {
			f.open, f.probes = false, 0
			for _, d := range destinations {
				s.Wake(d, f)
			}
		}
		serve()
		for len(held)+len(credits) > 0 {
			for _, c := range credits {
				s.Release(c.Slot, Unknown)
			}
			credits = nil
			serve()
			if len(held) > 0 {
				end(0)
			}
		}
		if len(waits)+len(asks) > 0 || s.Calls() != 0 {
			t.Fatalf("left over: %d and %d wait, %d calls", len(waits), len(asks), s.Calls())
		}
		for _, d := range destinations {
			if len(d.gates) > 0 || len(d.limits) > 0 || d.Waits() || d.claim.share != nil {
				t.Fatalf("a receiver keeps %+v", d)
			}
		}
	})
}

func check(t *rapid.T, s *Slots, held []Slot, credits []Grant, waiting, asking int, destinations []*Destination) {
	calls := map[*share]int{}
	for _, slot := range held {
		calls[slot.share]++
	}
	for _, c := range credits {
		calls[c.Slot.share]++
	}
	claims := 0
	for class := range s.halves {
		h := &s.halves[class]
		sum, tenants := 0, map[*tenant]int{}
		for of, sh := range h.shares {
			if sh.calls != calls[sh] || sh.of != of {
				t.Fatalf("%v has %d calls, counted %d", of, sh.calls, calls[sh])
			}
			sum += sh.calls
			tenants[sh.tenant] += sh.calls
			claims += len(sh.asking)
		}
		if h.calls != sum || sum > h.max {
			t.Fatalf("class %d has %d calls of %d, counted %d", class, h.calls, h.max, sum)
		}
		for name, x := range h.tenants {
			if x.calls != tenants[x] {
				t.Fatalf("tenant %q has %d calls, counted %d", name, x.calls, tenants[x])
			}
		}
		for _, sh := range h.shares {
			for i := range sh.claims.Len() {
				if c := sh.claims.At(i); h.may(sh, claimed(c)) {
					t.Fatalf("a claim waits that may have one of %d slots: %+v", h.free(), c)
				}
			}
		}
	}
	if s.waiting != waiting || claims != asking {
		t.Fatalf("%d wait at receivers and %d at the node, want %d and %d", s.waiting, claims, waiting, asking)
	}
	for _, d := range destinations {
		sum := 0
		for _, g := range d.gates {
			for _, st := range g.topics {
				sum += st.calls
			}
		}
		if sum != d.calls {
			t.Fatalf("topics have %d calls at a receiver, it has %d", sum, d.calls)
		}
		if next := d.next(); (next != nil) != (d.claim.share != nil) {
			t.Fatalf("a receiver with room claims no slot: %+v", d)
		}
	}
}

func claimed(c *claim) int {
	if c.destination == nil {
		return 0
	}
	return c.destination.calls
}

// TestSharesAreBounded: topics and tenants that have nothing are forgotten.
func TestSharesAreBounded(t *testing.T) {
	b := &bench{Slots: New(2048)}
	for i := range 3 * keptShares {
		slot, _ := b.ask(receiver(true), Share{fmt.Sprint(i / 2), uint64(i)}, "w")
		b.Release(slot, Answered)
	}
	if h := &b.halves[steady]; len(h.shares) > keptShares+1 || len(h.tenants) > len(h.shares) {
		t.Errorf("%d shares, %d tenants", len(h.shares), len(h.tenants))
	}
}

// TestHandOutCost holds that handing a slot on does not depend on how many tenants, topics,
// receivers or waiters there are, but for its logarithm and for caches that are full: with 64 times
// as many it may take ten times as long, and no list is walked.
func TestHandOutCost(t *testing.T) {
	waitersOf := map[string]func(b *bench, i int){
		"tenants":           func(b *bench, i int) { of := Share{fmt.Sprint(i), uint64(i)}; b.ask(receiver(true), of, i) },
		"topics":            func(b *bench, i int) { b.ask(receiver(true), Share{"a", uint64(i)}, i) },
		"shards of a topic": func(b *bench, i int) { b.ask(receiver(true), Share{"a", 1}, i) },
	}
	busy := receiver(true)
	waitersOf["topics at a receiver"] = func(b *bench, i int) {
		b.Acquire(&Request{Destination: busy, Breaker: closed, Limit: 1, Share: Share{"a", uint64(i)}, Waiter: i, Topic: i})
	}
	waitersOf["breakers at a receiver"] = func(b *bench, i int) {
		b.Acquire(&Request{Destination: busy, Breaker: &fuse{}, Limit: 1, Share: Share{"a", uint64(i)}, Waiter: i, Topic: i})
	}
	for name, add := range waitersOf {
		took := func(n int) time.Duration {
			least := time.Hour
			for range 3 {
				*busy = Destination{answered: true}
				b := &bench{Slots: New(64)}
				b.takeAll(topic(1), others(true))
				slot, _ := b.ask(busy, topic(1), "first")
				for i := range n {
					add(b, i)
				}
				hold := append(b.held, slot)
				begun := time.Now()
				for range 64 {
					for i := range hold {
						if hold[i].Valid() {
							b.Release(hold[i], Unknown)
							hold[i] = Slot{}
							break
						}
					}
					for _, g := range b.serve() {
						hold = append(hold, g.Slot)
					}
				}
				least = min(least, time.Since(begun))
			}
			return least
		}
		few, many := took(500), took(32_000)
		for tries := 0; tries < 5 && many > 10*few+200*time.Microsecond; tries++ { // on a busy machine
			many = min(many, took(32_000))
		}
		t.Logf("%s: %v with 500, %v with 32,000", name, few/64, many/64)
		if many > 10*few+200*time.Microsecond {
			t.Errorf("%s: a hand-out takes %v with 500 and %v with 32,000", name, few/64, many/64)
		}
	}
}
