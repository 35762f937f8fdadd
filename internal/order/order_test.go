package order

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type ranked struct{ rank, number, place int }

func (r *ranked) Before(o *ranked) bool {
	return r.rank < o.rank || r.rank == o.rank && r.number < o.number
}
func (r *ranked) Place() *int { return &r.place }

// TestHeapModel compares the heap with a sorted list, after every change.
func TestHeapModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var heap Heap[*ranked]
		var model []*ranked
		for number := range rapid.IntRange(1, 200).Draw(t, "steps") {
			pick := func() *ranked { return model[rapid.IntRange(0, len(model)-1).Draw(t, "item")] }
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op <= 1 || len(model) == 0:
				item := &ranked{rank: rapid.IntRange(0, 9).Draw(t, "rank"), number: number}
				heap.Push(item)
				model = append(model, item)
			case op == 2:
				item := pick()
				item.rank = rapid.IntRange(0, 9).Draw(t, "rank")
				heap.Fix(item)
			default:
				item := pick()
				heap.Remove(item)
				model = slices.DeleteFunc(model, func(o *ranked) bool { return o == item })
				if item.place != 0 {
					t.Fatal("a removed item has a place")
				}
			}
			if heap.Len() != len(model) {
				t.Fatalf("%d items, want %d", heap.Len(), len(model))
			}
			if len(model) == 0 {
				continue
			}
			first := slices.MinFunc(model, func(a, b *ranked) int {
				if a.Before(b) {
					return -1
				}
				return 1
			})
			if heap.First() != first {
				t.Fatalf("first is %+v, want %+v", heap.First(), first)
			}
			for i := range heap.Len() {
				if heap.At(i).place != i+1 {
					t.Fatalf("the item at %d knows place %d", i, heap.At(i).place)
				}
			}
		}
	})
}

// TestRing checks turns, and that a spot is in a ring once.
func TestRing(t *testing.T) {
	var r Ring[string]
	a, b, c := &Spot[string]{Of: "a"}, &Spot[string]{Of: "b"}, &Spot[string]{Of: "c"}
	for _, s := range []*Spot[string]{a, b, c, a} {
		r.Push(s)
	}
	if got := r.Rotate() + r.Rotate() + r.Rotate() + r.Rotate(); got != "abca" {
		t.Errorf("turns %q", got)
	}
	c.Leave()
	c.Leave()
	if got := r.Rotate() + r.Rotate() + r.Rotate(); got != "bab" || r.Len() != 2 || c.In() || r.First() != "a" {
		t.Errorf("turns %q of %d after c left", got, r.Len())
	}
	a.Leave()
	b.Leave()
	if r.Len() != 0 {
		t.Errorf("%d left", r.Len())
	}
}
