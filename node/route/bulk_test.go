package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/timer"
	"carillon/timer/bulk"
)

// bulkCluster is one node that leads shards of timers, which can be cancelled and moved. It
// implements the part of a Host that a bulk change needs.
type bulkCluster struct {
	Host
	nodes map[uint64]*Router
	takes time.Duration // each batch and step

	mu             sync.Mutex
	timers         map[timer.ShardID][]*timer.Timer
	commands, most int           // under way, and the most that ever were
	working        time.Duration // summed over batches and steps

	walked func() // after each step of a walk; nil: nothing

	err   error // of batches, or of all
	fails int   // so many batches fail; -1: all, and steps too
	done  bool  // whether a failed command has been carried out
}

func newBulkCluster(shards int) *bulkCluster {
	f := &bulkCluster{nodes: map[uint64]*Router{}, timers: map[timer.ShardID][]*timer.Timer{}}
	begin := time.Now()
	f.nodes[1] = New(Config{Self: 1, Host: f, Cluster: nobodyElse{shards: shards}, Tasks: task.NewGoroutines(func() time.Duration { return time.Since(begin) })})
	return f
}

// nobodyElse is a cluster of one.
type nobodyElse struct{ shards int }

func (n nobodyElse) Shards() (now, first int) { return n.shards, n.shards }
func (nobodyElse) Steady() bool               { return true }

func (nobodyElse) LikelyLeaders(timer.ShardID) []uint64 { return nil }
func (nobodyElse) LeadingNodes() []uint64               { return []uint64{1} }
func (nobodyElse) LiveNodes() []uint64                  { return nil }
func (nobodyElse) Silent(uint64) bool                   { return false }
func (nobodyElse) Replicas(timer.ShardID) []uint64      { return []uint64{1} }

func (b *bulkCluster) Leads(timer.ShardID) bool            { return true }
func (b *bulkCluster) Takes(timer.ShardID) bool            { return true }
func (b *bulkCluster) Leader(timer.ShardID) (uint64, bool) { return 1, true }

func (b *bulkCluster) add(id timer.ShardID, name string, dueMs int64) {
	b.timers[id] = append(b.timers[id], &timer.Timer{ID: name, Version: 1, State: timer.Scheduled, NextMs: dueMs, Spec: timer.Spec{DueMs: dueMs}})
}

// under takes its time.
func (b *bulkCluster) under(n int, do func()) {
	b.mu.Lock()
	b.commands += n
	b.most = max(b.most, b.commands)
	b.mu.Unlock()
	if b.takes > 0 {
		after(b.takes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	b.commands -= n
	b.working += b.takes
}

func (b *bulkCluster) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	b.under(0, func() {
		if b.fails < 0 {
			next, err = at, b.err
			return
		}
		list := b.timers[id]
		next = timer.ScanCursor{From: at.From, High: timer.Handle(len(list)), Begun: true}
		for ; !next.Done() && len(marks) < q.Limit; next.From++ {
			if t := list[next.From]; strings.HasPrefix(t.ID, q.IDPrefix) && !t.State.Over() {
				marks = append(marks, timer.Ref{ID: t.ID, Seq: t.Seq, Version: t.Version, DueMs: t.DueMs, NextMs: t.NextMs})
			}
		}
		if b.walked != nil {
			b.walked()
		}
	})
	return marks, next, err
}

func (b *bulkCluster) DoAll(ops []timer.Op) {
	b.under(len(ops), func() {
		fail := b.fails != 0
		if b.fails > 0 {
			b.fails--
		}
		for i := range ops {
			if o := &ops[i]; !fail || b.done {
				b.do(o)
			}
			if fail {
				ops[i].Result, ops[i].Err = timer.Result{}, b.err
			}
		}
	})
}

func (b *bulkCluster) do(o *timer.Op) {
	for _, t := range b.timers[o.Shard] {
		switch c := o.Command; {
		case t.ID != c.ID || t.Seq != c.Seq:
		case t.Version != c.IfMatch:
			if o.Result, o.Err = (timer.Result{Code: timer.VersionMismatch}), nil; !o.Brief {
				as := *t
				o.Result.Timer = &as
			}
		case c.Kind == timer.Cancel:
			t.State = timer.Cancelled
			o.Result, o.Err = timer.Result{Code: timer.Prevented}, nil
		default:
			t.Version++
			t.DueMs, t.NextMs = c.Patch.Spec.DueMs, c.Patch.Spec.DueMs
			o.Result, o.Err = timer.Result{Code: timer.OK}, nil
		}
	}
}

func cancelAll(prefix string) *bulk.Update {
	return &bulk.Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled, IDPrefix: prefix}, Plan: bulk.CancelEach(1)}
}

// A shift whose answer was lost is not done twice, whether it was done or not.
func TestBulkShiftsOnce(t *testing.T) {
	for _, c := range []struct {
		err  error
		done bool
	}{{timer.ErrUnknown, true}, {timer.ErrUnknown, false}, {timer.ErrOverloaded, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newBulkCluster(4)
			for i := range 20 {
				f.add(timer.ShardID(1+i%4), fmt.Sprint(i), int64(1000+i))
			}
			f.err, f.done, f.fails = c.err, c.done, 5
			b := &bulk.Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled}, Plan: bulk.Move{By: bulk.MoveShift, Ms: 500}.Each(1, 1<<40)}
			if err := f.nodes[1].Bulk(t.Context(), b); err != nil || b.Matched.Load() != 20 || b.Changed.Load() != 20 || b.Skipped.Load() != 0 {
				t.Errorf("%v (done: %v): %d matched, %d changed, %d skipped: %v", c.err, c.done, b.Matched.Load(), b.Changed.Load(), b.Skipped.Load(), err)
			}
			for i := range 20 {
				if timer := f.timers[timer.ShardID(1+i%4)][i/4]; timer.DueMs != int64(1500+i) || timer.Version != 2 {
					t.Errorf("%v (done: %v): timer %d is due at %d, version %d", c.err, c.done, i, timer.DueMs, timer.Version)
				}
			}
		})
	}
}

// Of two timers of one id, as where arrays are collected, the one that waits may change while it is
// met. It is then decided again, and not the one that goes first.
func TestBulkRereadsTheTimerThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBulkCluster(1)
		f.add(1, "a", 1000)
		f.add(1, "a", 2000)
		f.timers[1][1].Seq = 2
		f.walked = func() {
			f.timers[1][1].Version, f.walked = 2, nil
		}
		b := &bulk.Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled}, Plan: bulk.Move{By: bulk.MoveShift, Ms: 500}.Each(1, 1<<40)}
		if err := f.nodes[1].Bulk(t.Context(), b); err != nil || b.Matched.Load() != 2 || b.Changed.Load() != 2 {
			t.Errorf("%d matched, %d changed: %v", b.Matched.Load(), b.Changed.Load(), err)
		}
		for i, want := range []int64{1500, 2500} {
			if due := f.timers[1][i].DueMs; due != want {
				t.Errorf("timer %d is due at %d, want %d", i, due, want)
			}
		}
	})
}

// A shard that is gone for longer than a bulk change waits ends it with the shard's error; so does
// the context, also while it waits.
func TestBulkGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBulkCluster(4)
		f.add(1, "a", 1)
		for _, c := range []struct {
			err, want error
			fails     int
			within    time.Duration // the context's
			took      time.Duration // at most
		}{
			{timer.ErrOverloaded, timer.ErrOverloaded, -1, time.Hour, bulkPatience},
			{timer.ErrOverloaded, timer.ErrOverloaded, 1 << 30, time.Hour, bulkPatience + bulkPause},
			{timer.ErrUnknown, timer.ErrUnknown, 1 << 30, time.Hour, bulkPatience + bulkPause},
			{timer.ErrMemory, context.DeadlineExceeded, -1, 3 * time.Second, 3 * time.Second},
			{errors.ErrUnsupported, errors.ErrUnsupported, 1 << 30, time.Hour, time.Second},
		} {
			f.err, f.fails = c.err, c.fails
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			begin := time.Now()
			if err := f.nodes[1].Bulk(ctx, cancelAll("")); !errors.Is(err, c.want) || time.Since(begin) > c.took {
				t.Errorf("%v: %v after %s, want %v", c.err, err, time.Since(begin), c.want)
			}
			cancel()
		}
	})
}

// A change that waits for a lane and gives up leaves it to the next.
func TestPaceGivesLanesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBulkCluster(1).nodes[1].pace
		for range paceLanes {
			if !p.enter(t.Context()) {
				t.Fatal("no lane")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		got := make([]bool, 3)
		for i, ctx := range []context.Context{ctx, t.Context(), ctx} {
			wg.Go(func() { got[i] = p.enter(ctx) })
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		p.leave()
		wg.Wait()
		if got[0] || !got[1] || got[2] {
			t.Errorf("%v were given a lane", got)
		}
		for range paceLanes {
			p.leave()
		}
		if p.free != paceLanes || len(p.waiting) != 0 {
			t.Errorf("%d lanes are free, %d wait", p.free, len(p.waiting))
		}
	})
}
