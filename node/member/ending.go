package member

import (
	"sync"

	"carillon/ring"
	"carillon/transport/peer"
)

// ending ends this process where another node knows a reason: it was removed, or it runs on an
// older copy of its data directory.
type ending struct {
	*local
	once     sync.Once
	unproven *rareLog // of a reason that is not believed
}

// leaveCluster ends the process: the cluster has removed the node.
func (e *ending) leaveCluster() { e.once.Do(func() { e.cfg.Fail(ErrRemoved) }) }

// haltAsOlder ends the process for good.
func (e *ending) haltAsOlder(why error) {
	e.once.Do(func() { e.cfg.Fail(e.outdated(why)) })
}

// believed reports whether this node ends for a reason that another node gives: it must be the member
// that was asked, and have proven that it is a node. The reason is for the log.
func (e *ending) believed(asked ring.Node, from peer.Hello, word string) bool {
	if from.Node != asked.ID || from.Cluster != e.Identity().ClusterID {
		return false
	}
	if e.cfg.PeersProven {
		return true
	}
	e.unproven.do(func() {
		e.log.Warn("a node answers that this one "+word+". Without a key (--gossip-key) its answer proves nothing, so this node "+
			"continues, although the others may ignore it; if it is true, stop this node", "node", asked.Name)
	})
	return false
}
