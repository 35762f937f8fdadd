package demo

import (
	"context"
	"fmt"
	"strings"

	"carillon/client"
)

// state is the cluster as it is shown; the zero value where nobody tells.
type state struct{ client.Cluster }

// state asks the first node that answers.
func (c *cluster) state(ctx context.Context) state {
	for _, n := range c.nodes {
		if seen, err := n.client.Cluster(ctx); err == nil {
			return state{*seen}
		}
	}
	return state{}
}

func (s state) leaderOf(shard int) string {
	for _, row := range s.Shards {
		if row.Number == shard {
			return row.Leader
		}
	}
	return ""
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
