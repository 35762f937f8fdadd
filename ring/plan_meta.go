package ring

import "slices"

// planMeta keeps the meta group's row: MetaVoters of the nodes vote, live ones before others and
// spread evenly over the zones; every other node that is not removed has a copy without a vote.
func (p *planner) planMeta() {
	row := &p.view.Rows[0]
	m := metaPlan{planner: p, row: row}
	for _, r := range row.Replicas {
		if r.Learner {
			m.learners = append(m.learners, r.Node)
		} else {
			m.voters = append(m.voters, r.Node)
		}
	}
	switch {
	case !row.Settled:
		// A row under way does not show its voters until it is followed; the meta group itself
		// does, as it decides.
		m.forget()
	case !p.majority(row):
	default:
		m.step()
	}
}

// metaPlan is one step of the meta group's row.
type metaPlan struct {
	*planner
	row      *Assignment
	voters   []uint64
	learners []uint64
}

// forget takes back what was assigned to a node that is gone meanwhile: a new replica that had
// nothing yet, or a vote that had not taken effect. The row does not show which voters had theirs
// before. A voter that is down for half a minute is no loss in either case.
func (m *metaPlan) forget() {
	for _, r := range m.row.Replicas {
		if !isNew(m.row, r) || !m.downFor(r.Node, redirectAfterMs) {
			continue
		}
		m.voters, m.learners = without(m.voters, r.Node), without(m.learners, r.Node)
		if len(m.voters) > 0 {
			m.propose(true)
		}
		return
	}
	for _, n := range m.voters {
		if m.downFor(n, redirectAfterMs) && m.survives(m.voters, n) {
			m.demote(n, 0)
			m.propose(true)
			return
		}
	}
}

func (m *metaPlan) step() {
	want := MetaVoters(m.countable())
	bad := slices.IndexFunc(m.voters, func(n uint64) bool { return m.lost(n) || m.going(n) })
	switch candidate := m.candidate(bad); {
	case m.dropWrong():
	case bad >= 0 && candidate != 0 && len(m.voters) <= want:
		m.demote(m.voters[bad], candidate)
	case len(m.voters) < want && candidate != 0:
		m.voters, m.learners = append(m.voters, candidate), without(m.learners, candidate)
	case len(m.voters) > want && m.demotable(bad) != 0:
		m.demote(m.demotable(bad), 0)
	case m.missing() != 0:
		m.learners = append(m.learners, m.missing())
	case m.spread():
	default:
		gone := slices.IndexFunc(m.learners, m.removed)
		if gone < 0 {
			return
		}
		m.learners = slices.Delete(m.learners, gone, gone+1)
	}
	m.propose(false)
}

// dropWrong takes a copy whose state is wrong out of the row: a learner's, or a voter's if most of the
// others are alive. The node gets a new one with the next step.
func (m *metaPlan) dropWrong() bool {
	wrong := func(n uint64) bool { return m.isWrong(MetaGroup, m.row.Replicas, n) }
	if at := slices.IndexFunc(m.learners, wrong); at >= 0 {
		m.learners = slices.Delete(m.learners, at, at+1)
		return true
	}
	at := slices.IndexFunc(m.voters, func(n uint64) bool { return wrong(n) && m.survives(m.voters, n) })
	if at >= 0 {
		m.voters = slices.Delete(m.voters, at, at+1)
	}
	return at >= 0
}

// countable is how many nodes there are to vote: those that do and may, dead or alive, and those
// that could begin now.
func (m *metaPlan) countable() int {
	count := 0
	for _, n := range m.view.Nodes {
		if n.holds() && (slices.Contains(m.voters, n.ID) || !m.lost(n.ID)) {
			count++
		}
	}
	return count
}

// candidate is the node that should vote next, or 0: in a zone with fewer voters, fit, and with a
// copy already, in this order of worth. The voter at index aside is about to go.
func (m *metaPlan) candidate(aside int) uint64 {
	best, bestScore := uint64(0), [3]int{}
	for _, n := range m.view.Nodes {
		if !n.holds() || !m.alive(n.ID) || slices.Contains(m.voters, n.ID) {
			continue
		}
		score := [3]int{-m.inZone(n.Zone, aside), boolInt(!m.facts.Nodes[n.ID].lastResort()), boolInt(slices.Contains(m.learners, n.ID))}
		if best == 0 || slices.Compare(score[:], bestScore[:]) > 0 {
			best, bestScore = n.ID, score
		}
	}
	return best
}

// inZone counts the voters in a zone, without the one at index aside. A node without a zone is in
// one of its own.
func (m *metaPlan) inZone(zone string, aside int) (n int) {
	for i, id := range m.voters {
		voter := m.nodes[id]
		n += boolInt(i != aside && zone != "" && voter != nil && voter.Zone == zone)
	}
	return n
}

// spread gives a vote to another zone where one has two more. It waits until all voters are alive.
func (m *metaPlan) spread() bool {
	if slices.ContainsFunc(m.voters, func(n uint64) bool { return !m.alive(n) }) {
		return false
	}
	for i := len(m.voters) - 1; i >= 0; i-- {
		to := m.candidate(i)
		if to == 0 || m.facts.Nodes[to].lastResort() {
			continue
		}
		if m.inZone(m.nodes[to].Zone, -1) < m.inZone(m.nodes[m.voters[i]].Zone, i) {
			m.demote(m.voters[i], to)
			return true
		}
	}
	return false
}

// demotable is the voter to lose its vote, or 0: the one that is bad, else one that is down, else
// the last; but most of the others must be alive.
func (m *metaPlan) demotable(bad int) uint64 {
	order := slices.Clone(m.voters)
	slices.Reverse(order)
	slices.SortStableFunc(order, func(a, b uint64) int { return boolInt(m.alive(a)) - boolInt(m.alive(b)) })
	if bad >= 0 {
		order = slices.Insert(order, 0, m.voters[bad])
	}
	for _, n := range order {
		if m.survives(m.voters, n) {
			return n
		}
	}
	return 0
}

// demote takes a node's vote, and gives it to another if there is one. A removed node leaves the
// row altogether.
func (m *metaPlan) demote(from, to uint64) {
	at := slices.Index(m.voters, from)
	if to != 0 {
		m.voters[at] = to
		m.learners = without(m.learners, to)
	} else {
		m.voters = slices.Delete(m.voters, at, at+1)
	}
	if !m.removed(from) {
		m.learners = append(m.learners, from)
	}
}

// missing is a live node that has no copy, or 0.
func (m *metaPlan) missing() uint64 {
	for _, n := range m.view.Nodes {
		if m.alive(n.ID) && !m.row.Names(n.ID) {
			return n.ID
		}
	}
	return 0
}

func (m *metaPlan) propose(force bool) {
	c := Command{Verb: Place, Group: MetaGroup, Epoch: m.row.Epoch, Force: force}
	for i, n := range slices.Concat(m.voters, m.learners) {
		r := m.row.replicaFor(n)
		r.Learner = i >= len(m.voters)
		c.To = append(c.To, r)
	}
	m.commands = append(m.commands, c)
}

func without(nodes []uint64, node uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(nodes), func(n uint64) bool { return n == node })
}
