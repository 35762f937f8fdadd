package demo

import (
	"testing"

	"carillon/client"
)

func TestState(t *testing.T) {
	s := state{client.Cluster{
		Nodes:  []client.Node{{Name: "n1", State: client.NodeAlive}, {Name: "n2", State: client.NodeDown}},
		Shards: []client.Shard{{Number: 0, Leader: "n2"}, {Number: 1, Leader: "n1"}, {Number: 2, Leader: "n1"}, {Number: 3}},
	}}
	if got := s.leaders(); got != "n1 2 n2 down" {
		t.Errorf("leaders %q", got)
	}
	if s.leaderOf(2) != "n1" || s.leaderOf(9) != "" {
		t.Errorf("leaders of 2 and 9: %q, %q", s.leaderOf(2), s.leaderOf(9))
	}
}
