package route

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/timer"
	"carillon/timer/bulk"
)

// Bounds of a bulk change. A batch is a part of a worker's work in one turn: a small one
// takes a fifth of a millisecond, the largest under three. It is larger where a commit waits for
// others, as in a herd: small ones would wait as long, and more often.
const (
	// Commands of one shard at once; paceLanes batches are under way, of all bulk changes together.
	smallBatch   = 128
	largeBatch   = 2048
	bulkLanes    = 8                // groups of shards under way
	bulkPage     = largeBatch       // timers of one step of a walk
	bulkPatience = 10 * time.Second // for a shard that does not answer
	bulkPause    = time.Second      // between two tries, at most; it doubles
	bulkRoom     = 8 << 20          // for the timers in the answers to a batch
)

// Bulk does one change to all timers that a query selects, in all shards. It walks the timers of
// the shards that one node leads together, by slot (timer.ScanCursor), and has the commands decided
// in small batches, at the node's pace. The decision on each timer, and the progress so far, is the
// bulk.Update's. It ends early with the first error, or when the context ends; timers that have
// been changed by then stay changed.
func (r *Router) Bulk(ctx context.Context, bulk *bulk.Update) error {
	b := bulkRun{Router: r, bulk: bulk, calls: context.WithoutCancel(ctx)}
	bulk.Query.Limit = r.cfg.BulkPage
	ctx, cancel := r.tasks.WithTimeout(ctx, task.Forever)
	defer cancel()
	of := cmp.Or(bulk.Of, r.shards())
	groups := b.groups(of)
	var mu sync.Mutex
	var first error
	task.Lanes(r.tasks, bulkLanes, len(groups), func(i int) bool {
		err := ctx.Err()
		if err == nil {
			err = b.group(ctx, &groups[i])
		}
		if err == nil {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		first = cmp.Or(first, err)
		cancel()
		return false
	})
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// bulkRun is one bulk change under way.
type bulkRun struct {
	*Router
	bulk *bulk.Update
	// Commands on their way are waited for even when the change is given up: it is counted.
	calls context.Context
}

// walkGroup is the walks of some shards, in a cluster of so many.
type walkGroup struct {
	of    int
	steps []timer.Step
}

// groups are the walks of a bulk change, by the node that is likely to lead their shards; where
// there are few nodes, several of each.
func (b *bulkRun) groups(of int) (groups []walkGroup) {
	ids := slices.DeleteFunc(allShards(of), func(id timer.ShardID) bool { return !b.bulk.Walks(id) })
	g := gathering{Router: b.Router, of: of}
	parts := g.byNode(ids)
	lost := slices.DeleteFunc(ids, func(id timer.ShardID) bool { return g.targets[id].node != 0 })
	if len(lost) > 0 {
		parts = append(parts, shardsOfNode{ids: lost})
	}
	for _, p := range parts {
		each := (len(p.ids)*len(parts) + bulkLanes - 1) / bulkLanes
		for some := range slices.Chunk(p.ids, min(each, len(p.ids))) {
			w := walkGroup{of: of}
			for _, id := range some {
				w.steps = append(w.steps, timer.Step{Shard: id})
			}
			groups = append(groups, w)
		}
	}
	return groups
}

// divide lets walks continue in a cluster of twice as many shards, each in both halves: the child
// has its timers in the same slots. Steps that were taken before had both halves.
func (w *walkGroup) divide() {
	for _, s := range w.steps {
		w.steps = append(w.steps, timer.Step{Shard: s.Shard + timer.ShardID(w.of), At: s.At})
	}
	w.of *= 2
}

// group does some shards, and those that are divided from them meanwhile.
func (b *bulkRun) group(ctx context.Context, w *walkGroup) error {
	for {
		w.steps = slices.DeleteFunc(w.steps, func(s timer.Step) bool { return s.At.Done() })
		if len(w.steps) == 0 {
			return nil
		}
		var marks []marked
		err := b.retry(ctx, func() error {
			if w.of < b.shards() {
				return timer.ErrShards
			}
			return b.pace.through(ctx, func() error {
				err := b.Walk(b.calls, w.of, &b.bulk.Query, w.steps)
				for _, s := range w.steps {
					for _, m := range s.Refs {
						marks = append(marks, marked{s.Shard, m})
					}
				}
				return err
			}, func(took time.Duration) time.Duration { return took })
		})
		for len(marks) > 0 {
			n := min(len(marks), b.pace.batch())
			if err := b.endMarked(ctx, marks[:n]); err != nil {
				return err
			}
			marks = marks[n:]
		}
		switch {
		case errors.Is(err, timer.ErrShards) && w.of < b.shards():
			w.divide()
		case err != nil:
			return err
		}
	}
}

// marked is a timer that a walk has met in a shard.
type marked struct {
	shard timer.ShardID
	ref   timer.Ref
}

// retry does something again while the shard has no leader or too much to do, within bounds.
func (b *bulkRun) retry(ctx context.Context, do func() error) error {
	until := b.tasks.Now() + bulkPatience
	for pause := task.FirstPause; ; pause = min(2*pause, bulkPause) {
		err := do()
		if !timer.Transient(err) || errors.Is(err, timer.ErrShards) || b.tasks.Now()+pause > until {
			return err
		}
		if !b.tasks.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// bulkTask is a timer of a shard that is to be brought to an end.
type bulkTask struct {
	*bulk.Task
	shard timer.ShardID
}

// endMarked brings some timers to an end.
func (b *bulkRun) endMarked(ctx context.Context, marks []marked) error {
	todo := make([]bulkTask, 0, len(marks))
	for i := range marks {
		if e := b.bulk.Begin(marks[i].ref); e != nil {
			todo = append(todo, bulkTask{e, marks[i].shard})
		}
	}
	until := b.tasks.Now() + bulkPatience
	for pause := time.Duration(0); len(todo) > 0; {
		left, asked, failure, err := b.try(ctx, todo)
		if !asked {
			return err
		}
		todo = left
		if failure == nil {
			pause, until = 0, b.tasks.Now()+bulkPatience
		} else if pause = min(max(2*pause, task.FirstPause), bulkPause); b.tasks.Now()+pause > until || !timer.Transient(failure) && !errors.Is(failure, timer.ErrUnknown) {
			return failure
		}
		if err == nil && pause > 0 && !b.tasks.Sleep(ctx, pause) {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// try has the commands decided once. left are the timers that are not decided, and failure is the
// reason. err: the context has ended.
func (b *bulkRun) try(ctx context.Context, todo []bulkTask) (left []bulkTask, asked bool, failure, err error) {
	ops, room := make([]timer.Op, len(todo)), timer.NewAllowance(bulkRoom)
	for i, e := range todo {
		ops[i] = timer.Op{Shard: e.shard, Command: e.Command, Brief: e.Brief(), Room: room}
	}
	err = b.pace.change(ctx, func() {
		asked = true
		b.DoAll(b.calls, ops)
	})
	if !asked {
		return todo, false, nil, err
	}
	left = todo[:0]
	for i, e := range todo {
		if ops[i].Err != nil {
			failure = ops[i].Err
		}
		if b.bulk.Take(e.Task, &ops[i].Result, ops[i].Err) {
			left = append(left, e)
		}
	}
	return left, true, failure, err
}
