package sim

import (
	"errors"
	"time"

	"carillon/shard/repair"
	"carillon/wal"
)

const (
	mendEach = 300 * time.Millisecond // between two requests to the other nodes
	mendFor  = 8 * time.Second        // then the repair is abandoned
)

// mends starts the repair of a damaged log with the other nodes' data; false: the log cannot be
// repaired without guessing.
func (n *node) mends(found error) bool {
	var damage *wal.CorruptionError
	if !errors.As(found, &damage) {
		return false
	}
	m, err := repair.New(n.disk, dataDir, n.w.swarm.shards)
	if err != nil && n.couldNotRead(err) {
		n.blinded(err)
		return true
	}
	if err != nil {
		n.w.note(n, "not to be repaired", 0, 0, err.Error())
		return false
	}
	n.w.note(n, "mend", uint64(m.Missing()), 0, found.Error())
	n.repairer, n.mendUntil = m, n.w.now+mendFor
	n.askSelf()
	life := n.life
	n.every(mendEach, func() {
		if n.life == life && n.repairer != nil {
			n.mendOn()
		}
	})
	return true
}

// askSelf answers the repairer's questions from the node's own log.
func (n *node) askSelf() {
	answer, err := repair.Answer(n.disk, dataDir, n.w.swarm.shards, n.repairer.Questions())
	if err == nil {
		_, err = n.repairer.Take(answer)
	}
	if err != nil && n.couldNotRead(err) {
		n.blinded(err)
		return
	}
	if err != nil && !n.crash.struck() {
		n.w.violate("mend", "node %d cannot read its own log for the repair: %v", n.id, err)
	}
}

// mendOn writes the log and starts the process if nothing is missing any more; otherwise it asks
// the other nodes.
func (n *node) mendOn() {
	w, m := n.w, n.repairer
	switch {
	case m.Missing() == 0:
		n.repairer = nil
		err := m.Write(n.keeper.WallMs())
		switch {
		case n.crash.struck():
			n.stop(false)
		case err != nil && n.couldNotRead(err):
			n.blinded(err)
		case err != nil:
			w.note(n, "not repaired", 0, 0, err.Error())
			n.refuse()
		default:
			w.counts.Mended++
			n.open()
		}
		return
	case w.now > n.mendUntil:
		n.repairer = nil
		n.refuse()
		return
	}
	question := m.Questions()
	for _, other := range w.nodes {
		if other == n {
			continue
		}
		w.carry(n, other.id, func(other *node, _ bool) {
			answer, err := repair.Answer(other.disk, dataDir, w.swarm.shards, question)
			if err != nil {
				return
			}
			w.carry(other, n.id, func(n *node, _ bool) {
				if n.repairer != m {
					return
				}
				if _, err := m.Take(answer); err != nil {
					w.violate("mend", "node %d: %v", n.id, err)
				}
			})
		})
	}
}

// refuse handles a node that does not start because of its damaged log: a new machine replaces it.
func (n *node) refuse() {
	n.w.counts.Refusals++
	n.replace()
}
