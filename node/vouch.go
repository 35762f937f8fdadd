package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"carillon/ring"
	"carillon/transport/peer"
)

// A node that was away does not know who has joined meanwhile, and one of these may lead the meta group, of which alone it could learn
// that. So it asks members that it knows for their list of nodes, and takes their word until its own copy says more. Where it hears none of
// them, as all may have been replaced, it asks whom gossip knows as a node of its cluster: as a node does that joins.

const vouchEach = time.Second

// answerMembers gives a member the list of nodes.
func (p *process) answerMembers(from peer.Hello) ([]byte, error) {
	c := p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	if n, ok := c.state.Node(from.Node); !ok || n.State == ring.NodeRemoved {
		return nil, fmt.Errorf("node %010x is not a member of this cluster", from.Node)
	}
	return json.Marshal(c.state.Nodes())
}

// vouchedFor is a node as others have it that this node's own copy does not know yet.
func (p *process) vouchedFor(node uint64) (ring.Node, bool) {
	if list := p.vouched.Load(); list != nil {
		for _, n := range *list {
			if n.ID == node {
				return n, true
			}
		}
	}
	return ring.Node{}, false
}

// askAboutStrangers asks, where somebody unknown has been met, one member after the other until one answers.
func (c *core) askAboutStrangers(ctx context.Context) {
	if !c.p.strangers.Swap(false) {
		return
	}
	for _, id := range c.whoMayVouch() {
		addr := c.p.addressOf(id)
		if addr == "" || id == c.self {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askFor)
		reply, from, err := c.p.peers.CallAddr(ctx, addr, methodMembers, nil)
		cancel()
		if err != nil || from.Node != id || from.Cluster != c.p.identity().ClusterID {
			continue
		}
		var list []ring.Node
		if err := json.Unmarshal(reply, &list); err != nil {
			continue
		}
		c.p.vouched.Store(&list)
		return
	}
}

// whoMayVouch are the members that this node hears; when there are none, whom gossip knows in this cluster.
func (c *core) whoMayVouch() (ids []uint64) {
	for _, n := range c.state.Nodes() {
		if n.ID != c.self && c.hears(n.ID) {
			ids = append(ids, n.ID)
		}
	}
	if len(ids) > 0 {
		return ids
	}
	for _, m := range c.p.members.List() {
		if m.State == ring.MemberAlive && m.Cluster == c.p.identity().ClusterID {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
