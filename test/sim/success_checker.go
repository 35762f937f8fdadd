package sim

import (
	"slices"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// successChecker checks P3: a timer with a successful call is called again only if the leader never
// got the answer. There are three valid reasons:
//
//   - the answer was lost before the process had it;
//   - the process ended before the outcome was committed;
//   - the process lost the leadership and could not reach the new leader for long enough.
//
// Until a lease ends, the checker looks every reachEach whether the process with the answer can
// reach the shard's leader.
type successChecker struct {
	open    []*call // calls with a success whose lease has not ended
	looking bool
}

const reachEach = 50 * time.Millisecond

// reach is how long a call's process was able to report the outcome to one leader before that
// leader could have decided otherwise. A leader cannot withdraw its proposals, and while most disks
// hang they are not applied.
type reach struct {
	leader *node
	term   uint64
	since  time.Duration
	longer time.Duration // longest time until the lease ended, or now
}

// succeeded records that a process has got a success.
func (s *successChecker) succeeded(c *call) {
	c.success = true
	s.open = append(s.open, c)
	if !s.looking {
		s.looking = true
		s.look(c.node.w)
	}
}

func (s *successChecker) look(w *World) {
	s.open = slices.DeleteFunc(s.open, func(c *call) bool { return c.node.life != c.life || c.settles() })
	if s.looking = len(s.open) > 0; s.looking {
		w.after(reachEach, func() { s.look(w) })
	}
}

// settles updates the call's reach and reports whether its lease has ended.
func (c *call) settles() bool {
	w, id, r := c.node.w, c.node.w.holder(c.delivery.Job.Topic, c.delivery.Job.ID), &c.reach
	leader := w.leader(id)
	if leader == nil {
		*r = reach{}
		return false
	}
	table := leader.host.Table(id)
	if d := table.Due(c.delivery.Job.Handle); !table.Live(c.delivery.Job.Handle, c.delivery.Job.Seq) || d.State != timer.Leased || d.Fence != c.delivery.Job.Fence {
		c.mayBeOver(table)
		return true
	}
	switch term := leader.host.Progress(id).Term; {
	case !c.node.reaches(leader, id), !leader.state.Current(): // it may not know the topic as it is now
		*r = reach{}
	case r.leader != leader || r.term != term:
		*r = reach{leader: leader, term: term, since: w.now}
	default:
		r.longer = max(r.longer, leader.undecided(id)-r.since)
	}
	return false
}

// mayBeOver checks the end of the call's lease: a success that its process could report makes no dead
// letter.
func (c *call) mayBeOver(tbl *table.Table) {
	w, j := c.node.w, &c.delivery.Job
	t := tbl.Read(j.Topic, j.ID)
	if t != nil && t.Seq == j.Seq && t.Fence == j.Fence && t.State == timer.Dead && c.reach.longer >= w.reported() {
		w.violate("P3", "%s is a dead letter after the call of node %d under fence %d, which was answered 200: %s", j.ID, c.node.id, j.Fence, t.LastError)
	}
}

// undecided is the time up to which the leader has no unapplied proposals: its table shows all its
// decisions until then.
func (n *node) undecided(id timer.ShardID) time.Duration {
	if list := n.checked[id].pipelined; len(list) > 0 {
		return list[0]
	}
	return n.w.now
}

// reaches reports whether the node and the leader of a group can talk to each other now.
func (n *node) reaches(leader *node, id timer.ShardID) bool {
	if n.paused || n.host == nil || n.host.Progress(id).Replica == 0 {
		return false
	}
	net := &n.w.net
	return n == leader || !net.blocked(n.id, leader.id) && !net.blocked(leader.id, n.id)
}

// reported bounds how soon a reachable leader knows the outcome of a call, with lost and slow
// frames.
func (w *World) reported() time.Duration {
	d := 1500*time.Millisecond + 4*w.swarm.delay
	if w.swarm.slow > 0 {
		d += w.swarm.slowest
	}
	return d
}

// started checks a call; before is the timer's previous call.
func (s *successChecker) started(before, c *call) {
	w, j := c.node.w, &c.delivery.Job
	if before == nil || before.delivery.Job.Version != j.Version || !before.taken {
		return
	}
	w.counts.Twice++
	if !before.success {
		return // the answer was lost
	}
	if now := c.node.host.Table(c.delivery.Shard).Read(j.Topic, j.ID); now != nil && now.Seq == j.Seq && now.FiredMs == before.wallMs && now.LastStatus == 200 {
		w.violate("P3", "node %d calls for %s under fence %d, although its table shows that the call under fence %d was answered 200", c.node.id, j.ID, j.Fence, before.delivery.Job.Fence)
	}
	if before.node.life != before.life {
		return
	}
	if c.node == before.node && c.term == before.term && c.delivery.Shard == before.delivery.Shard {
		w.violate("P3", "node %d calls for %s under fence %d; the call under fence %d was answered 200, and the node has led all the time", c.node.id, j.ID, j.Fence, before.delivery.Job.Fence)
	}
	if r := &before.reach; r.longer > w.reported() {
		w.violate("P3", "node %d calls for %s under fence %d; the call under fence %d was answered 200, and node %d could tell node %d so for %s",
			c.node.id, j.ID, j.Fence, before.delivery.Job.Fence, before.node.id, r.leader.id, r.longer)
	}
}
