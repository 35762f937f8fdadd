package ring

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// stateVersion is what Save writes. Version 1 had the topics only.
const stateVersion = 2

// savedState is the snapshot: versioned JSON, everything in order of id.
type savedState struct {
	Version int `json:"version"`
	topicsState
	Cluster *savedCluster `json:"cluster,omitempty"` // absent before the cluster is founded
}

type savedCluster struct {
	ID       string `json:"id"`
	Shards   int    `json:"shards"`
	Replicas int    `json:"replicas"`
	Version  uint64 `json:"version"`
	Nodes    []Node `json:"nodes"` // those removed too
	Rows     []Row  `json:"rows"`
	Secret   []byte `json:"secret,omitempty"`
}

// Save implements shard.Machine.
func (s *State) Save() []byte {
	saved := savedState{Version: stateVersion, topicsState: s.save()}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := &s.cluster; c.id != "" {
		saved.Cluster = &savedCluster{c.id, c.shards, c.replicas, c.version,
			slices.SortedFunc(maps.Values(c.nodes), func(a, b Node) int { return cmp.Compare(a.ID, b.ID) }), c.rows, c.secret}
	}
	b, err := json.Marshal(saved)
	if err != nil {
		panic(fmt.Sprintf("ring: encode state: %v", err))
	}
	return b
}

// Load implements shard.Machine. It reads version 1 too: that of a node that was alone and is not founded yet.
func (s *State) Load(b []byte) error {
	var saved savedState
	if err := json.Unmarshal(b, &saved); err != nil {
		return fmt.Errorf("ring: read state: %w", err)
	}
	if saved.Version < 1 || saved.Version > stateVersion {
		return fmt.Errorf("ring: state of version %d, this build reads 1 to %d", saved.Version, stateVersion)
	}
	for _, t := range saved.Topics {
		if t == nil {
			return fmt.Errorf("ring: read state: a topic is null")
		}
	}
	c := cluster{nodes: map[uint64]Node{}}
	if saved.Cluster != nil {
		if err := c.load(saved.Cluster); err != nil {
			return fmt.Errorf("ring: read state: %w", err)
		}
	}
	s.load(saved.topicsState)
	s.mu.Lock()
	s.cluster = c
	s.mu.Unlock()
	s.placed()
	return nil
}

func (c *cluster) load(saved *savedCluster) error {
	if saved.ID == "" || saved.Shards < 1 || saved.Shards > MaxShards || len(saved.Rows) != 1+saved.Shards {
		return fmt.Errorf("cluster %q has %d rows for %d shards", saved.ID, len(saved.Rows), saved.Shards)
	}
	for i := range saved.Rows {
		row := &saved.Rows[i]
		if int64(row.Group) != int64(i) {
			return fmt.Errorf("row %d is of group %d", i, row.Group)
		}
		if err := row.validate(); err != nil {
			return err
		}
	}
	for _, n := range saved.Nodes {
		if err := n.validate(); err != nil {
			return err
		}
		c.nodes[n.ID] = n
	}
	if saved.Secret != nil && !goodSecret(saved.Secret) {
		return ErrBadSecret
	}
	c.secret = saved.Secret
	c.id, c.shards, c.replicas, c.version, c.rows = saved.ID, saved.Shards, saved.Replicas, saved.Version, saved.Rows
	c.list()
	return nil
}
