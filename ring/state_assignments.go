package ring

import (
	"cmp"
	"fmt"
	"slices"

	"carillon/timer"
)

// FoundCommand founds a cluster, with the placement laid out: every node that applies it later, of
// any build, has the same rows.
func FoundCommand(clusterID string, shards, replicas int, nodes []Node) Command {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return Command{Verb: Found, ClusterID: clusterID, Shards: shards, Replicas: replicas, Nodes: nodes,
		Layout: layOut(nodes, shards, replicas)}
}

// layOut names the nodes of each shard by their places in nodes.
func layOut(nodes []Node, shards, replicas int) [][]int {
	place := make(map[uint64]int, len(nodes))
	for i, n := range nodes {
		place[n.ID] = i
	}
	layout := make([][]int, 0, max(shards, 0))
	for _, row := range Target(targetNodes(nodes), shards, replicas) {
		places := make([]int, len(row))
		for i, id := range row {
			places[i] = place[id]
		}
		layout = append(layout, places)
	}
	return layout
}

func targetNodes(nodes []Node) []TargetNode {
	out := make([]TargetNode, len(nodes))
	for i, n := range nodes {
		out[i] = TargetNode{ID: n.ID, Zone: n.Zone}
	}
	return out
}

// found makes the cluster. Repeated by the same cluster it changes nothing and is no error: the
// proposer may not have heard that it took effect.
func (c *cluster) found(nowMs int64, cmd *Command) Reply {
	if c.id != "" {
		if c.id == cmd.ClusterID {
			return Reply{}
		}
		return Reply{Err: fmt.Errorf("%w: %s", ErrFounded, c.id)}
	}
	switch {
	case !namePattern.MatchString(cmd.ClusterID):
		return Reply{Err: fmt.Errorf("%w: its id %q does not match %s", ErrBadCluster, cmd.ClusterID, namePattern)}
	case cmd.Shards < 1 || cmd.Shards > MaxShards:
		return Reply{Err: fmt.Errorf("%w: %d shards; 1–%d are allowed", ErrBadCluster, cmd.Shards, MaxShards)}
	case cmd.Replicas < 1 || cmd.Replicas > MaxReplicas:
		return Reply{Err: fmt.Errorf("%w: %d replicas; 1–%d are allowed", ErrBadCluster, cmd.Replicas, MaxReplicas)}
	case len(cmd.Nodes) < 1 || len(cmd.Nodes) > MaxNodes:
		return Reply{Err: fmt.Errorf("%w: %d nodes; 1–%d are allowed", ErrBadCluster, len(cmd.Nodes), MaxNodes)}
	}
	names := map[string]bool{}
	nodes := make(map[uint64]Node, len(cmd.Nodes))
	for _, n := range cmd.Nodes {
		if err := n.validate(); err != nil {
			return Reply{Err: err}
		}
		if _, twice := nodes[n.ID]; twice || names[n.Name] {
			return Reply{Err: fmt.Errorf("%w: node %d, %s, is listed twice", ErrBadCluster, n.ID, n.Name)}
		}
		n.State, n.JoinedMs, n.SinceMs = NodeMember, nowMs, nowMs
		nodes[n.ID], names[n.Name] = n, true
	}
	rows, err := firstRows(cmd)
	if err != nil {
		return Reply{Err: err}
	}
	c.id, c.shards, c.replicas = cmd.ClusterID, cmd.Shards, cmd.Replicas
	c.nodes, c.rows = nodes, rows
	c.list()
	c.level = c.least() // it has nothing to go back to
	c.version++
	return Reply{}
}

// firstRows are the rows that a Found command lays out.
func firstRows(cmd *Command) ([]Assignment, error) {
	layout := cmd.Layout
	if layout == nil {
		layout = layOut(cmd.Nodes, cmd.Shards, cmd.Replicas)
	}
	if len(layout) != cmd.Shards {
		return nil, fmt.Errorf("%w: the layout has %d of %d shards", ErrBadCluster, len(layout), cmd.Shards)
	}
	rows := make([]Assignment, 0, 1+cmd.Shards)
	rows = append(rows, firstMetaRow(cmd.Nodes))
	for i, places := range layout {
		ids := make([]uint64, len(places))
		for rank, place := range places {
			if place < 0 || place >= len(cmd.Nodes) {
				return nil, fmt.Errorf("%w: the layout puts shard %d on node %d of %d", ErrBadCluster, i+1, place, len(cmd.Nodes))
			}
			ids[rank] = cmd.Nodes[place].ID
		}
		row := Assignment{Group: timer.ShardID(i + 1), Epoch: 1, Replicas: replicasOn(ids, nil), Settled: true}
		if err := row.validate(); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// firstMetaRow lets MetaVoters of the nodes vote, in as many zones as possible; the others learn.
func firstMetaRow(nodes []Node) Assignment {
	voters := metaRanks(targetNodes(nodes), MetaVoters(len(nodes)))
	var learners []uint64
	for _, n := range nodes {
		if !slices.Contains(voters, n.ID) {
			learners = append(learners, n.ID)
		}
	}
	slices.Sort(learners)
	return Assignment{Group: MetaGroup, Epoch: 1, Replicas: replicasOn(voters, learners), Settled: true}
}

// MetaVoters is how many of so many nodes vote in the meta group: all up to three, then three, and
// five of five or more. An even number above two would bear no more failures than the odd one
// below.
func MetaVoters(nodes int) int {
	switch {
	case nodes <= 3:
		return nodes
	case nodes == 4:
		return 3
	default:
		return 5
	}
}

// setReplicas changes how many replicas each shard should have. The rows follow one replica at a
// time: that is the controller's.
func (c *cluster) setReplicas(_ int64, cmd *Command) Reply {
	switch {
	case c.id == "":
		return Reply{Err: ErrNotFounded}
	case cmd.Replicas < 1 || cmd.Replicas > MaxReplicas:
		return Reply{Err: fmt.Errorf("%w: %d replicas; 1–%d are allowed", ErrBadCluster, cmd.Replicas, MaxReplicas)}
	case cmd.Replicas != c.replicas:
		c.replicas = cmd.Replicas
		c.version++
	}
	return Reply{}
}

// place gives a row other replicas, one epoch on.
func (c *cluster) place(_ int64, cmd *Command) Reply {
	row, err := c.rowAt(cmd)
	if err != nil {
		return Reply{Row: row, Err: err}
	}
	if !row.Settled && !cmd.Force || c.inDivision(row.Group) {
		return Reply{Row: row, Err: ErrMoving}
	}
	for _, r := range cmd.To {
		n, ok := c.nodes[r.Node]
		switch {
		case row.Names(r.Node): // replicas that are there may stay until they can go
		case row.Needs(r.Node) && ok && n.State != NodeRemoved:
			// And a replica that has not gone yet may come back.
		case !ok || n.State == NodeRemoved:
			return Reply{Row: row, Err: fmt.Errorf("%w: %d", ErrUnknownNode, r.Node)}
		case !n.holds() && !r.Learner:
			return Reply{Row: row, Err: fmt.Errorf("%w: %s is %s and takes no replica", ErrBadState, n.Name, n.State)}
		}
	}
	next, err := row.next(cmd.To)
	if err != nil {
		return Reply{Row: row, Err: err}
	}
	c.putRow(next)
	return Reply{Row: &next}
}

// reconciled records that a group's membership has become its row's.
func (c *cluster) reconciled(_ int64, cmd *Command) Reply {
	row, err := c.rowAt(cmd)
	if err != nil || row.Settled {
		return Reply{Row: row, Err: err}
	}
	row.Settled, row.Leaving, row.Unmoved = true, nil, false
	c.putRow(*row)
	c.divided()
	return Reply{Row: row}
}

// rowAt is a copy of the row that a command is about. With ErrEpoch it is returned too, for the
// proposer.
func (c *cluster) rowAt(cmd *Command) (*Assignment, error) {
	if c.id == "" {
		return nil, ErrNotFounded
	}
	if int64(cmd.Group) >= int64(len(c.rows)) {
		return nil, fmt.Errorf("%w: %d of %d", ErrUnknownGroup, cmd.Group, c.shards)
	}
	row := c.rows[cmd.Group]
	if row.Epoch != cmd.Epoch {
		return &row, fmt.Errorf("%w: group %d is at epoch %d, not %d", ErrEpoch, cmd.Group, row.Epoch, cmd.Epoch)
	}
	return &row, nil
}
