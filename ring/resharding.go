package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"carillon/internal/placement"
	"carillon/timer"
)

// resharding is the growth of the number of shards that is under way. The number doubles at once,
// for the routing; then shard s gives half of its timers to shard s + Parents, one shard after the
// other. Where more is asked for, the next doubling follows. The zero value: there is none.
//
// Invariant: the rows are those of the parents and of a first part of the children, and at most the
// last child is not settled.
type resharding struct {
	From    int `json:"from"`    // shards when it was asked for
	Parents int `json:"parents"` // shards before the present doubling
	To      int `json:"to"`
}

// MaxGrowth is the most shards that a cluster can grow to.
const MaxGrowth = 4096

// mayGrow is why the number of shards cannot become another; nil: it can.
func (c *cluster) mayGrow(to int) error {
	switch {
	case c.id == "":
		return ErrNotFounded
	case c.growth.Parents != 0:
		return fmt.Errorf("%w, to %d", ErrResharding, c.growth.To)
	}
	n := c.shards
	for n < to && n < MaxGrowth {
		n *= 2
	}
	if n != to || to == c.shards || to > MaxGrowth {
		return fmt.Errorf("%w: there are %d, and %s", ErrBadShards, c.shards, growths(c.shards, to))
	}
	return nil
}

// growths lists the numbers of shards that can follow now, where to was asked for.
func growths(now, to int) string {
	var can []string
	for n := 2 * now; n <= MaxGrowth; n *= 2 {
		can = append(can, strconv.Itoa(n))
	}
	last := len(can) - 1
	switch {
	case now >= MaxGrowth:
		return fmt.Sprintf("there can be no more than %d", MaxGrowth)
	case last < 0:
		return fmt.Sprintf("twice as many would be more than %d", MaxGrowth)
	case last > 3:
		can = append(can[:3], "…", can[last])
		last = 4
	}
	list := strings.ReplaceAll(strings.Join(can[:last], ", "), "…, ", "… ")
	if last > 0 {
		list += " or "
	}
	return fmt.Sprintf("there is no way back to fewer; ask for %s%s, not %d", list, can[last], to)
}

// setShards begins to grow the number of shards.
func (c *cluster) setShards(_ int64, cmd *Command) Reply {
	if err := c.mayGrow(cmd.Shards); err != nil {
		return Reply{Err: err}
	}
	c.founded = cmp.Or(c.founded, c.shards)
	c.growth = resharding{From: c.shards, Parents: c.shards, To: cmd.Shards}
	c.shards *= 2
	c.version++
	return Reply{}
}

// nextDivided is the shard that is divided next; 0: there is none left, or one is being divided.
func (c *cluster) nextDivided() timer.ShardID {
	return nextDivided(c.rows, c.growth.Parents)
}

func nextDivided(rows []Assignment, parents int) timer.ShardID {
	next := len(rows) - parents
	if parents == 0 || next > parents || rows[len(rows)-1].dividing() {
		return 0
	}
	return timer.ShardID(next)
}

// divide gives a shard a child, on the same nodes. The shard's leader does the rest, and the
// child's reports that it is settled.
func (c *cluster) divide(_ int64, cmd *Command) Reply {
	row, err := c.rowAt(cmd)
	switch {
	case err != nil:
		return Reply{Row: row, Err: err}
	case row.Group != c.nextDivided():
		return Reply{Row: row, Err: fmt.Errorf("%w: shard %d is not the next to be divided", ErrEpoch, row.Group)}
	case !row.Settled:
		return Reply{Row: row, Err: ErrMoving}
	}
	child := Assignment{Group: row.Group + timer.ShardID(c.growth.Parents), Epoch: 1, From: row.Group}
	for _, r := range row.Replicas {
		if n, ok := c.nodes[r.Node]; !ok || n.State == NodeRemoved {
			return Reply{Row: row, Err: fmt.Errorf("%w: %d", ErrUnknownNode, r.Node)}
		}
		child.Replicas = append(child.Replicas, Replica{Node: r.Node, ID: placement.ReplicaID(r.Node, 1)})
	}
	c.rows = append(slices.Clip(c.rows), child)
	c.rowSum += hashRow(&child)
	c.version++
	return Reply{Row: &child}
}

// inDivision reports whether a shard is being divided, or is what comes of it.
func (c *cluster) inDivision(group timer.ShardID) bool {
	last := &c.rows[len(c.rows)-1]
	return last.dividing() && (group == last.Group || group == last.From)
}

// divided begins the next doubling, or ends the growth, once the last child is settled.
func (c *cluster) divided() {
	g := &c.growth
	if g.Parents == 0 || len(c.rows) != 1+c.shards || c.rows[c.shards].dividing() {
		return
	}
	if c.shards == g.To {
		*g = resharding{}
	} else {
		g.Parents = c.shards
		c.shards *= 2
	}
	c.version++
}

// soundShards reports whether the rows fit the number of shards.
func (c *cluster) soundShards() bool {
	g := c.growth
	if g.Parents == 0 {
		return g == resharding{} && len(c.rows) == 1+c.shards
	}
	return c.founded > 0 && c.shards == 2*g.Parents && g.From > 0 && g.From <= g.Parents && c.shards <= g.To &&
		len(c.rows) > g.Parents && len(c.rows) <= 1+c.shards
}

// Resharding is how far the growth of the number of shards is.
type Resharding struct {
	From, To int // shards when it was asked for, and those that were asked for
	Done     int // shards that it has made, of To - From
	// The shard that is being divided, or else the next; 0: there is none.
	Shard    timer.ShardID
	Dividing bool
}

// Shards are the timer shards of a cluster.
type Shards struct {
	Now     int // how many there are, those included that are yet to be divided from others
	First   int // how many the cluster was founded with
	Parents int // those above it are being divided from others; Now: none is
}

// Shards counts the timer shards; all zero before the cluster is founded.
func (s *State) Shards() Shards {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &s.cluster
	n := Shards{Now: c.shards, First: c.founded, Parents: c.growth.Parents}
	n.First = cmp.Or(n.First, n.Now)
	n.Parents = cmp.Or(n.Parents, n.Now)
	return n
}

// UndividedFrom is the shard that still has the timers of another, or may have; 0: that one has
// them.
func (s *State) UndividedFrom(id timer.ShardID) timer.ShardID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &s.cluster
	p := timer.ShardID(c.growth.Parents)
	if p == 0 || id <= p || int64(id) > int64(c.shards) || int64(id) < int64(len(c.rows)) && c.rows[id].Settled {
		return 0
	}
	return id - p
}

// Resharding is how far the growth is, as this copy of the state has it; false: there is none.
func (s *State) Resharding() (Resharding, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &s.cluster
	if c.growth.Parents == 0 {
		return Resharding{}, false
	}
	r := Resharding{From: c.growth.From, To: c.growth.To, Done: len(c.rows) - 1 - c.growth.From, Shard: c.nextDivided()}
	if last := &c.rows[len(c.rows)-1]; last.dividing() {
		r.Done, r.Shard, r.Dividing = r.Done-1, last.From, true
	}
	return r, true
}

// GrowthMoves is how many replicas move to other nodes once there are so many shards, so that every
// node has its share. The error is the reason why there cannot be so many.
func (s *State) GrowthMoves(to int) (moves int, err error) {
	s.mu.RLock()
	if err := s.cluster.mayGrow(to); err != nil {
		s.mu.RUnlock()
		return 0, err
	}
	rows, replicas := slices.Clone(s.cluster.rows[1:]), s.cluster.replicas
	nodes := slices.DeleteFunc(slices.Clone(s.cluster.present), func(n Node) bool { return !n.holds() })
	s.mu.RUnlock()
	now := make([][]uint64, to)
	for i := range now {
		now[i] = rows[i%len(rows)].Nodes()
	}
	for i, row := range TargetFrom(now, targetNodes(nodes), to, replicas) {
		for _, n := range row {
			moves += boolInt(!slices.Contains(now[i], n))
		}
	}
	return moves, nil
}

// divide divides the next shard, unless it has to be moved first or has lost its majority.
func (p *planner) divide() {
	next := nextDivided(p.view.Rows, p.view.Dividing)
	if next == 0 {
		return
	}
	row, on := &p.view.Rows[next], &p.layout.rows[next-1]
	if on.pinned || slices.ContainsFunc(row.Replicas, func(r Replica) bool { return p.removed(r.Node) }) {
		return
	}
	on.pinned = true
	p.commands = append(p.commands, Command{Verb: Divide, Group: next, Epoch: row.Epoch})
}
