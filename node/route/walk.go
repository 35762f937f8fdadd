package route

import (
	"context"
	"slices"
	"time"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

const (
	// stepsIn is how long a node takes steps of one request: after it, it begins none.
	stepsIn = 100 * time.Millisecond
	// stepsAtOnce of a request are under way at a node, as long as each may find leastStep timers: in
	// each the shard's leader is confirmed first, which takes as long for all of them as for one.
	stepsAtOnce = 16
	leastStep   = smallBatch
)

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
		_, err = readAt(ctx, r, node, &reading[[]timer.Step]{
			of:     of,
			here:   func() ([]timer.Step, error) { return part, r.walkHere(q, part) },
			method: methodWalk, within: scanCallIn,
			ask:  func() []byte { return wire.AppendWalk(nil, part, q) },
			take: func(answer []byte) ([]timer.Step, error) { return part, wire.DecodeSteps(answer, part) },
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

// walkHere takes the steps of shards that this node leads, some at once, until they have found what
// was asked for. A shard may have several steps taken.
func (r *Router) walkHere(q *timer.Query, steps []timer.Step) error {
	var todo []*timer.Step
	for i := range steps {
		s := &steps[i]
		if s.Refused = !r.leads(s.Shard); !s.Refused && !s.At.Done() {
			todo = append(todo, s)
		}
	}
	left, until := max(q.Limit, 1), r.tasks.Now()+stepsIn
	for first := true; left > 0 && len(todo) > 0 && (first || r.tasks.Now() < until); first = false {
		n := min(len(todo), stepsAtOnce, max(1, left/leastStep))
		some := make([]walkStep, n)
		all := task.NewGroup(r.tasks)
		for i := range some {
			w := &some[i]
			w.Step, w.query = todo[i], *q
			w.query.Limit = left / n
			all.Go(func() { w.refs, w.next, w.err = r.host.Walk(w.Shard, &w.query, w.At) })
		}
		all.Wait()
		again := todo[:0]
		for i := range some {
			w := &some[i]
			switch {
			case Refused(w.err):
				w.Refused = len(w.Refs) == 0
				continue
			case w.err != nil:
				return w.err
			}
			w.Refs, w.At = append(w.Refs, w.refs...), w.next
			if left -= len(w.refs); !w.At.Done() {
				again = append(again, w.Step)
			}
		}
		todo = append(again, todo[n:]...)
	}
	return nil
}

// walkStep is a step that is under way.
type walkStep struct {
	*timer.Step
	query timer.Query
	refs  []timer.Ref
	next  timer.ScanCursor
	err   error
}

func (r *Router) serveWalk(body []byte) ([]byte, error) {
	steps, q, err := wire.DecodeWalk(body)
	if err != nil {
		return nil, err
	}
	err = r.walkHere(q, steps)
	return wire.AppendSteps(nil, steps), err
}
