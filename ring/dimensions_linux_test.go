//go:build !race

package ring

import (
	"testing"
	"time"

	"carillon/test/testkit/growth"
)

// TestPlanOfManyNodes: a plan is made every second on one node, on the goroutine of its controller.
func TestPlanOfManyNodes(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "nodes", N: 12, Longest: func(t testing.TB, n int) time.Duration {
		s := NewState(nil, nil)
		c := FoundCommand("c", 128, 3, nodes(n))
		s.Apply(0, c.Encode())
		f := Observations{NowMs: time.Hour.Milliseconds(), Nodes: map[uint64]NodeFacts{}}
		for _, node := range s.Nodes() {
			f.Nodes[node.ID] = NodeFacts{Alive: true}
		}
		return growth.LongestStep(t, func() bool {
			if len(plan(s.View(), f)) != 0 {
				t.Fatal("not at rest")
			}
			return false
		}, func() {})
	}})
}
