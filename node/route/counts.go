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
	b := r.newBackoff(r.tasks.Now())
	fan := countFanOut{Router: r, topics: topics}
	for {
		if n := r.shards(); n != len(fan.targets) {
			fan.targets = make([]target, n)
		}
		sums, whole, err := fan.round(ctx)
		if whole || err != nil {
			return sums, err
		}
		if !b.wait(ctx, false) {
			return nil, timer.ErrNoLeader
		}
	}
}

// countFanOut is one request's counting.
type countFanOut struct {
	*Router
	topics  []timer.TopicID
	targets []target // of shards 1…
}

// nodeCounts are the counts of one node.
type nodeCounts struct {
	node   uint64
	shards []timer.ShardID
	counts []timer.Counts
	err    error
}

// round asks every node that may lead a shard. whole: each shard was counted once. An error does
// not go away by asking again.
func (f *countFanOut) round(ctx context.Context) (sums []timer.Counts, whole bool, err error) {
	parts := f.nodes()
	all := task.NewGroup(f.tasks)
	for i := range parts {
		all.Go(func() { f.count(ctx, &parts[i]) })
	}
	all.Wait()
	sums = make([]timer.Counts, len(f.topics))
	counted := make([]int, 1+len(f.targets))
	for i := range parts {
		p := &parts[i]
		if p.err != nil {
			if !readAgain(p.err) {
				return nil, false, p.err
			}
			continue
		}
		for _, id := range p.shards {
			if id == shard.Meta || int(id) >= len(counted) {
				continue
			}
			counted[id]++
			f.targets[id-1].hint = p.node // should it take another round
		}
		for i := range p.counts {
			sums[i].Add(&p.counts[i])
		}
	}
	for _, n := range counted[1:] {
		if n != 1 {
			return nil, false, nil
		}
	}
	return sums, true, nil
}

// nodes are those that may lead, by now, the shards; where a shard's leader was not found before,
// another one.
func (f *countFanOut) nodes() []nodeCounts {
	var parts []nodeCounts
	for i := range f.targets {
		t := &f.targets[i]
		t.choose(f.Router, timer.ShardID(1+i))
		known := func(p nodeCounts) bool { return p.node == t.node }
		if t.node != 0 && !slices.ContainsFunc(parts, known) {
			parts = append(parts, nodeCounts{node: t.node})
		}
	}
	return parts
}

func (f *countFanOut) count(ctx context.Context, p *nodeCounts) {
	if p.node == f.self {
		p.err = f.counting(len(f.targets), func() (err error) {
			p.shards, p.counts, err = f.countHere(f.topics)
			return err
		})
		return
	}
	p.err = f.readAt(ctx, p.node, &reading{
		of:     len(f.targets),
		method: methodCounts, within: scanCallIn,
		ask: func() []byte { return wire.AppendCountsRequest(nil, f.topics) },
		take: func(answer []byte) (err error) {
			p.shards, p.counts, err = wire.DecodeCounts(answer)
			if err == nil && len(p.counts) != len(f.topics) {
				err = encoding.ErrFormat
			}
			return err
		},
	})
}

// countHere sums up topics over the shards that this node leads, and lists these shards. It fails
// if leaderships moved meanwhile.
func (r *Router) countHere(topics []timer.TopicID) ([]timer.ShardID, []timer.Counts, error) {
	led := r.led()
	counts, err := r.host.Counts(topics)
	if err == nil && !slices.Equal(led, r.led()) {
		err = timer.ErrNoLeader
	}
	return led, counts, err
}
