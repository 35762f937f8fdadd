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
