package demo

import "testing"

func TestState(t *testing.T) {
	s := state{Nodes: []nodeState{{"n1", "alive"}, {"n2", "down"}}, Shards: []shardState{{0, "n2"}, {1, "n1"}, {2, "n1"}, {3, ""}}}
	if got := s.leaders(); got != "n1 2 n2 down" {
		t.Errorf("leaders %q", got)
	}
	if s.leaderOf(2) != "n1" || s.leaderOf(9) != "" {
		t.Errorf("leaders of 2 and 9: %q, %q", s.leaderOf(2), s.leaderOf(9))
	}
}
