package slots

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// gate is a breaker that a test opens and closes.
type gate struct{ open bool }

func (g *gate) Blocked() bool { return g.open }
func (g *gate) Allow() func(error) {
	if g.open {
		return nil
	}
	return func(error) {}
}

// table is a node's slots under test.
type table struct {
	*Slots
	testing.TB
	held    []Slot
	refused int
}

func newTable(t testing.TB, max int) *table {
	x := &table{TB: t}
	x.Slots = New(max, func(Breaker) { x.refused++ })
	return x
}

// receiver makes a destination.
func receiver(answered bool) *Destination { return &Destination{answered: answered} }

var closed = &gate{}

func (t *table) ask(d *Destination, of Share, waiter any) (Slot, Result) {
	return t.Acquire(Request{Destination: d, Breaker: closed, Limit: 1 << 20, Share: of}, waiter)
}

// takeAll takes slots for a topic until there is none, each at the destination that next returns.
func (t *table) takeAll(of Share, next func() *Destination) (taken int) {
	for waiter := fmt.Sprintf("%v", of); ; taken++ {
		slot, result := t.ask(next(), of, waiter)
		if result != Granted {
			t.Forget(waiter)
			return taken
		}
		t.held = append(t.held, slot)
	}
}

func same(d *Destination) func() *Destination { return func() *Destination { return d } }

func others(answered bool) func() *Destination {
	return func() *Destination { return receiver(answered) }
}

func topic(n int) Share { return Share{Topic: uint64(n)} }

// TestWhateverOneTakesAPartIsLeft: the whole of the table in doc.go, with 2,048 calls.
func TestWhateverOneTakesAPartIsLeft(t *testing.T) {
	f := func(name string, want int, of Share, next func() *Destination, before ...func(*table)) {
		t.Helper()
		x := newTable(t, 2048)
		for _, do := range before {
			do(x)
		}
		if got := x.takeAll(of, next); got != want {
			t.Errorf("%s: %d calls, want %d", name, got, want)
		}
	}
	hog := func(of Share, next func() *Destination) func(*table) {
		return func(x *table) { x.takeAll(of, next) }
	}
	many := func(n int, tenant string, next func() *Destination) func(*table) {
		return func(x *table) {
			for i := range n {
				x.takeAll(Share{tenant, uint64(100 + i)}, next)
			}
		}
	}
	f("one receiver alone", 1536, topic(1), same(receiver(true)))
	f("a topic with many receivers", 1792, topic(1), others(true))
	f("a receiver that has not answered", 768, topic(1), same(receiver(false)))
	f("receivers that hang", 896, topic(1), others(false))
	f("a topic beside one with many receivers", 192, topic(2), same(receiver(true)), hog(topic(1), others(true)))
	f("a topic beside one whose receivers hang", 864, topic(2), same(receiver(true)), hog(topic(1), others(false)))
	f("a topic beside one with receivers that answer and others", 192, topic(2), same(receiver(true)), hog(topic(1), others(true)), hog(topic(1), others(false)))
	f("a topic beside one with others and receivers that answer", 192, topic(2), same(receiver(true)), hog(topic(1), others(false)), hog(topic(1), others(true)))
	f("an unknown receiver beside those that hang", 112, topic(2), others(false), hog(topic(1), others(false)))
	f("a receiver that answers beside a thousand topics whose receivers hang", 768, topic(2), same(receiver(true)), many(1000, "", others(false)))
	f("a tenant with one topic", 1536, Share{"a", 1}, others(true))
	f("one more topic of a tenant with a thousand", 0, Share{"a", 1}, others(true), many(1000, "a", others(true)))
	f("another tenant beside it", 192, Share{"b", 2}, same(receiver(true)), many(1000, "a", others(true)))
	f("a new receiver of another tenant beside a thousand topics that hang", 96, Share{"b", 2}, same(receiver(false)), many(1000, "a", others(false)))
	f("few are not divided", 10, topic(1), same(receiver(false)), func(x *table) { x.Slots = New(10, nil) })
}

// TestLongCallsArePartOfTheRisk: a long time-out counts as not answering.
func TestLongCallsArePartOfTheRisk(t *testing.T) {
	x := newTable(t, 256)
	long := 0
	for {
		_, result := x.Acquire(Request{Destination: receiver(true), Breaker: closed, Limit: 1, Long: true, Share: topic(long % 40)}, "w")
		if result != Granted {
			break
		}
		long++
	}
	if long > 128 {
		t.Errorf("%d long calls of 256", long)
	}
	if _, result := x.ask(receiver(true), topic(999), "v"); result != Granted {
		t.Error("no slot for a short one")
	}
}

// TestAnswersMoveADestination: with its new calls, and with its waiters.
func TestAnswersMoveADestination(t *testing.T) {
	x := newTable(t, 64)
	d := receiver(false)
	first, _ := x.ask(d, topic(1), "first")
	x.takeAll(topic(2), others(false))
	x.takeAll(topic(3), others(false))
	x.takeAll(topic(1), same(d))
	if _, result := x.ask(d, topic(1), "waiter"); result != Waits {
		t.Fatal("not all is taken")
	}
	x.Release(first, Answered)
	grants := x.Serve(nil)
	if len(grants) != 1 || grants[0].Waiter != "waiter" || grants[0].Slot.class != steady {
		t.Fatalf("%+v", grants)
	}
	x.Release(grants[0].Slot, Unknown) // it says nothing
	slot, _ := x.ask(d, topic(1), "waiter")
	if slot.class != steady {
		t.Errorf("class %d of one that answers", slot.class)
	}
	x.Release(slot, Silent)
	if slot, _ = x.ask(d, topic(4), "waiter"); slot.class != risky {
		t.Errorf("class %d of one that fell silent", slot.class)
	}
}

// TestTurns: tenants in turn, in each its topics, in each their destinations.
func TestTurns(t *testing.T) {
	x := newTable(t, 10) // too few for shares: all is a matter of turn
	x.takeAll(topic(9), others(true))
	place := 0
	for _, of := range []Share{{"a", 1}, {"a", 2}, {"b", 3}} {
		for range 2 {
			d := receiver(true)
			for range 3 {
				place++
				x.ask(d, of, [3]any{of, d, place})
			}
		}
	}
	var tenants, topics string
	seen := map[*Destination]int{}
	for range 18 {
		x.Release(x.held[0], Unknown)
		x.held = x.held[1:]
		grants := x.Serve(nil)
		if len(grants) != 1 {
			t.Fatalf("%d grants", len(grants))
		}
		x.held = append(x.held, grants[0].Slot)
		w := grants[0].Waiter.([3]any)
		tenants += w[0].(Share).Tenant
		topics += fmt.Sprint(w[0].(Share).Topic)
		seen[w[1].(*Destination)]++
		if len(topics) == 12 && len(seen) != 6 {
			t.Errorf("after twelve only %d destinations were served", len(seen))
		}
	}
	if tenants != "ababababababaaaaaa" || topics != "132313231323121212" {
		t.Errorf("tenants %s, topics %s", tenants, topics)
	}
}

// TestAcquireModel draws requests, ends and withdrawals, and checks after every step that no bound
// is passed, that the counts agree, and that no waiter that may have a slot is left waiting.
func TestAcquireModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.IntRange(1, 60).Draw(t, "max")
		open := map[Breaker]bool{}
		s := New(max, func(b Breaker) { open[b] = true })
		var destinations []*Destination
		for range 6 {
			destinations = append(destinations, receiver(rapid.Bool().Draw(t, "answered")))
		}
		gates := []*gate{{}, {}}
		shares := []Share{{"", 1}, {"", 2}, {"a", 3}, {"a", 4}, {"b", 5}}
		limits := []int{1, 3, 40}
		var held []Slot
		waits := map[int]bool{}
		serve := func() {
			for _, g := range s.Serve(nil) {
				held = append(held, g.Slot)
				if !waits[g.Waiter.(int)] {
					t.Fatal("a slot for one that does not wait")
				}
				delete(waits, g.Waiter.(int)) // at one destination at a time here
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 7).Draw(t, "op"); {
			case op <= 3:
				w := rapid.IntRange(0, 20).Draw(t, "waiter")
				if waits[w] {
					continue
				}
				r := Request{
					Destination: destinations[rapid.IntRange(0, 5).Draw(t, "destination")], Breaker: gates[rapid.IntRange(0, 1).Draw(t, "gate")],
					Limit: limits[rapid.IntRange(0, 2).Draw(t, "limit")], Long: rapid.Bool().Draw(t, "long"),
					Share: shares[rapid.IntRange(0, 4).Draw(t, "share")],
				}
				switch slot, result := s.Acquire(r, w); result {
				case Granted:
					held = append(held, slot)
				case Waits:
					waits[w] = true
				}
			case op <= 5 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "held")
				slot := held[i]
				held = append(held[:i], held[i+1:]...)
				s.Release(slot, Answer(rapid.IntRange(0, 2).Draw(t, "answer")))
				serve()
			case op == 6:
				w := rapid.IntRange(0, 20).Draw(t, "waiter")
				if s.Forget(w) != waits[w] {
					t.Fatal("Forget disagrees")
				}
				delete(waits, w)
			case op == 7:
				g := gates[rapid.IntRange(0, 1).Draw(t, "gate")]
				if g.open = !g.open; !g.open {
					delete(open, g)
					for _, d := range destinations {
						s.Wake(d)
					}
					serve()
				}
			}
			check(t, s, held, len(waits), destinations)
		}
		for _, g := range gates {
			g.open = false
		}
		for _, d := range destinations {
			s.Wake(d)
		}
		serve()
		for len(held) > 0 {
			slot := held[0]
			held = held[1:]
			s.Release(slot, Unknown)
			serve()
			check(t, s, held, len(waits), destinations)
		}
		if len(waits) > 0 || s.busy != 0 || s.calls != (counts{}) {
			t.Fatalf("left over: %d waiters, %d destinations, %d calls", len(waits), s.busy, s.calls[steady])
		}
	})
}

func check(t *rapid.T, s *Slots, held []Slot, waiting int, destinations []*Destination) {
	var all counts
	perShare, perTenant := map[*share]counts{}, map[*tenant]counts{}
	for _, slot := range held {
		n, m := perShare[slot.share], perTenant[slot.share.tenant]
		for _, c := range []*counts{&all, &n, &m} {
			c[steady]++
			if slot.class == risky {
				c[risky]++
			}
		}
		perShare[slot.share], perTenant[slot.share.tenant] = n, m
	}
	if s.calls != all || all[steady] > s.max[steady] || all[risky] > s.max[risky] || len(s.waiting) != waiting {
		t.Fatalf("%v calls of %v, %v held; %d wait, %d by the model", s.calls, s.max, all, len(s.waiting), waiting)
	}
	for sh, n := range perShare {
		if sh.calls != n || s.shares[sh.of] != sh {
			t.Fatalf("%v has %v calls, counted %v", sh.of, sh.calls, n)
		}
	}
	for x, n := range perTenant {
		if x.calls != n || s.tenants[x.name] != x {
			t.Fatalf("tenant %q has %v calls, counted %v", x.name, x.calls, n)
		}
	}
	busy := 0
	for _, d := range destinations {
		if !d.idle() {
			busy++
		}
		sum, within := 0, 0
		for _, c := range d.limits {
			sum += c.calls
			if within += c.calls; within > c.limit {
				t.Fatalf("%d calls under limit %d", within, c.limit)
			}
		}
		if sum != d.calls {
			t.Fatalf("limits have %d calls, the destination %d", sum, d.calls)
		}
		for _, q := range d.queues {
			may := d.room(q.limit) && s.may(q.share, d, d.class(q.long))
			if q.first == nil || may && !q.breaker.Blocked() {
				t.Fatalf("somebody waits who may have a slot: %v of %v calls are out", s.calls, s.max)
			}
		}
	}
	if busy != s.busy {
		t.Fatalf("%d destinations are busy, %d by the count", busy, s.busy)
	}
}

// TestSharesAreBounded: topics and tenants that have nothing are forgotten.
func TestSharesAreBounded(t *testing.T) {
	x := newTable(t, 2048)
	for i := range 3 * keptShares {
		slot, _ := x.ask(receiver(true), Share{fmt.Sprint(i / 2), uint64(i)}, "w")
		x.Release(slot, Answered)
	}
	if len(x.shares) > keptShares+1 || len(x.tenants) > len(x.shares) {
		t.Errorf("%d shares, %d tenants", len(x.shares), len(x.tenants))
	}
}

// TestOneTopicLeavesAPart: for all kinds of calls, in any order and with any end.
func TestOneTopicLeavesAPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.IntRange(reserveFrom, 300).Draw(t, "max")
		s := New(max, func(Breaker) {})
		hog := Share{[]string{"", "hog"}[rapid.IntRange(0, 1).Draw(t, "tenant")], 1}
		var destinations []*Destination
		for range rapid.IntRange(1, 400).Draw(t, "destinations") {
			destinations = append(destinations, receiver(rapid.Bool().Draw(t, "answered")))
		}
		var held []Slot
		serve := func() {
			for _, g := range s.Serve(nil) {
				held = append(held, g.Slot)
			}
		}
		for step := range rapid.IntRange(max, 3*max).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 5).Draw(t, "ends") == 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "held")
				slot := held[i]
				held = append(held[:i], held[i+1:]...)
				s.Release(slot, Answer(rapid.IntRange(0, 2).Draw(t, "answer")))
				serve()
				continue
			}
			d := destinations[rapid.IntRange(0, len(destinations)-1).Draw(t, "destination")]
			slot, result := s.Acquire(Request{Destination: d, Breaker: closed, Limit: 40, Long: rapid.IntRange(0, 3).Draw(t, "long") == 0, Share: hog}, step)
			if result == Granted {
				held = append(held, slot)
			}
		}
		for _, answers := range []bool{true, false} {
			slot, result := s.Acquire(Request{Destination: receiver(answers), Breaker: closed, Limit: 1, Share: Share{"other", 2}}, "other")
			if result != Granted {
				t.Fatalf("another's call to a receiver that answers (%v) waits, with %v of %v out", answers, s.calls, s.max)
			}
			s.Release(slot, Unknown)
		}
	})
}

// TestDestinationsAreDivided: one topic's waiters do not take all the destinations that are kept.
func TestDestinationsAreDivided(t *testing.T) {
	const kept = 1000
	x := newTable(t, 16)
	opened := 0
	for x.MayOpen(topic(1), kept) {
		if x.ask(receiver(false), topic(1), opened); opened == kept {
			break
		}
		opened++
	}
	if opened < kept/2 || opened > kept*3/4+16 {
		t.Errorf("one topic has %d of %d destinations", opened, kept)
	}
	if !x.MayOpen(topic(2), kept) {
		t.Error("none is left for another")
	}
}
