package route

import (
	"context"
	"slices"
	"time"

	"carillon/shard/wire"
	"carillon/timer"
)

// stepsIn is how long a node takes steps of one request: after it, it begins none.
const stepsIn = 100 * time.Millisecond

// Walk takes a step in each of some walks, at the leaders of their shards, in one call for each
// node. The steps of one node find q.Limit timers at most, so some may not have been taken at all.
// One that fails is taken again from where it began; the next may be another leader's: the way is
// the same on every replica. of is the number of shards that the steps are right for:
// timer.ErrShards if there are more. The steps are in ascending order of their shards, and those
// that were taken are also in the list after an error.
func (r *Router) Walk(ctx context.Context, of int, q *timer.Query, steps []timer.Step) error {
	for i := range steps {
		steps[i].Refs = nil
	}
	ids := make([]timer.ShardID, len(steps))
	for i := range steps {
		ids[i] = steps[i].Shard
	}
	g := gathering{Router: r, of: of}
	g.ask = func(ctx context.Context, node uint64, asked []timer.ShardID) (led []timer.ShardID, err error) {
		part := make([]timer.Step, len(asked))
		for i, id := range asked {
			at, _ := slices.BinarySearch(ids, id)
			part[i] = steps[at]
		}
		err = r.readAt(ctx, node, &reading{
			of:     of,
			here:   func() error { return r.walkHere(q, part) },
			method: methodWalk, within: scanCallIn,
			ask:  func() []byte { return wire.AppendWalk(nil, part, q) },
			take: func(answer []byte) error { return wire.DecodeSteps(answer, part) },
		})
		if err != nil {
			return nil, err
		}
		for _, s := range part {
			if !s.Refused {
				at, _ := slices.BinarySearch(ids, s.Shard)
				steps[at] = s
				led = append(led, s.Shard)
			}
		}
		return led, nil
	}
	return g.all(ctx, ids)
}

// walkHere takes the steps of shards that this node leads, one after the other, until they have
// found what was asked for. A shard may have several steps taken.
func (r *Router) walkHere(q *timer.Query, steps []timer.Step) error {
	left, until := max(q.Limit, 1), r.tasks.Now()+stepsIn
	for i := range steps {
		s := &steps[i]
		if s.Refused = !r.leads(s.Shard); s.Refused {
			continue
		}
		for left > 0 && !s.At.Done() && (i == 0 || r.tasks.Now() < until) {
			one := *q
			one.Limit = left
			refs, next, err := r.host.Walk(s.Shard, &one, s.At)
			if Refused(err) {
				s.Refused = len(s.Refs) == 0
				break
			}
			if err != nil {
				return err
			}
			s.Refs, s.At = append(s.Refs, refs...), next
			left -= len(refs)
		}
	}
	return nil
}

func (r *Router) serveWalk(_ context.Context, body []byte) []byte {
	steps, q, err := wire.DecodeWalk(body)
	if err == nil {
		err = r.walkHere(q, steps)
	}
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	return wire.AppendSteps(nil, steps)
}
