package route

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"carillon/shard"
	"carillon/timer"
)

// awaited are the requests to shards' leaders on other nodes that are not answered yet, by node. A
// leader that falls silent answers none of them, and its connection need not break. So the news
// that another node leads a shard ends them: their clients need not wait for the time-out before
// they try again. A request costs O(1), the news O(requests that silent nodes have).
type awaited struct {
	mu    sync.Mutex
	calls map[uint64][]*awaitedCall
}

// awaitedCall is one request. A call for one shard keeps it in one.
type awaitedCall struct {
	at     int // in its node's list
	shards []timer.ShardID
	one    [1]timer.ShardID
	end    context.CancelFunc
}

func newAwaitedCall(id timer.ShardID) *awaitedCall {
	c := &awaitedCall{one: [1]timer.ShardID{id}}
	c.shards = c.one[:]
	return c
}

func newAwaitedOps(ops []timer.Op) *awaitedCall {
	c := newAwaitedCall(ops[0].Shard)
	for i := range ops[1:] {
		if id := ops[1+i].Shard; id != ops[i].Shard {
			c.shards = append(c.shards, id)
		}
	}
	return c
}

func (a *awaited) add(node uint64, c *awaitedCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[uint64][]*awaitedCall)
	}
	c.at = len(a.calls[node])
	a.calls[node] = append(a.calls[node], c)
}

func (a *awaited) remove(node uint64, c *awaitedCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.calls[node]
	last := len(list) - 1
	list[c.at] = list[last]
	list[c.at].at = c.at
	list[last] = nil
	a.calls[node] = list[:last]
}

// askLeader has the leader of shards on another node answer within a time. It ends early when that
// node is silent and another one is known to lead one of the shards: with NotSent if that is known
// before the request leaves, otherwise with an unknown outcome.
func (r *Router) askLeader(ctx context.Context, within time.Duration, node uint64, c *awaitedCall, method uint8, body []byte) ([]byte, error) {
	ctx, c.end = r.tasks.WithTimeout(ctx, within)
	defer c.end()
	r.awaited.add(node, c)
	defer r.awaited.remove(node, c)
	if slices.ContainsFunc(c.shards, func(id timer.ShardID) bool { return r.deposed(id, node) }) {
		return nil, r.cfg.NotSent
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
	for _, node := range slices.Sorted(maps.Keys(a.calls)) {
		if node == leader || len(a.calls[node]) == 0 || !r.cfg.Cluster.Silent(node) {
			continue
		}
		for _, c := range a.calls[node] {
			if slices.Contains(c.shards, id) {
				c.end()
			}
		}
	}
}
