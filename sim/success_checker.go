package sim

import (
	"slices"
	"time"

	"carillon/timer"
)

// successChecker holds P3: a timer whose call was answered with a success is called again only if that answer never came to the leader. There are
// three reasons for that, and no other:
//
//   - the answer was lost before the process had it;
//   - the process that had it ended before the answer was committed;
//   - the process lost the leadership, and could not reach whoever led then for long enough.
//
// Until a lease is over, the checker looks every so often whether the process that had the answer can reach the shard's leader.
type successChecker struct {
	open    []*call // answered with a success, and the lease is not over yet
	looking bool
}

const reachEach = 50 * time.Millisecond

// reach is how long a call's process has been able to tell one leader how the call ended, before that one could have decided otherwise: what it
// has proposed it cannot take back, and most disks may stand still until that is applied.
type reach struct {
	leader *node
	term   uint64
	since  time.Duration
	longer time.Duration // … until the lease was over, or now
}

// succeeded notes that a process has been told of a success.
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

// settles brings the call's reach up to date, and says whether its lease is over.
func (c *call) settles() bool {
	w, id, r := c.node.w, c.delivery.Shard, &c.reach
	leader := w.leader(id)
	if leader == nil {
		*r = reach{}
		return false
	}
	table := leader.host.Table(id)
	if d := table.Due(c.delivery.Job.Handle); !table.Live(c.delivery.Job.Handle, c.delivery.Job.Seq) || d.State != timer.Leased || d.Fence != c.delivery.Job.Fence {
		return true
	}
	switch term := leader.host.Progress(id).Term; {
	case !c.node.reaches(leader, id):
		*r = reach{}
	case r.leader != leader || r.term != term:
		*r = reach{leader: leader, term: term, since: w.now}
	default:
		r.longer = max(r.longer, leader.undecided(id)-r.since)
	}
	return false
}

// undecided is until when what the node has applied of a group that it leads is all that it has decided.
func (n *node) undecided(id timer.ShardID) time.Duration {
	if list := n.checked[id].pipelined; len(list) > 0 {
		return list[0]
	}
	return n.w.now
}

// reaches says whether the node can tell another one that leads a group something just now.
func (n *node) reaches(leader *node, id timer.ShardID) bool {
	if n.paused || n.host == nil || n.host.Progress(id).Replica == 0 {
		return false
	}
	net := &n.w.net
	return n == leader || !net.blocked(n.id, leader.id) && !net.blocked(leader.id, n.id)
}

// reported is within what a leader that can be reached knows how a call ended, though frames are lost and slow.
func (w *World) reported() time.Duration {
	d := 1500*time.Millisecond + 4*w.swarm.delay
	if w.swarm.slow > 0 {
		d += w.swarm.slowest
	}
	return d
}

// started checks a call of a timer whose last call was before.
func (s *successChecker) started(before, c *call) {
	w, j := c.node.w, &c.delivery.Job
	if before == nil || before.delivery.Job.Version != j.Version || !before.taken {
		return
	}
	w.counts.Twice++
	if !before.success {
		return // its answer was lost
	}
	if now := c.node.host.Table(c.delivery.Shard).Read(j.Topic, j.ID); now != nil && now.Seq == j.Seq && now.FiredMs == before.wallMs && now.LastStatus == 200 {
		w.violate("P3", "node %d calls for %s under fence %d, and its own table knows that the call under fence %d was answered 200", c.node.id, j.ID, j.Fence, before.delivery.Job.Fence)
	}
	if before.node.life != before.life {
		return
	}
	if c.node == before.node && c.term == before.term {
		w.violate("P3", "node %d calls for %s under fence %d; the call under fence %d was answered 200, and it has led all the time", c.node.id, j.ID, j.Fence, before.delivery.Job.Fence)
	}
	if r := &before.reach; r.longer > w.reported() {
		w.violate("P3", "node %d calls for %s under fence %d; the call under fence %d was answered 200, and node %d could tell node %d so for %s",
			c.node.id, j.ID, j.Fence, before.delivery.Job.Fence, before.node.id, r.leader.id, r.longer)
	}
}
