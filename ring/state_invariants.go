package ring

import (
	"fmt"
	"maps"
	"slices"

	"carillon/timer"
)

// sums gives the right values of nodeSum and rowSum.
func (c *cluster) sums() (nodes, rows uint64) {
	for _, n := range c.nodes {
		nodes += hashNode(&n)
	}
	for i := range c.rows {
		rows += hashRow(&c.rows[i])
	}
	return nodes, rows
}

// Audit holds the state against itself and reports the first fault. It takes time in proportion to
// the state, and is for tests, simulation and diagnosis.
func (s *State) Audit() error {
	s.Topics.mu.RLock()
	defer s.Topics.mu.RUnlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	want := topicSet{turning: map[timer.TopicID]struct{}{}, sealed: map[string]int{}}
	sum, count := uint64(0), 0
	for t := range s.list.all() {
		if s.byID[t.ID] != t || s.byName[t.Name] != t || t.ID > s.lastID {
			return fmt.Errorf("ring: audit: topic %d, %s, is not found by its id and name, or is after the last, %d", t.ID, t.Name, s.lastID)
		}
		sum += hashTopic(t)
		count++
		want.names = append(want.names, t.Name)
		want.countSealed(t, +1)
		want.indexTurning(t)
	}
	slices.Sort(want.names)
	if count != len(s.byID) || count != len(s.byName) || sum != s.sum {
		return fmt.Errorf("ring: audit: %d topics, %d by id, %d by name; sum %x of %x", count, len(s.byID), len(s.byName), s.sum, sum)
	}
	if !slices.Equal(s.names, want.names) || !maps.Equal(s.sealed, want.sealed) || !maps.Equal(s.turning, want.turning) {
		return fmt.Errorf("ring: audit: %d names of %d; secrets sealed by %v, want %v; turning %v, want %v",
			len(s.names), len(want.names), s.sealed, want.sealed, s.turning, want.turning)
	}
	return s.cluster.audit()
}

func (c *cluster) audit() error {
	if nodes, rows := c.sums(); nodes != c.nodeSum || rows != c.rowSum {
		return fmt.Errorf("ring: audit: sums of nodes and rows %x %x, want %x %x", c.nodeSum, c.rowSum, nodes, rows)
	}
	present := 0
	for _, n := range c.nodes {
		if n.State == NodeRemoved {
			continue
		}
		present++
		if n.level() < c.level {
			return fmt.Errorf("ring: audit: node %d has level %d, the cluster %d", n.ID, n.level(), c.level)
		}
		if !slices.ContainsFunc(c.present, func(m Node) bool { return m == n }) {
			return fmt.Errorf("ring: audit: node %d is not in the list", n.ID)
		}
	}
	if present != len(c.present) {
		return fmt.Errorf("ring: audit: %d nodes are listed of %d", len(c.present), present)
	}
	if c.id != "" && !c.soundShards() {
		return fmt.Errorf("ring: audit: %d rows for %d shards, founded with %d, growth %+v", len(c.rows), c.shards, c.founded, c.growth)
	}
	for i := range c.rows {
		row := &c.rows[i]
		if err := row.validate(); err != nil {
			return fmt.Errorf("ring: audit: %w", err)
		}
		if int(row.Group) != i || row.Epoch == 0 || row.Settled && len(row.Leaving) > 0 {
			return fmt.Errorf("ring: audit: row %d is %+v", i, *row)
		}
	}
	return nil
}
