package sim

import (
	"slices"
	"time"

	"carillon/internal/feature"
	"carillon/shard"
	"carillon/timer"
)

// place is an index in a group's log.
type place struct {
	group timer.ShardID
	index uint64
}

// replicas holds the state of every group after each entry. All replicas must agree on it (I7),
// whether they ran on, were restarted or were filled from a snapshot (I12).
type replicas struct {
	groups  [][]seen         // by group and index
	leaders map[place]uint64 // by group and term
}

// seen is the state after an entry at the first replica that applied it.
type seen struct {
	hash           uint64
	epoch          uint32
	hashed, epochs bool // whether hash and epoch are known
}

func newReplicas() replicas { return replicas{leaders: map[place]uint64{}} }

// at returns the record of a place, and makes it if there is none.
func (r *replicas) at(p place) *seen {
	for len(r.groups) <= int(p.group) {
		r.groups = append(r.groups, nil)
	}
	list := &r.groups[p.group]
	if n := int(p.index) + 1; n > len(*list) {
		*list = append(*list, make([]seen, n-len(*list))...)
	}
	return &(*list)[p.index]
}

// checkedGroup is the progress of a process's replica at its last check.
type checkedGroup struct {
	replica uint64
	applied uint64
	epoch   uint32
	conf    uint64 // index of the last membership change
	words   uint64 // commit hints sent to candidates
	leads   bool
	term    uint64
	clockMs int64

	installs, compared uint64
	wrong              bool // its state is known to be wrong

	leaving   bool // it leads although the configuration no longer contains it
	late      int  // turns in a row in which its scheduler had no time
	proposed  uint64
	pipelined []time.Duration // proposal times of its entries that are not applied yet
}

// check compares the node's replicas with all others after a turn.
func (n *node) check() {
	off := n.checkClock()
	for i := range n.checked {
		id, c := timer.ShardID(i), &n.checked[i]
		p := n.host.Progress(id)
		if p.Replica != c.replica {
			if c.wrong && p.Replica != 0 {
				n.w.counts.Remade++
			}
			*c = checkedGroup{replica: p.Replica, wrong: c.wrong && p.Replica == 0}
			n.struck[id] = false
			n.w.note(n, "replica", uint64(id), p.Replica, "")
		}
		if p.Replica == 0 {
			if n.reached[i].replica != 0 {
				n.reached[i] = reached{} // the replica was given up
			}
			continue
		}
		n.w.checker.times.led(id, n.id, p.Leads, n.w.now, off)
		if p.Installs > c.installs {
			next := restored{index: p.Applied}
			if had := n.reached[i]; had.replica == p.Replica {
				next.before, next.floor = had, had.applied
				if last := n.restored[i]; last.index == had.applied {
					next.floor = last.floor
				}
			}
			n.restored[i] = next
		}
		if n.watchFaults(id, c, &p); p.Stopped != nil {
			continue
		}
		if p.Leads && (!c.leads || p.Term != c.term) {
			n.leads(id, p.Term)
		}
		n.hadTime(id, c, p.Late)
		leaving := p.Leads && p.Leaves
		if leaving && c.leaving && p.Term == c.term && p.Proposed > c.proposed {
			// Entries that only the leaving leader has would make its log the longest, and the
			// remaining replicas may need its vote (I14).
			n.w.violate("leaving", "node %d proposes to group %d, which it leads but whose configuration no longer contains it", n.id, id)
		}
		if leaving && !c.leaving {
			n.w.counts.Leaving++
			n.w.note(n, "leaves", uint64(id), p.Term, "")
		}
		if p.CommitHintsSent > c.words {
			n.w.counts.Words += int(p.CommitHintsSent - c.words)
			n.w.note(n, "word", uint64(id), p.CommitHintsSent, "")
		}
		for ; c.proposed < p.Proposed; c.proposed++ {
			c.pipelined = append(c.pipelined, n.w.now)
		}
		c.pipelined = c.pipelined[max(0, len(c.pipelined)-p.Pipelined):]
		c.leads, c.term, c.leaving, c.words, c.proposed = p.Leads, p.Term, leaving, p.CommitHintsSent, p.Proposed
		if p.Applied == c.applied {
			continue
		}
		if p.Applied < c.applied {
			n.w.violate("I7", "node %d: group %d went back from entry %d to %d", n.id, id, c.applied, p.Applied)
		}
		if p.Epoch < c.epoch {
			n.w.violate("I8", "node %d: group %d went back from epoch %d to %d", n.id, id, c.epoch, p.Epoch)
		}
		if p.Leads && c.epoch != 0 && p.Epoch > c.epoch {
			n.w.cutWithin(40 * time.Millisecond)
		}
		if p.ConfIndex != c.conf && c.conf != 0 && (p.Leads || p.Out) {
			n.w.part(n, id, p.Out)
		}
		c.conf = p.ConfIndex
		if t := n.host.Table(id); t != nil {
			n.checkDelivery(id, t)
			n.w.counts.SetBack += int(b2u(t.ClockMs() < c.clockMs))
			c.clockMs = t.ClockMs()
			n.w.checker.times.applied(id, p.Applied, c.clockMs, n.w.now)
		}
		n.compare(id, p)
		c.applied, c.epoch = p.Applied, p.Epoch
		n.reached[i] = reached{p.Replica, p.Applied}
	}
}

// leads checks that a term has one leader (I7).
func (n *node) leads(id timer.ShardID, term uint64) {
	n.w.note(n, "leads", uint64(id), term, "")
	if int(id) > n.w.shards() {
		n.w.growing.born = int(id)
		n.w.counts.Divided++
	}
	key := place{id, term}
	if other, known := n.w.checker.replicas.leaders[key]; known && other != n.id {
		n.w.violate("I7", "nodes %d and %d both lead group %d in term %d", other, n.id, id, term)
	}
	n.w.checker.replicas.leaders[key] = n.id
	n.w.checker.ranked.reigns[key] = n.w.now
	n.voted(id, term)
}

// promised is a vote that decided an election. It must survive on the voter's disk.
type promised struct{ replica, term, vote uint64 }

// voted records the votes for a new leader that must be durable. If no more than a majority voted
// for it, every vote was needed, so each was given only after it was on disk (I10).
func (n *node) voted(id timer.ShardID, term uint64) {
	_, s := n.host.Inspect(id)
	me := n.host.Progress(id).Replica
	var by []*node
	voters := 0
	for _, m := range n.w.nodes {
		if m.host == nil {
			continue
		}
		p := m.host.Progress(id)
		if !slices.Contains(s.Voters, p.Replica) {
			continue
		}
		if voters++; p.HardTerm > term {
			return
		}
		if p.HardTerm == term && p.Vote == me {
			by = append(by, m)
		}
	}
	// a node that is down may have voted before it ended
	if s.Joint || voters < len(s.Voters) || len(by) != len(s.Voters)/2+1 {
		return
	}
	for _, m := range by {
		m.votes[id] = promised{m.host.Progress(id).Replica, term, me}
	}
}

func (n *node) compare(id timer.ShardID, p shard.Progress) {
	at := place{id, p.Applied}
	known := n.w.checker.replicas.at(at)
	if known.epochs && known.epoch != p.Epoch {
		n.w.violate("I8", "node %d: group %d is at epoch %d after entry %d, another replica at %d", n.id, id, p.Epoch, p.Applied, known.epoch)
	}
	known.epoch, known.epochs = p.Epoch, true
	hash := n.state.Hash()
	if id != shard.Meta {
		hash = n.host.Table(id).Hash()
	}
	n.applied(id, p.Applied, hash)
	if id == shard.Meta {
		n.checkMeta()
	}
	n.w.note(n, "applied", uint64(id), p.Applied, "")
}

// agreed is the last state of the cluster's agreement that a process has shown.
type agreed struct {
	founded bool
	version uint64 // version of the placement
	level   feature.Level
}

// checkMeta checks that the meta group's state is consistent and has not gone back.
func (n *node) checkMeta() {
	if err := n.state.Audit(); err != nil && !n.struck[shard.Meta] {
		n.w.violate("meta", "node %d: %v", n.id, err)
	}
	id, _, _ := n.state.Cluster()
	now := agreed{founded: id != "", version: n.state.Version(), level: n.state.Level()}
	if now.version < n.agreed.version || now.level < n.agreed.level {
		n.w.violate("meta", "node %d went back: placement version %d after %d, feature level %d after %d", n.id, now.version, n.agreed.version, now.level, n.agreed.level)
	}
	n.checkLevel(now)
	n.agreed = now
	n.checkBuried()
}

// applied compares the state after an entry with that of the other replicas.
func (n *node) applied(id timer.ShardID, index, hash uint64) {
	if id == shard.Meta {
		n.w.checker.decided = max(n.w.checker.decided, index)
		n.learned = n.learned || index >= n.decided
	}
	if !n.struck[id] {
		n.same(place{id, index}, hash)
	}
}

func (n *node) same(at place, hash uint64) {
	known := n.w.checker.replicas.at(at)
	if known.hashed && known.hash != hash {
		n.w.violate("I7", "node %d: group %d has state %016x after entry %d, another replica %016x", n.id, at.group, hash, at.index, known.hash)
	}
	known.hash, known.hashed = hash, true
}

// checkEnd compares the final state with the observations of clients and receivers (I1).
func (w *World) checkEnd() {
	for _, id := range w.checker.names {
		known := w.checker.ids[id]
		if len(known.lives) == 0 {
			continue
		}
		group := w.holder(id.topic, id.id)
		leader := w.leader(group)
		table := leader.host.Table(group)
		now := table.Read(id.topic, id.id)
		for _, l := range known.lives {
			w.checkLife(l, l.seq, now, known)
		}
	}
	w.checker.features.checkEnd(w)
	w.checker.features.checkSick(w)
	w.checker.checkVisits(w)
	for _, n := range w.nodes {
		if n.host == nil {
			continue
		}
		for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
			if n.host.Progress(id).Replica == 0 {
				continue
			}
			table := n.host.Table(id)
			if err := table.Audit(true); err != nil {
				w.violate("I13", "node %d, shard %d: %v", n.id, id, err)
			}
		}
	}
}

// checkLife checks the end of one timer. By then every timer must have ended: all were due long
// before, and the receivers answer.
func (w *World) checkLife(l *life, seq uint64, now *timer.Timer, known *named) {
	w.stamped(now)
	switch {
	case now == nil || now.Seq < seq:
		if l.acked && !w.mayBeForgotten(l.shard, known.since, l.delivered > 0 || known.cancels > 0) {
			w.violate("I1", "timer %s (number %d of shard %d) was acknowledged and is gone", l.id.id, seq, l.shard)
		}
		return
	case now.Seq > seq: // the id was used again, so the timer had ended
		if l.acked && l.delivered == 0 && known.cancels == 0 {
			w.violate("I1", "timer %s (number %d of shard %d) has ended, but it was neither delivered nor cancelled", l.id.id, seq, l.shard)
		}
		return
	}
	if now.Version < l.newest {
		w.violate("I1", "timer %s has version %d, version %d was acknowledged", l.id.id, now.Version, l.newest)
	}
	if wrote := l.versions[now.Version]; wrote != nil && wrote.payload != string(now.Payload) {
		w.violate("I6", "version %d of timer %s has payload %s, expected %s", now.Version, l.id.id, now.Payload, wrote.payload)
	}
	switch now.State {
	case timer.Done:
		if l.delivered == 0 {
			w.violate("I1", "timer %s is done, but was never delivered", l.id.id)
		}
		if l.prevented {
			w.violate("I5", "timer %s is done after its cancel was answered `prevented`", l.id.id)
		}
	case timer.Cancelled:
		if known.cancels == 0 {
			w.violate("I1", "timer %s is cancelled, but no client requested it", l.id.id)
		}
	default:
		w.violate("I14", "timer %s is in state %d with %d attempts, due at %d, expected an ended timer", l.id.id, now.State, now.Attempts, now.DueMs)
	}
}

// leader is the node that leads a group and serves it, the newest by term; nil: none.
func (w *World) leader(group timer.ShardID) *node {
	var best *node
	term := uint64(0)
	for _, n := range w.nodes {
		if n.host == nil || n.paused {
			continue
		}
		if p := n.host.Progress(group); p.Leads && p.Serves && p.Term >= term {
			best, term = n, p.Term
		}
	}
	return best
}
