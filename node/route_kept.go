package node

import (
	"context"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// Bounds of asking those who do not lead.
const (
	keptCallIn = time.Second // then a node's part is left out: it is a convenience
	maxKeepers = 63          // so many other nodes are asked at most
)

// keepers are asked what they keep of shards that they do not lead: replicas of before, or that were there when the leader was not.
type keepers struct {
	*router
	query *shard.HistoryQuery
	ids   []shard.ID
	asked fan.Group
	parts []part
}

// askKeepers begins to ask this node and all that it hears.
func (s *search) askKeepers(ctx context.Context) *keepers {
	k := &keepers{router: s.router, query: s.query}
	for id := range s.left {
		k.ids = append(k.ids, id)
	}
	slices.Sort(k.ids)
	nodes := s.heard()
	nodes = append(slices.Clip(nodes[:min(len(nodes), maxKeepers)]), s.self)
	k.parts = make([]part, len(nodes))
	for i, node := range nodes {
		k.parts[i] = part{node: node, ask: k.ids}
		k.asked.Go(func() { k.ask(ctx, &k.parts[i]) })
	}
	return k
}

func (k *keepers) ask(ctx context.Context, p *part) {
	ctx, cancel := context.WithTimeout(ctx, keptCallIn)
	defer cancel()
	one := search{router: k.router, query: k.query}
	one.askPart(ctx, p, true)
}

// wait gives what there is. A node that led a shard when it was asked, and did not when the leaders were, is asked again.
func (k *keepers) wait(ctx context.Context, led []part) []part {
	k.asked.Wait()
	again := keepers{router: k.router, query: k.query}
	for i := range k.parts {
		p := &k.parts[i]
		if p.err != nil {
			continue
		}
		if ids := k.unasked(p, led); len(ids) > 0 {
			again.parts = append(again.parts, part{node: p.node, ask: ids})
		}
	}
	for i := range again.parts {
		again.asked.Go(func() { again.ask(ctx, &again.parts[i]) })
	}
	again.asked.Wait()
	return slices.DeleteFunc(append(k.parts, again.parts...), func(p part) bool { return p.err != nil })
}

// unasked are the shards for which a node has answered neither as their leader nor as one that keeps something of them.
func (k *keepers) unasked(p *part, led []part) (ids []shard.ID) {
	for _, id := range k.ids {
		if slices.Contains(p.shards, id) || slices.ContainsFunc(led, func(l part) bool { return l.node == p.node && slices.Contains(l.shards, id) }) {
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
