package sink

import (
	"fmt"
	"testing"
)

func TestFences(t *testing.T) {
	f := newFences()
	for i, c := range []struct {
		topic, timer string
		fence        int64
		want         fenceOrder
	}{
		{"a", "1", 5, fenceRises},
		{"a", "1", 5, fenceRepeats},
		{"a", "1", 9, fenceRises},
		{"a", "1", 7, fenceFalls},
		{"a", "1", 9, fenceRepeats},
		{"b", "1", 1, fenceRises},
		{"a", "2", 1, fenceRises},
		{"a", "1", 10, fenceRises},
	} {
		if got := f.see([]byte(c.topic), []byte(c.timer), c.fence); got != c.want {
			t.Errorf("step %d: %s/%s fence %d = %v, want %v", i, c.topic, c.timer, c.fence, got, c.want)
		}
	}
}

func TestFencesForgetTheLeastRecentlySeen(t *testing.T) {
	f := newFences()

	set := &f.sets[0]
	for i := range set {
		set[i] = fence{timer: uint64(i + 1), highest: 1}
	}
	// Find a timer of set 0, so that it evicts from the full set.
	for i := 0; ; i++ {
		name := fmt.Appendf(nil, "t%d", i)
		before := *set
		f.see(nil, name, 3)
		if *set == before {
			continue
		}
		if set[0].highest != 3 || set[1].timer != 1 || set[3].timer != 3 {
			t.Fatalf("set = %v, want the new one first and the fourth gone", *set)
		}
		if got := f.see(nil, name, 2); got != fenceFalls {
			t.Fatalf("the newcomer is not remembered: %v", got)
		}
		return
	}
}

func BenchmarkFences(b *testing.B) {
	f := newFences()
	var n int64
	name := make([]byte, 0, 32)
	b.ReportAllocs()
	for b.Loop() {
		n++
		name = fmt.Appendf(name[:0], "timer-%d", n%1_000_000)
		f.see(nil, name, n)
	}
}
