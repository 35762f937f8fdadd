package demo

import (
	"testing"

	"carillon/client"
)

func TestState(t *testing.T) {
	s := state{client.Cluster{
		Nodes:  []client.Node{{Name: "n1", State: client.NodeAlive}, {Name: "n2", State: client.NodeDown}},
		Shards: []client.Shard{{Number: 0, Leader: "n2"}, {Number: 1, Leader: "n1"}, {Number: 2, Leader: "n1"}, {Number: 3, Leader: "n2"}},
	}}
	if got := s.leaders(); got != "n1 2 n2 down" {
		t.Errorf("leaders %q", got)
	}
	c := &cluster{nodes: []*node{{name: "n2"}, {name: "n1"}}}
	if n, led := c.busiest(s); n.name != "n1" || len(led) != 2 || led[0] != 1 {
		t.Errorf("%s leads %v", n.name, led)
	}
	if n, led := c.busiest(state{}); n.name != "n2" || len(led) != shards {
		t.Errorf("with nothing known: %s, %v", n.name, led)
	}
}

func TestIDIn(t *testing.T) {
	for shard := 1; shard <= shards; shard++ {
		if got := client.ShardOf(topic, idIn(shard), shards); got != shard {
			t.Errorf("%d, want %d", got, shard)
		}
	}
}
