package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carillon/shard"
)

// Bounds of a sweep. A batch is what a worker has to do in one turn beside the rest: it takes a fifth of a millisecond.
const (
	sweepBatch    = 64               // commands of one shard at once; paceLanes batches are under way, all sweeps together
	sweepShards   = 8                // shards under way
	sweepPage     = 512              // timers of one step of a walk
	sweepsAtOnce  = 4                // sweeps of one node
	sweepTries    = 8                // for one timer that keeps changing
	sweepPatience = 10 * time.Second // for a shard that does not answer
)

// plan says what to do with a timer: with change, the command for just the version that was seen.
type plan func(m *shard.Mark) (*shard.Command, verdict)

type verdict uint8

const (
	change verdict = iota
	leave          // it is as it should be
	skip           // it cannot be changed now
)

// sweep does one change to all timers that a query selects, all shards at a time. In each shard it walks the timers by
// slot (shard.Waypoint) and has the commands decided in small batches, at the node's pace.
//
// Each command is for the version that was seen. A timer that changed in between is read and judged anew. A command that may or may
// not have been done is settled by reading, too, so that none is done twice.
type sweep struct {
	s     *Server
	topic *shard.Topic
	query shard.Query
	plan  plan

	matched, changed, skipped atomic.Int64
}

// errSweepTime ends a sweep that has taken as long as one may.
var errSweepTime = errors.New("the time for one sweep is over")

// sweep answers how many timers it met, changed and could not change.
func (rq *request) sweep(topic *shard.Topic, q *shard.Query, p plan) *problem {
	s := rq.s
	select {
	case s.sweeps <- struct{}{}:
		defer func() { <-s.sweeps }()
	default:
		return failf(503, "overloaded", "%d bulk changes are under way on this node", sweepsAtOnce)
	}
	shards := s.cfg.Engine.Shards()
	sw := &sweep{s: s, topic: topic, query: *q, plan: p}
	sw.query.Limit = sweepPage
	ctx, cancel := context.WithTimeoutCause(s.ending, s.cfg.Limits.SweepTime, errSweepTime)
	defer cancel()
	if err := sw.run(ctx, shards); err != nil {
		return sw.unfinished(ctx, err)
	}
	rq.swept(sw.matched.Load(), sw.changed.Load(), sw.skipped.Load())
	return nil
}

func (rq *request) swept(matched, changed, skipped int64) {
	o := object{b: rq.out()}
	o.integer("matched", matched)
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
	p.detail = fmt.Sprintf("%s; %d timers have been changed so far, and stay so", p.detail, sw.changed.Load())
	return p
}

// run sweeps all shards. The first error ends all.
func (sw *sweep) run(ctx context.Context, shards int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	workers := min(shards, sweepShards)
	for w := range workers {
		wg.Go(func() {
			for id := 1 + w; id <= shards && ctx.Err() == nil; id += workers {
				if err := sw.shard(ctx, shard.ID(id)); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
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
	marks, next, err := sw.s.cfg.Engine.Walk(sw.s.base, id, &sw.query, at)
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
		if !transient(err) || time.Now().Add(pause).After(until) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// transient says of an error that nothing was done, and that trying again may help.
func transient(err error) bool {
	for _, known := range []error{shard.ErrNoLeader, shard.ErrOverloaded, shard.ErrRecovering, shard.ErrMemory, shard.ErrLowDisk} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// item is one timer of a sweep until it is settled.
type item struct {
	mark  shard.Mark
	cmd   *shard.Command
	tries int
	// unsure: a command was sent and there was no answer. It may be done, or may be yet.
	unsure bool
}

// settle brings some timers of a shard to an end.
func (sw *sweep) settle(ctx context.Context, id shard.ID, marks []shard.Mark) error {
	todo := make([]*item, 0, len(marks))
	for i := range marks {
		it := &item{mark: marks[i]}
		if sw.judge(it) {
			todo = append(todo, it)
		}
	}
	until := time.Now().Add(sweepPatience)
	for pause := time.Duration(0); len(todo) > 0; {
		ops := make([]Op, len(todo))
		for i, it := range todo {
			ops[i] = Op{Shard: id, Command: it.cmd, Brief: true}
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
		for i, it := range todo {
			again, err := sw.take(it, &ops[i])
			if err != nil {
				failure = err
			}
			if again {
				left = append(left, it)
			}
		}
		todo = left
		if failure == nil {
			pause, until = 0, time.Now().Add(sweepPatience)
		} else if pause = min(max(2*pause, 10*time.Millisecond), time.Second); time.Now().Add(pause).After(until) || !transient(failure) && !errors.Is(failure, shard.ErrUnknown) {
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

// judge finds the command for a timer as it was seen; false when there is none, and the timer is counted.
func (sw *sweep) judge(it *item) bool {
	var v verdict
	switch it.cmd, v = sw.plan(&it.mark); v {
	case leave:
		sw.matched.Add(1)
		return false
	case skip:
		sw.count(&sw.skipped)
		return false
	}
	return true
}

func (sw *sweep) count(n *atomic.Int64) {
	sw.matched.Add(1)
	n.Add(1)
}

// take looks at what became of a command. again: the timer is not settled. err: no answer, or a refusal.
func (sw *sweep) take(it *item, o *Op) (again bool, err error) {
	if o.Err != nil {
		if !transient(o.Err) {
			it.unsure = true
		}
		return true, o.Err
	}
	switch o.Result.Code {
	case shard.OK, shard.Prevented:
		sw.count(&sw.changed)
	case shard.InFlight, shard.CancelInFlight:
		sw.count(&sw.skipped)
	case shard.Skipped: // of a dead letter: the command that had no answer may have done it
		if it.unsure {
			sw.count(&sw.changed)
		} else {
			sw.count(&sw.skipped)
		}
	case shard.VersionMismatch:
		return sw.again(it, o.Shard)
	default: // it has ended meanwhile, or gone: it is not selected any more
		if it.unsure && o.Result.Code == shard.NotFound {
			sw.count(&sw.changed)
		}
	}
	return false, nil
}

// again reads a timer that is not as it was seen, and judges it anew.
func (sw *sweep) again(it *item, id shard.ID) (bool, error) {
	t, err := sw.s.cfg.Engine.Timer(sw.s.base, id, sw.topic.ID, it.mark.ID)
	if err != nil {
		if transient(err) {
			return true, err
		}
		return true, shard.ErrUnknown
	}
	if t != nil && it.unsure && it.cmd.Kind == shard.Modify {
		// The command that had no answer may be what changed it. A shift is not to be done twice.
		if t.Version == it.mark.Version+1 && t.DueMs == it.cmd.Patch.Spec.DueMs {
			sw.count(&sw.changed)
		} else {
			sw.count(&sw.skipped)
		}
		return false, nil
	}
	if t == nil || !selected(&sw.query, t) {
		return false, nil
	}
	if it.tries++; it.tries == sweepTries {
		sw.count(&sw.skipped)
		return false, nil
	}
	it.mark = shard.Mark{ID: it.mark.ID, Version: t.Version, Leased: t.State == shard.Leased, DueMs: t.DueMs, NextMs: t.NextMs}
	return sw.judge(it), nil
}

// selected says of a timer that was read by its id whether a sweep's query selects it.
func selected(q *shard.Query, t *shard.Timer) bool {
	for _, label := range q.Labels {
		if !slices.Contains(t.Labels, label) {
			return false
		}
	}
	return q.States&(1<<t.State) != 0 && t.DueMs >= q.FromMs && (q.ToMs == 0 || t.DueMs < q.ToMs) && strings.HasPrefix(t.ID, q.IDPrefix)
}
