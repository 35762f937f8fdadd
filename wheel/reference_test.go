package wheel

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
)

// entry is a timer of the reference. Its key is the tick at which it becomes due
// (not its own tick if that was past already) and, within the tick, its arrival.
type entry struct {
	handle  Handle
	when    Tick // as asked, not before the epoch
	dueAt   Tick
	arrival int
	index   int // in the heap
}

type entries []*entry

func (e entries) Len() int { return len(e) }
func (e entries) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].dueAt, e[j].dueAt), cmp.Compare(e[i].arrival, e[j].arrival)) < 0
}
func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}
func (e *entries) Push(x any) {
	x.(*entry).index = len(*e)
	*e = append(*e, x.(*entry))
}
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// failer is the part of a test, a fuzz run or a property that a twin needs.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// differential drives a wheel and a container/heap side by side and fails on the first
// difference that can be seen from outside, or that Audit sees inside.
type differential struct {
	t       failer
	wheel   *Wheel
	order   entries
	byName  map[Handle]*entry
	arrival int
	trace   []string
}

func newTwin(t failer, now Tick) *differential {
	return &differential{t: t, wheel: New(now), byName: map[Handle]*entry{}, trace: []string{fmt.Sprintf("new %d", now)}}
}

func (tw *differential) logf(format string, args ...any) {
	tw.trace = append(tw.trace, fmt.Sprintf(format, args...))
}

func (tw *differential) failf(format string, args ...any) {
	tw.t.Helper()
	tw.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(tw.trace, "; "))
}

func (tw *differential) add(h Handle, when Tick) {
	tw.logf("add %d at %d", h, when)
	tw.wheel.Add(h, when)
	e := &entry{handle: h, when: max(when, 0), dueAt: max(when, tw.wheel.Now()), arrival: tw.arrival}
	tw.arrival++
	tw.byName[h] = e
	heap.Push(&tw.order, e)
}

func (tw *differential) forget(h Handle) bool {
	e, in := tw.byName[h]
	if in {
		delete(tw.byName, h)
		heap.Remove(&tw.order, e.index)
	}
	return in
}

func (tw *differential) remove(h Handle) {
	tw.logf("remove %d", h)
	want := tw.forget(h)
	if got := tw.wheel.Remove(h); got != want {
		tw.failf("Remove(%d) = %t, want %t", h, got, want)
	}
}

func (tw *differential) move(h Handle, when Tick) {
	tw.logf("move %d to %d", h, when)
	tw.wheel.Move(h, when)
	tw.forget(h)
	e := &entry{handle: h, when: max(when, 0), dueAt: max(when, tw.wheel.Now()), arrival: tw.arrival}
	tw.arrival++
	tw.byName[h] = e
	heap.Push(&tw.order, e)
}

// put adds h, or moves it if it is in.
func (tw *differential) put(h Handle, when Tick) {
	if tw.byName[h] != nil {
		tw.move(h, when)
	} else {
		tw.add(h, when)
	}
}

func (tw *differential) advance(to Tick, budget int) (done bool) {
	tw.logf("advance to %d budget %d", to, budget)
	before := tw.wheel.Now()
	spent, done := tw.wheel.Advance(to, budget)
	now := tw.wheel.Now()
	switch {
	case spent < 0 || spent > max(budget, 0):
		tw.failf("spent %d of budget %d", spent, budget)
	case !done && spent < budget:
		tw.failf("stopped at %d with %d of budget %d spent", now, spent, budget)
	case now < before || now > max(to, before):
		tw.failf("time went from %d to %d on the way to %d", before, now, to)
	case done != (now >= to):
		tw.failf("done = %t at %d on the way to %d", done, now, to)
	}
	return done
}

func (tw *differential) pop(n int) {
	tw.logf("pop %d", n)
	var want []Handle
	for len(want) < n && len(tw.order) > 0 && tw.order[0].dueAt <= tw.wheel.Now() {
		e := heap.Pop(&tw.order).(*entry)
		delete(tw.byName, e.handle)
		want = append(want, e.handle)
	}
	got := make([]Handle, n)
	got = got[:tw.wheel.Pop(got)]
	if !slices.Equal(got, want) {
		tw.failf("Pop(%d) = %v, want %v", n, got, want)
	}
}

func (tw *differential) popLast(n int) {
	tw.logf("pop last %d", n)
	var due entries
	for _, e := range tw.order {
		if e.dueAt <= tw.wheel.Now() {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int {
		return -cmp.Or(cmp.Compare(a.dueAt, b.dueAt), cmp.Compare(a.arrival, b.arrival))
	})
	var want []Handle
	for _, e := range due[:min(n, len(due))] {
		tw.forget(e.handle)
		want = append(want, e.handle)
	}
	got := make([]Handle, n)
	got = got[:tw.wheel.PopLast(got)]
	if !slices.Equal(got, want) {
		tw.failf("PopLast(%d) = %v, want %v", n, got, want)
	}
}

// check compares everything that can be asked.
func (tw *differential) check() {
	tw.t.Helper()
	now, due, earliest := tw.wheel.Now(), 0, Tick(math.MaxInt64)
	for h, e := range tw.byName {
		if when, in := tw.wheel.When(h); !in || when != e.when {
			tw.failf("When(%d) = %d, %t, want %d", h, when, in, e.when)
		}
		if e.dueAt <= now {
			due++
		} else {
			earliest = min(earliest, e.dueAt)
		}
	}
	if tw.wheel.Len() != len(tw.byName) || tw.wheel.Due() != due {
		tw.failf("Len, Due = %d, %d, want %d, %d", tw.wheel.Len(), tw.wheel.Due(), len(tw.byName), due)
	}
	next, ok := tw.wheel.Next()
	if due == len(tw.byName) {
		// Nothing is left to become due. A cascade under way whose timers have
		// been removed meanwhile may still ask for its last step.
		if ok && next != now+1 {
			tw.failf("Next = %d at %d, want none", next, now)
		}
	} else if !ok || next <= now || next > earliest {
		tw.failf("Next = %d, %t at %d, want in (now, %d]", next, ok, now, earliest)
	} else if now|(slots-1) == earliest|(slots-1) && next != earliest {
		tw.failf("Next = %d at %d, want exactly %d", next, now, earliest)
	}
	if err := tw.wheel.Audit(); err != nil {
		tw.failf("%v", err)
	}
}

// drain goes to the last tick of all and takes everything out.
func (tw *differential) drain() {
	for len(tw.order) > 0 {
		last := tw.order[0].dueAt
		for !tw.advance(last, 1000) {
			tw.check()
		}
		tw.pop(len(tw.order))
	}
	tw.check()
}
