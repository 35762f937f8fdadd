package order

import "testing"

// TestLine: those that wait again and again are served by their weights, and without weights first
// come, first served.
func TestLine(t *testing.T) {
	for weights, want := range map[[3]int]string{{0, 0, 0}: "abcabcabcabc", {1, 1, 1}: "abcabcabcabc", {1, 2, 1}: "abcbacbbacbb"} {
		var l Line[string]
		turns := map[string]*Turn[string]{}
		for i, name := range []string{"a", "b", "c"} {
			turns[name] = &Turn[string]{Of: name, Share: &Share{Weight: weights[i]}}
			l.Push(turns[name])
		}
		got := ""
		for range 12 {
			name := l.First()
			got += name
			l.Serve(turns[name])
			l.Push(turns[name])
		}
		if got != want {
			t.Errorf("weights %v: served %s, want %s", weights, got, want)
		}
		late := &Turn[string]{Of: "late", Share: &Share{Weight: 1}}
		l.Push(late)
		for range 4 {
			name := l.First()
			if name == "late" {
				l.Serve(late)
				break
			}
			l.Serve(turns[name])
			l.Push(turns[name])
		}
		if late.In() {
			t.Errorf("weights %v: one that comes waits for more than a round", weights)
		}
		l.Leave(turns["a"])
		if turns["a"].In() || l.Len() != 2 {
			t.Errorf("%d wait", l.Len())
		}
	}
}

// TestLineOfSeveralTurns: one with a large share that comes back late has its part, if it waits
// with several turns at once.
func TestLineOfSeveralTurns(t *testing.T) {
	var l Line[string]
	light, heavy := Share{Weight: 1}, Share{Weight: 9}
	one, many := &Turn[string]{Of: "one", Share: &light}, make([]Turn[string], 9)
	push := func() {
		if !one.In() {
			l.Push(one)
		}
		for i := range many {
			if many[i].In() {
				return
			}
		}
		for i := range many {
			many[i].Of, many[i].Share = "many", &heavy
			l.Push(&many[i])
		}
	}
	served := map[string]int{}
	for n := range 1000 {
		if n%2 == 0 { // both come back late
			push()
		}
		first := l.heap.First()
		l.Serve(first)
		served[first.Of]++
	}
	if served["one"] < 90 || served["one"] > 130 {
		t.Errorf("served %v, want 100 and 900", served)
	}
	for l.Len() > 0 {
		l.Serve(l.heap.First())
	}
	before, gone := heavy.ends, &Turn[string]{Share: &heavy}
	l.Push(gone)
	l.Leave(gone)
	if heavy.ends > max(before, l.virtual) {
		t.Error("one that left has had its turn")
	}
}
