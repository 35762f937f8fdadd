package route

import (
	"context"
	"slices"

	"carillon/node/task"
	"carillon/shard"
	"carillon/shard/wire"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Counts sums up each of the topics over all shards: every leader is asked once, all at once. It is
// tried again until each shard has been counted, and counted once.
func (r *Router) Counts(ctx context.Context, topics []timer.TopicID) ([]timer.Counts, error) {
	b := task.NewBackoff(r.tasks, r.tasks.Now())
	fan := countFanOut{gathering: gathering{Router: r}, topics: topics}
	for {
		if n := r.shards(); n != fan.of {
			fan.gathering = gathering{Router: r, of: n}
		}
		sums, whole, err := fan.round(ctx)
		if whole || err != nil {
			return sums, err
		}
		if !b.Wait(ctx, false) {
			return nil, timer.ErrNoLeader
		}
	}
}

// countFanOut is one request's counting. A node counts all shards that it leads together, so that
// each round asks all nodes.
type countFanOut struct {
	gathering
	topics []timer.TopicID
}

// round asks every node that may lead a shard. whole: each shard was counted once. An error does
// not go away by asking again.
func (f *countFanOut) round(ctx context.Context) (sums []timer.Counts, whole bool, err error) {
	parts := f.byNode(allShards(f.of))
	counts := make([]nodeCounts, len(parts))
	all := task.NewGroup(f.tasks)
	for i := range parts {
		p := &parts[i]
		all.Go(func() { counts[i], p.err = f.count(ctx, p.node) })
	}
	all.Wait()
	sums = make([]timer.Counts, len(f.topics))
	counted := make([]int, 1+f.of)
	for i := range parts {
		p := &parts[i]
		if p.err != nil {
			if !readAgain(p.err) {
				return nil, false, p.err
			}
			continue
		}
		for _, id := range counts[i].led {
			if id == shard.Meta || int(id) >= len(counted) {
				continue
			}
			counted[id]++
			f.targets[id].hint = p.node // should it take another round
		}
		for k := range counts[i].counts {
			sums[k].Add(&counts[i].counts[k])
		}
	}
	for _, n := range counted[1:] {
		if n != 1 {
			return nil, false, nil
		}
	}
	return sums, true, nil
}

// nodeCounts are those of the shards that a node leads.
type nodeCounts struct {
	led    []timer.ShardID
	counts []timer.Counts
}

// count asks one node for the counts of the shards that it leads, and which these are.
func (f *countFanOut) count(ctx context.Context, node uint64) (nodeCounts, error) {
	return readAt(ctx, f.Router, node, &reading[nodeCounts]{
		of:     f.of,
		here:   func() (nodeCounts, error) { return f.countHere(f.topics) },
		method: methodCounts, within: scanCallIn,
		ask: func() []byte { return wire.AppendCountsRequest(nil, f.topics) },
		take: func(answer []byte) (n nodeCounts, err error) {
			n.led, n.counts, err = wire.DecodeCounts(answer)
			if err == nil && len(n.counts) != len(f.topics) {
				err = encoding.ErrFormat
			}
			return n, err
		},
	})
}

// countHere sums up topics over the shards that this node leads, and lists these shards. It fails
// if leaderships moved meanwhile.
func (r *Router) countHere(topics []timer.TopicID) (n nodeCounts, err error) {
	n.led = r.led()
	n.counts, err = r.host.Counts(topics)
	if err == nil && !slices.Equal(n.led, r.led()) {
		err = timer.ErrNoLeader
	}
	return n, err
}
