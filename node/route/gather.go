package route

import (
	"context"
	"slices"

	"carillon/node/task"
	"carillon/timer"
)

// gathering has each of some shards answered for by the node that leads it: one call for each node,
// all at once. A shard whose leader moved meanwhile is asked for again, without the others.
type gathering struct {
	*Router
	of      int // shards that there are; timer.ErrShards if there are more by now
	targets map[timer.ShardID]*target
	// ask asks a node for some shards, in ascending order, and returns those that it answered for.
	ask func(ctx context.Context, node uint64, ids []timer.ShardID) (led []timer.ShardID, err error)
}

// shardsOfNode are the shards that a node is asked for in a round, and for which it has answered.
type shardsOfNode struct {
	node     uint64
	ids, led []timer.ShardID
	err      error
}

// all returns when each shard was answered for once. An error does not go away by asking again.
func (g *gathering) all(ctx context.Context, left []timer.ShardID) error {
	b := task.NewBackoff(g.tasks, g.tasks.Now())
	for {
		parts := g.byNode(left)
		all := task.NewGroup(g.tasks)
		for i := range parts {
			p := &parts[i]
			all.Go(func() { p.led, p.err = g.ask(ctx, p.node, p.ids) })
		}
		all.Wait()
		answered := map[timer.ShardID]bool{}
		for i := range parts {
			p := &parts[i]
			if p.err != nil && !readAgain(p.err) {
				return p.err
			}
			for _, id := range p.led {
				answered[id] = true
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(id timer.ShardID) bool { return answered[id] })
		switch {
		case g.of != g.shards():
			return timer.ErrShards
		case len(left) == 0:
			return nil
		case !b.Wait(ctx, false):
			return timer.ErrNoLeader
		}
	}
}

// byNode groups shards by the node that may lead them, by now: where a shard's leader was not found
// before, another one.
func (g *gathering) byNode(ids []timer.ShardID) (parts []shardsOfNode) {
	if g.targets == nil {
		g.targets = make(map[timer.ShardID]*target, len(ids))
	}
	at := map[uint64]int{}
	for _, id := range ids {
		t := g.targets[id]
		if t == nil {
			t = &target{}
			g.targets[id] = t
		}
		if t.choose(g.Router, id); t.node == 0 {
			continue
		}
		i, known := at[t.node]
		if !known {
			i = len(parts)
			at[t.node] = i
			parts = append(parts, shardsOfNode{node: t.node})
		}
		parts[i].ids = append(parts[i].ids, id)
	}
	return parts
}

// allShards are the shards from 1 on.
func allShards(of int) []timer.ShardID {
	ids := make([]timer.ShardID, of)
	for i := range ids {
		ids[i] = timer.ShardID(1 + i)
	}
	return ids
}

// ledOf are those of some shards that this node leads.
func (r *Router) ledOf(ids []timer.ShardID) (led []timer.ShardID) {
	for _, id := range ids {
		if r.leads(id) {
			led = append(led, id)
		}
	}
	return led
}
