package route

import (
	"context"
	"sync"
	"time"

	"carillon/shard"
	"carillon/timer"
)

// awaited are the requests to shards' leaders on other nodes that are not answered yet, by shard. A
// leader that falls silent answers none of them, and its connection need not break. So the news
// that another node leads a shard ends them: their clients need not wait for the time-out before
// they try again. A request costs O(its shards), the news O(requests for that shard).
type awaited struct {
	mu    sync.Mutex
	calls map[timer.ShardID][]*awaitedShard
}

// awaitedCall is one request. A call for one shard keeps it in one.
type awaitedCall struct {
	node   uint64
	shards []awaitedShard
	one    [1]awaitedShard
	end    context.CancelFunc
}

// awaitedShard is a call's place in the list of a shard.
type awaitedShard struct {
	id   timer.ShardID
	at   int
	call *awaitedCall
}

func newAwaitedCall(id timer.ShardID) *awaitedCall {
	c := &awaitedCall{one: [1]awaitedShard{{id: id}}}
	c.shards = c.one[:]
	return c
}

func newAwaitedOps(ops []timer.Op) *awaitedCall {
	c := newAwaitedCall(ops[0].Shard)
	for i := range ops[1:] {
		if id := ops[1+i].Shard; id != ops[i].Shard {
			c.shards = append(c.shards, awaitedShard{id: id})
		}
	}
	return c
}

func (a *awaited) add(c *awaitedCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[timer.ShardID][]*awaitedShard)
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.call, s.at = c, len(a.calls[s.id])
		a.calls[s.id] = append(a.calls[s.id], s)
	}
}

func (a *awaited) remove(c *awaitedCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range c.shards {
		s := &c.shards[i]
		list := a.calls[s.id]
		last := len(list) - 1
		list[s.at] = list[last]
		list[s.at].at = s.at
		list[last] = nil
		a.calls[s.id] = list[:last]
	}
}

// askLeader has the leader of shards on another node answer within a time. It ends early when that
// node is silent and another one is known to lead one of the shards: with NotSent if that is known
// before the request leaves, otherwise with an unknown outcome.
func (r *Router) askLeader(ctx context.Context, within time.Duration, node uint64, c *awaitedCall, method uint8, body []byte) ([]byte, error) {
	ctx, c.end = r.tasks.WithTimeout(ctx, within)
	defer c.end()
	c.node = node
	r.awaited.add(c)
	defer r.awaited.remove(c)
	for i := range c.shards { // its places in the lists are others' to change
		if r.deposed(c.shards[i].id, node) {
			return nil, r.cfg.NotSent
		}
	}
	return r.cfg.Peers.Call(ctx, node, method, body)
}

// deposed reports that this node knows of another leader than a node, which is silent.
func (r *Router) deposed(id timer.ShardID, node uint64) bool {
	leader := r.leader(id)
	return (leader != 0 && leader != node || r.leads(id)) && r.cfg.Cluster.Silent(node)
}

// NewLeader takes the news that a node leads a shard. It does not block. A node that is not silent
// keeps its requests: it may be about to answer, as one that hands a shard over does.
func (r *Router) NewLeader(id timer.ShardID, leader uint64) {
	if id == shard.Meta { // as a shard of requests it stands for several
		return
	}
	a := &r.awaited
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.calls[id] {
		if node := s.call.node; node != leader && r.cfg.Cluster.Silent(node) {
			s.call.end()
		}
	}
}
