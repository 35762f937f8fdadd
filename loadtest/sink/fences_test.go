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

func TestFencesAreBounded(t *testing.T) {
	f := newFences()
	for i := range maxFences + 1 {
		f.see(nil, fmt.Appendf(nil, "t%d", i), 3)
	}
	if n := len(f.highest); n > maxFences {
		t.Errorf("%d timers are remembered", n)
	}
	if got := f.see(nil, fmt.Appendf(nil, "t%d", maxFences), 2); got != fenceFalls {
		t.Errorf("the newest is not remembered: %v", got)
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
