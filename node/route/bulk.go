package route

import (
	"context"
	"errors"
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
	bulkShards   = 8                // shards under way
	bulkPage     = largeBatch       // timers of one step of a walk
	bulkPatience = 10 * time.Second // for a shard that does not answer
	bulkPause    = time.Second      // between two tries, at most; it doubles
)

// Bulk does one change to all timers that a query selects, in all shards. In each shard it walks
// the timers by slot (shard.Waypoint) and has the commands decided in small batches, at the node's
// pace. The decision on each timer, and the progress so far, is the bulk.Update's. It ends early
// with the first error, or when the context ends; timers that have been changed by then stay
// changed.
func (r *Router) Bulk(ctx context.Context, bulk *bulk.Update) error {
	b := bulkRun{Router: r, bulk: bulk, calls: context.WithoutCancel(ctx)}
	bulk.Query.Limit = r.cfg.BulkPage
	ctx, cancel := r.tasks.WithTimeout(ctx, task.Forever)
	defer cancel()
	var mu sync.Mutex
	var first error
	all := task.NewGroup(r.tasks)
	shards := bulk.Of
	if shards == 0 {
		shards = r.shards()
	}
	lanes := min(shards, bulkShards)
	for lane := range lanes {
		all.Go(func() {
			for id := 1 + lane; id <= shards && ctx.Err() == nil; id += lanes {
				if !bulk.Walks(timer.ShardID(id)) {
					continue
				}
				if err := b.shard(ctx, shardWalk{id: timer.ShardID(id), of: shards}); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	all.Wait()
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

// shardWalk is the walk of one shard, in a cluster of so many.
type shardWalk struct {
	id timer.ShardID
	of int
	at timer.ScanCursor
}

// divided lets a walk go on in a cluster of twice as many shards, and returns that of the other
// half: the child has its timers in the same slots. Steps that were taken before had both halves.
func (w *shardWalk) divided() (child shardWalk) {
	child = shardWalk{id: w.id + timer.ShardID(w.of), of: 2 * w.of, at: w.at}
	w.of *= 2
	return child
}

// shard does one shard, and those that are divided from it meanwhile.
func (b *bulkRun) shard(ctx context.Context, first shardWalk) error {
	for walks := []shardWalk{first}; len(walks) > 0; {
		w := &walks[len(walks)-1]
		if w.at.Done() {
			walks = walks[:len(walks)-1]
			continue
		}
		var marks []timer.Ref
		err := b.retry(ctx, func() error {
			if w.of < b.shards() {
				return timer.ErrShards
			}
			return b.pace.walk(ctx, func() error {
				list, next, err := b.Walk(b.calls, w.id, w.of, &b.bulk.Query, w.at)
				if err == nil {
					marks, w.at = list, next
				}
				return err
			})
		})
		switch {
		case errors.Is(err, timer.ErrShards) && w.of < b.shards():
			walks = append(walks, w.divided())
			continue
		case err != nil:
			return err
		}
		for len(marks) > 0 {
			n := min(len(marks), b.pace.batch())
			if err := b.settle(ctx, w.id, marks[:n]); err != nil {
				return err
			}
			marks = marks[n:]
		}
	}
	return nil
}

// retry does something again while the shard has no leader or too much to do, within bounds.
func (b *bulkRun) retry(ctx context.Context, do func() error) error {
	until := b.tasks.Now() + bulkPatience
	for pause := firstPause; ; pause = min(2*pause, bulkPause) {
		err := do()
		if !timer.Transient(err) || errors.Is(err, timer.ErrShards) || b.tasks.Now()+pause > until {
			return err
		}
		if !b.tasks.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// settle brings some timers of a shard to an end.
func (b *bulkRun) settle(ctx context.Context, id timer.ShardID, marks []timer.Ref) error {
	todo := make([]*bulk.Task, 0, len(marks))
	for i := range marks {
		if e := b.bulk.Begin(marks[i]); e != nil {
			todo = append(todo, e)
		}
	}
	until := b.tasks.Now() + bulkPatience
	for pause := time.Duration(0); len(todo) > 0; {
		left, asked, failure, err := b.try(ctx, id, todo)
		if !asked {
			return err
		}
		todo = left
		if failure == nil {
			pause, until = 0, b.tasks.Now()+bulkPatience
		} else if pause = min(max(2*pause, firstPause), bulkPause); b.tasks.Now()+pause > until || !timer.Transient(failure) && !errors.Is(failure, timer.ErrUnknown) {
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
func (b *bulkRun) try(ctx context.Context, id timer.ShardID, todo []*bulk.Task) (left []*bulk.Task, asked bool, failure, err error) {
	ops := make([]timer.Op, len(todo))
	for i, e := range todo {
		ops[i] = timer.Op{Shard: id, Command: e.Command, Brief: true}
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
		again, err := b.take(e, &ops[i])
		if err != nil {
			failure = err
		}
		if again {
			left = append(left, e)
		}
	}
	return left, true, failure, err
}

// take looks at the outcome of a command. again: the timer is not settled. err: no answer, or a
// refusal.
func (b *bulkRun) take(e *bulk.Task, o *timer.Op) (again bool, err error) {
	turn := b.bulk.Take(e, &o.Result, o.Err)
	if turn != bulk.Reread {
		return turn == bulk.Again, o.Err
	}
	t, err := b.Timer(b.calls, o.Shard, b.bulk.Query.Topic, e.ID())
	switch {
	case err == nil:
		return b.bulk.Reread(e, t) == bulk.Again, nil
	case timer.Transient(err):
		return true, err
	}
	return true, timer.ErrUnknown
}
