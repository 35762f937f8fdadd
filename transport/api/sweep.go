package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// Bounds of a sweep. A batch is what a worker has to do in one turn beside the rest: it takes a fifth of a millisecond.
const (
	sweepBatch    = 64               // commands of one shard at once; paceLanes batches are under way, all sweeps together
	sweepShards   = 8                // shards under way
	sweepPage     = 512              // timers of one step of a walk
	sweepsAtOnce  = 4                // sweeps of one node
	sweepPatience = 10 * time.Second // for a shard that does not answer
)

// sweep does one change to all timers that a query selects, all shards at a time. In each shard it walks the timers by
// slot (shard.Waypoint) and has the commands decided in small batches, at the node's pace.
//
// What is decided of each timer is shard.Bulk's.
type sweep struct {
	s     *Server
	topic *shard.Topic
	bulk  shard.Bulk
}

// errSweepTime ends a sweep that has taken as long as one may.
var errSweepTime = errors.New("the time for one sweep is over")

// sweep answers how many timers it met, changed and could not change.
func (rq *request) sweep(topic *shard.Topic, q *shard.Query, p shard.Plan) *problem {
	s := rq.s
	select {
	case s.sweeps <- struct{}{}:
		defer func() { <-s.sweeps }()
	default:
		return failf(503, "overloaded", "%d bulk changes are under way on this node", sweepsAtOnce)
	}
	shards := s.cfg.Engine.Shards()
	sw := &sweep{s: s, topic: topic, bulk: shard.Bulk{Query: *q, Plan: p}}
	sw.bulk.Query.Limit = sweepPage
	ctx, cancel := context.WithTimeoutCause(s.ending, s.cfg.Limits.SweepTime, errSweepTime)
	defer cancel()
	if err := sw.run(ctx, shards); err != nil {
		rq.count = int(sw.bulk.Changed.Load())
		return sw.unfinished(ctx, err)
	}
	rq.swept(sw.bulk.Matched.Load(), sw.bulk.Changed.Load(), sw.bulk.Skipped.Load())
	return nil
}

func (rq *request) swept(matched, changed, skipped int64) {
	o := object{b: rq.out()}
	o.integer("matched", matched)
	rq.count = int(changed)
	o.integer("changed", changed)
	o.integer("skipped", skipped)
	rq.json(200, o.end())
}

// unfinished is the answer of a sweep that did not come to its end.
func (sw *sweep) unfinished(ctx context.Context, err error) *problem {
	p := engineFault(err)
	switch {
	case errors.Is(context.Cause(ctx), errSweepTime):
		p = fail(503, unavailable, errSweepTime.Error())
	case sw.s.ending.Err() != nil:
		p = fail(503, unavailable, "the node is stopping")
	}
	p.detail = fmt.Sprintf("%s; %d timers have been changed so far, and stay so", p.detail, sw.bulk.Changed.Load())
	return p
}

// run sweeps all shards. The first error ends all.
func (sw *sweep) run(ctx context.Context, shards int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all fan.Group
	workers := min(shards, sweepShards)
	for w := range workers {
		all.Go(func() {
			for id := 1 + w; id <= shards && ctx.Err() == nil; id += workers {
				if err := sw.shard(ctx, shard.ID(id)); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// shard sweeps one shard.
func (sw *sweep) shard(ctx context.Context, id shard.ID) error {
	for at := (shard.Waypoint{}); !at.Done(); {
		var marks []shard.Mark
		err := sw.insist(ctx, func() error {
			return sw.s.pace.through(ctx, func() (err error) {
				marks, at, err = sw.step(id, at)
				return err
			})
		})
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(marks, sweepBatch) {
			if err := sw.settle(ctx, id, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

func (sw *sweep) step(id shard.ID, at shard.Waypoint) ([]shard.Mark, shard.Waypoint, error) {
	marks, next, err := sw.s.cfg.Engine.Walk(sw.s.base, id, &sw.bulk.Query, at)
	if err != nil {
		return nil, at, err
	}
	return marks, next, nil
}

// insist does something again while the shard has no leader or too much to do, within bounds.
func (sw *sweep) insist(ctx context.Context, do func() error) error {
	until := time.Now().Add(sweepPatience)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := do()
		if !shard.Transient(err) || time.Now().Add(pause).After(until) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// settle brings some timers of a shard to an end.
func (sw *sweep) settle(ctx context.Context, id shard.ID, marks []shard.Mark) error {
	todo := make([]*shard.Errand, 0, len(marks))
	for i := range marks {
		if e := sw.bulk.Begin(marks[i]); e != nil {
			todo = append(todo, e)
		}
	}
	until := time.Now().Add(sweepPatience)
	for pause := time.Duration(0); len(todo) > 0; {
		ops := make([]Op, len(todo))
		for i, e := range todo {
			ops[i] = Op{Shard: id, Command: e.Command, Brief: true}
		}
		asked := false
		err := sw.s.pace.through(ctx, func() error {
			asked = true
			sw.s.cfg.Engine.DoAll(sw.s.base, ops)
			return nil
		})
		if !asked {
			return err
		}
		left := todo[:0]
		var failure error
		for i, e := range todo {
			again, err := sw.take(e, &ops[i])
			if err != nil {
				failure = err
			}
			if again {
				left = append(left, e)
			}
		}
		todo = left
		if failure == nil {
			pause, until = 0, time.Now().Add(sweepPatience)
		} else if pause = min(max(2*pause, 10*time.Millisecond), time.Second); time.Now().Add(pause).After(until) || !shard.Transient(failure) && !errors.Is(failure, shard.ErrUnknown) {
			return failure
		}
		if err == nil && pause > 0 {
			err = wait(ctx, pause)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take looks at what became of a command. again: the timer is not settled. err: no answer, or a refusal.
func (sw *sweep) take(e *shard.Errand, o *Op) (again bool, err error) {
	turn := sw.bulk.Take(e, &o.Result, o.Err)
	if turn != shard.Reread {
		return turn == shard.Again, o.Err
	}
	t, err := sw.s.cfg.Engine.Timer(sw.s.base, o.Shard, sw.topic.ID, e.ID())
	switch {
	case err == nil:
		return sw.bulk.Reread(e, t) == shard.Again, nil
	case shard.Transient(err):
		return true, err
	}
	return true, shard.ErrUnknown
}
