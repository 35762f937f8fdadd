package ring

import "fmt"

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
