package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// state is what GET /v1/cluster tells, as far as it is shown.
type state struct {
	Healthy bool         `json:"healthy"`
	Nodes   []nodeState  `json:"nodes"`
	Shards  []shardState `json:"shards"`
}

type nodeState struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

type shardState struct {
	Shard  int    `json:"shard"`
	Leader string `json:"leader"`
}

const maxStateBytes = 4 << 20

// state asks the first node that answers.
func (c *cluster) state() (state, bool) {
	for _, n := range c.nodes {
		resp, err := c.http.Get("http://" + n.http + "/v1/cluster")
		if err != nil {
			continue
		}
		var s state
		err = json.NewDecoder(io.LimitReader(resp.Body, maxStateBytes)).Decode(&s)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return s, true
		}
	}
	return state{}, false
}

func (s state) leaderOf(shard int) string {
	for _, row := range s.Shards {
		if row.Shard == shard {
			return row.Leader
		}
	}
	return ""
}

// ledBy are the timer shards that a node leads.
func (s state) ledBy(name string) (list []int) {
	for _, row := range s.Shards {
		if row.Leader == name && row.Shard > 0 {
			list = append(list, row.Shard)
		}
	}
	return list
}

// leaders is how many shards each node leads, or how it is if it is not well.
func (s state) leaders() string {
	var words []string
	for _, n := range s.Nodes {
		if n.State == "alive" {
			words = append(words, fmt.Sprintf("%s %d", n.Name, len(s.ledBy(n.Name))))
		} else {
			words = append(words, n.Name+" "+n.State)
		}
	}
	return strings.Join(words, " ")
}
