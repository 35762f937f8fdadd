package demo

import (
	"context"
	"fmt"
	"strings"

	"carillon/client"
)

// state is the cluster as it is shown; the zero value where no node answers.
type state struct{ client.Cluster }

func (c *cluster) state(ctx context.Context) state {
	if seen, err := c.client.Cluster(ctx); err == nil {
		return state{*seen}
	}
	return state{}
}

// ledBy are the timer shards that a node leads.
func (s state) ledBy(name string) (list []int) {
	for _, row := range s.Shards {
		if row.Leader == name && row.Number > 0 {
			list = append(list, row.Number)
		}
	}
	return list
}

// busiest is the node that leads most shards, and those. Where the state is not known it is the
// first node, and all shards.
func (c *cluster) busiest(s state) (busiest *node, led []int) {
	for _, n := range c.nodes {
		if shards := s.ledBy(n.name); len(shards) > len(led) {
			busiest, led = n, shards
		}
	}
	if busiest != nil {
		return busiest, led
	}
	for shard := range shards {
		led = append(led, shard+1)
	}
	return c.nodes[0], led
}

// leaders is how many shards each node leads, or how it is if it is not well.
func (s state) leaders() string {
	var words []string
	for _, n := range s.Nodes {
		if n.State == client.NodeAlive {
			words = append(words, fmt.Sprintf("%s %d", n.Name, len(s.ledBy(n.Name))))
		} else {
			words = append(words, fmt.Sprintf("%s %s", n.Name, n.State))
		}
	}
	return strings.Join(words, " ")
}
