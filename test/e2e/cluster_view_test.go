package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// view is one node's view of the cluster, from GET /v1/cluster.
type view struct {
	ClusterID string `json:"cluster_id"`
	Healthy   bool   `json:"healthy"`
	Nodes     []struct {
		Name     string `json:"name"`
		State    string `json:"state"`
		Leads    int    `json:"leads"`
		Replicas int    `json:"replicas"`
		Unfit    string `json:"unfit"`
	} `json:"nodes"`
	Shards []shardView `json:"shards"`
	Moves  *struct {
		UnderWay int      `json:"under_way"`
		Waiting  int      `json:"waiting"`
		AtLimit  []string `json:"at_limit"`
	} `json:"moves"`

	want int // shards; 0: clusterShards
}

type shardView struct {
	Shard    int      `json:"shard"`
	Leader   string   `json:"leader"`
	Epoch    int      `json:"epoch"`
	Replicas []string `json:"replicas"`
	State    string   `json:"state"`
}

func (m *member) view() (view, error) {
	var v view
	a := m.client.do("GET", "/v1/cluster", "")
	if a.status != 200 {
		return v, fmt.Errorf("%s: GET /v1/cluster: %d %s %v", m.name, a.status, a.body, a.err)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		return v, fmt.Errorf("%s: GET /v1/cluster: %w: %s", m.name, err, a.body)
	}
	if m.of != nil {
		v.want = m.of.shardCount()
	}
	v.Shards = slices.DeleteFunc(v.Shards, func(s shardView) bool { return s.Shard == 0 }) // the meta group has no timers
	return v, nil
}

// ails returns the first thing that is not healthy in a cluster with these members, "" if all is.
func (v view) ails(members []*member) string {
	if !v.Healthy {
		return "not healthy: " + v.summary()
	}
	return v.ailsOf(members)
}

// ailsOf is ails for clusters that have other members, too.
func (v view) ailsOf(members []*member) string {
	if len(v.Shards) != cmp.Or(v.want, clusterShards) {
		return fmt.Sprintf("%d shards", len(v.Shards))
	}
	for _, m := range members {
		if state := v.stateOf(m.name); state != "alive" {
			return fmt.Sprintf("%s is %q", m.name, state)
		}
	}
	for _, s := range v.Shards {
		if s.State != "ok" || s.Leader == "" {
			return fmt.Sprintf("shard %d is %s, led by %q", s.Shard, s.State, s.Leader)
		}
	}
	return ""
}

// stateOf returns a node's state, "" for an unknown node. A node that has left may be listed beside
// a new one of the same name, which then counts.
func (v view) stateOf(name string) (state string) {
	for _, n := range v.Nodes {
		if n.Name == name && (state == "" || state == "left") {
			state = n.State
		}
	}
	return state
}

// unfit returns the reason for which a node should not lead, "" if there is none.
func (v view) unfit(name string) string {
	for _, n := range v.Nodes {
		if n.Name == name && n.State != "left" {
			return n.Unfit
		}
	}
	return ""
}

func (v view) ledBy(name string) (shards []int) {
	for _, s := range v.Shards {
		if s.Leader == name {
			shards = append(shards, s.Shard)
		}
	}
	return shards
}

// heldBy returns the shards of which a node has a replica.
func (v view) heldBy(name string) (shards []int) {
	for _, s := range v.Shards {
		if slices.Contains(s.Replicas, name) {
			shards = append(shards, s.Shard)
		}
	}
	return shards
}

// arrivedSince counts the replicas on nodes that did not have them before.
func (v view) arrivedSince(before view) (n int) {
	had := map[string]bool{}
	for _, s := range before.Shards {
		for _, name := range s.Replicas {
			had[fmt.Sprint(s.Shard, "@", name)] = true
		}
	}
	for _, s := range v.Shards {
		for _, name := range s.Replicas {
			if !had[fmt.Sprint(s.Shard, "@", name)] {
				n++
			}
		}
	}
	return n
}

func (v view) summary() string {
	var b strings.Builder
	for _, n := range v.Nodes {
		fmt.Fprintf(&b, "%s %s leads %d of %d; ", n.Name, n.State, len(v.ledBy(n.Name)), len(v.heldBy(n.Name)))
	}
	for _, s := range v.Shards {
		if s.State != "ok" {
			fmt.Fprintf(&b, "shard %d %s led by %q on %v; ", s.Shard, s.State, s.Leader, s.Replicas)
		}
	}
	return b.String()
}

// awaitView waits until a running member's view satisfies the condition.
func (c *cluster) awaitView(t testing.TB, limit time.Duration, what string, satisfied func(view) bool) view {
	t.Helper()
	var last view
	if !holdsWithinBy(lookEvery, limit, func() bool { last = c.view(t); return satisfied(last) }) {
		t.Fatalf("not within %v: %s; %s", limit, what, last.summary())
	}
	return last
}

// balanced names a member with too many replicas or leaderships, "" if there is none. Each may have
// a quarter more than the mean, or the mean rounded up.
func (v view) balanced(members []*member) string {
	replicas := 0
	for _, s := range v.Shards {
		replicas += len(s.Replicas)
	}
	bound := func(total int) int { return max(5*total/(4*len(members)), (total+len(members)-1)/len(members)) }
	for _, m := range members {
		if n := len(v.heldBy(m.name)); n > bound(replicas) {
			return fmt.Sprintf("%s holds %d of %d replicas, more than %d", m.name, n, replicas, bound(replicas))
		}
		if n := len(v.ledBy(m.name)); n > bound(len(v.Shards)) {
			return fmt.Sprintf("%s leads %d of %d shards, more than %d", m.name, n, len(v.Shards), bound(len(v.Shards)))
		}
	}
	return ""
}

// placed describes the placement in one line, so that equal lines mean that nothing changed.
func (v view) placed() string {
	var b strings.Builder
	for _, s := range v.Shards {
		fmt.Fprintf(&b, "%d@%d %s %s;", s.Shard, s.Epoch, s.Leader, s.State)
	}
	return b.String()
}

// settledOn returns the first thing that must still change until each shard has so many replicas on
// these members, led by the preferred one and balanced; "" if nothing must.
func (v view) settledOn(members []*member, replicas int) string {
	if why := v.ailsOf(members); why != "" {
		return why
	}
	for _, s := range v.Shards {
		if len(s.Replicas) != min(replicas, len(members)) {
			return fmt.Sprintf("shard %d is on %v", s.Shard, s.Replicas)
		}
		for _, name := range s.Replicas {
			if !slices.ContainsFunc(members, func(m *member) bool { return m.name == name }) {
				return fmt.Sprintf("shard %d is on %v", s.Shard, s.Replicas)
			}
		}
		if s.Leader != s.Replicas[0] {
			return fmt.Sprintf("shard %d is led by %s, not by %s", s.Shard, s.Leader, s.Replicas[0])
		}
	}
	return v.balanced(members)
}
