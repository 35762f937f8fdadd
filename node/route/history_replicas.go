package route

import (
	"context"
	"slices"
	"time"

	"carillon/node/task"
	"carillon/timer"
)

// Bounds of asking nodes that do not lead.
const (
	replicaCallIn = time.Second // then a node's part is left out, or the query fails: see Sure
	maxReplicas   = 63          // so many other nodes are asked at most
)

// replicaReaders ask nodes for entries of shards that they do not lead: replicas of before, or that
// were there when the leader was not.
type replicaReaders struct {
	*Router
	query *timer.HistoryQuery
	of    int // shards that there are
	ids   []timer.ShardID
	asked *task.Group
	parts []historyPart
}

// askReplicas begins to ask this node and all that it hears.
func (s *historySearch) askReplicas(ctx context.Context) *replicaReaders {
	r := &replicaReaders{Router: s.Router, query: s.query, of: s.of, ids: slices.Clone(s.left), asked: task.NewGroup(s.tasks)}
	nodes := s.cfg.Cluster.LiveNodes()
	nodes = append(slices.Clip(nodes[:min(len(nodes), maxReplicas)]), s.self)
	r.parts = make([]historyPart, len(nodes))
	for i, node := range nodes {
		r.parts[i] = historyPart{node: node, ask: r.ids}
		r.asked.Go(func() { r.ask(ctx, &r.parts[i]) })
	}
	return r
}

func (r *replicaReaders) ask(ctx context.Context, p *historyPart) {
	ctx, cancel := r.tasks.WithTimeout(ctx, replicaCallIn)
	defer cancel()
	one := historySearch{Router: r.Router, query: r.query, of: r.of}
	one.askPart(ctx, p, true)
}

// wait gives the entries that have come, and whether every node has answered for all shards. A node
// that led a shard when it was asked, and did not when the leaders were, is asked again.
func (r *replicaReaders) wait(ctx context.Context, led []historyPart) (parts []historyPart, all bool) {
	r.asked.Wait()
	all = true
	again := replicaReaders{Router: r.Router, query: r.query, of: r.of, asked: task.NewGroup(r.tasks)}
	for i := range r.parts {
		p := &r.parts[i]
		ids := r.unasked(p, led)
		switch {
		case len(ids) == 0:
		case p.err != nil:
			all = false
		default:
			again.parts = append(again.parts, historyPart{node: p.node, ask: ids})
		}
	}
	for i := range again.parts {
		again.asked.Go(func() { again.ask(ctx, &again.parts[i]) })
	}
	again.asked.Wait()
	for i := range again.parts {
		p := &again.parts[i]
		all = all && p.err == nil && len(p.shards) == len(p.ask)
	}
	return slices.DeleteFunc(append(r.parts, again.parts...), func(p historyPart) bool { return p.err != nil }), all
}

// unasked are the shards for which a node has answered neither as their leader nor as one that
// keeps something of them.
func (r *replicaReaders) unasked(p *historyPart, led []historyPart) (ids []timer.ShardID) {
	for _, id := range r.ids {
		if slices.Contains(p.shards, id) || slices.ContainsFunc(led, func(l historyPart) bool { return l.node == p.node && slices.Contains(l.shards, id) }) {
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
