package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard"
)

func TestRestAfter(t *testing.T) {
	ms := time.Millisecond
	for took, want := range map[time.Duration]time.Duration{
		0: 0, ms: ms, 2 * ms: 2 * ms, 4 * ms: 8 * ms, 8 * ms: 32 * ms, 10 * ms: 40 * ms, 13 * ms: 50 * ms, 40 * ms: 50 * ms, 200 * ms: 200 * ms,
	} {
		if got := restAfter(took); got != want {
			t.Errorf("after %v a rest of %v, want %v", took, got, want)
		}
	}
}

// slowEngine takes a while for each batch, and keeps what was under way at once.
type slowEngine struct {
	*fakeEngine
	takes time.Duration

	mu             sync.Mutex
	commands, most int           // under way, and the most that ever were
	working        time.Duration // summed over batches and steps
}

func (e *slowEngine) under(n int, do func()) {
	e.mu.Lock()
	e.commands += n
	e.most = max(e.most, e.commands)
	e.mu.Unlock()
	<-time.After(e.takes)
	do()
	e.mu.Lock()
	e.commands -= n
	e.working += e.takes
	e.mu.Unlock()
}

func (e *slowEngine) DoAll(ctx context.Context, ops []Op) {
	e.under(len(ops), func() { e.fakeEngine.DoAll(ctx, ops) })
}

func (e *slowEngine) Walk(ctx context.Context, id shard.ID, q *shard.Query, at shard.Waypoint) (marks []shard.Mark, next shard.Waypoint, err error) {
	e.under(0, func() { marks, next, err = e.fakeEngine.Walk(ctx, id, q, at) })
	return marks, next, err
}

// TestSweepsLeaveRoom: as many bulk changes at once as a node takes have no more than two small batches under way, and leave the
// shards alone for half of each lane's time; four fifths of it where a batch takes long.
func TestSweepsLeaveRoom(t *testing.T) {
	for takes, share := range map[time.Duration]float64{time.Millisecond: 0.5, 10 * time.Millisecond: 0.2} {
		synctest.Test(t, func(t *testing.T) {
			e := &slowEngine{fakeEngine: newFakeEngine(time.Now), takes: takes}
			s, err := New(Config{Engine: e, Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			topic, _, _ := e.PutTopic(t.Context(), "orders", &shard.Policy{})
			const each = 500
			due := time.Now().Add(time.Hour).UnixMilli()
			var ops []Op
			for i := range each * sweepsAtOnce {
				id := fmt.Sprintf("s%d-%d", i%sweepsAtOnce, i)
				ops = append(ops, Op{Shard: shard.Place(topic, id, e.Shards()), Command: &shard.Command{Kind: shard.Add, Topic: topic.ID, ID: id, Spec: &shard.Spec{DueMs: due}}})
			}
			e.fakeEngine.DoAll(t.Context(), ops)
			begin := time.Now()
			var changed atomic.Int64
			var wg sync.WaitGroup
			for i := range sweepsAtOnce {
				wg.Go(func() {
					query := shard.Query{Topic: topic.ID, States: 1 << shard.Scheduled, IDPrefix: fmt.Sprint("s", i), Limit: sweepPage}
					sw := &sweep{s: s, topic: topic, bulk: shard.Bulk{Query: query, Plan: shard.CancelEach(topic.ID)}}
					if err := sw.run(s.ending, s.cfg.Engine.Shards()); err != nil {
						t.Error(err)
					}
					changed.Add(sw.bulk.Changed.Load())
				})
			}
			wg.Wait()
			if n := changed.Load(); n != each*sweepsAtOnce {
				t.Errorf("%d cancelled of %d", n, each*sweepsAtOnce)
			}
			if e.most > paceLanes*sweepBatch {
				t.Errorf("%d commands were under way at once", e.most)
			}
			if used := float64(e.working) / float64(time.Since(begin)) / paceLanes; used > share+0.01 {
				t.Errorf("batches that take %v: %.0f %% of the time was theirs, not %.0f", takes, 100*used, 100*share)
			}
			s.stop()
		})
	}
}
