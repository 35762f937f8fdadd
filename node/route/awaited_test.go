package route

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/timer"
)

// silentAfter has node 2 answer nothing, and be known as silent, and node 3 lead shard 2 after a
// second; node 1 gets the news.
func silentAfter(f *fakeCluster, news timer.ShardID) {
	f.onCall = func(ctx context.Context, call fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
		if call.to == 2 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return deliver()
	}
	time.AfterFunc(time.Second, func() {
		f.mu.Lock()
		f.down, f.leaders[2] = []uint64{2}, 3
		f.mu.Unlock()
		f.nodes[1].NewLeader(news, 3)
	})
}

// TestSilentLeader: a request to a leader that has fallen silent ends when another leads its shard:
// a change with an unknown outcome, and it is not sent again; a read elsewhere.
func TestSilentLeader(t *testing.T) {
	ask := func(r *Router, ids ...timer.ShardID) error {
		ops := make([]timer.Op, len(ids))
		for i, id := range ids {
			ops[i] = timer.Op{Shard: id, Command: fire(i)}
		}
		r.DoAll(context.Background(), ops)
		return ops[len(ops)-1].Err
	}
	for _, c := range []struct {
		name  string
		set   func(*fakeCluster)
		ask   func(*Router) error
		err   error
		took  time.Duration
		calls int
	}{
		{name: "one change", ask: func(r *Router) error { return ask(r, 2) }, err: timer.ErrUnknown, took: time.Second, calls: 1},
		{name: "of several shards", ask: func(r *Router) error { return ask(r, 5, 5, 2, 2) }, err: timer.ErrUnknown, took: time.Second, calls: 1},
		{name: "of another shard", ask: func(r *Router) error { return ask(r, 5) }, err: timer.ErrUnknown, took: answerIn, calls: 1},
		{name: "a read", ask: func(r *Router) error {
			after(500 * time.Millisecond)
			_, err := r.Timer(context.Background(), 2, 1, "a")
			return err
		}, took: time.Second + 3*task.FirstPause, calls: 2},
		{name: "not silent", set: func(f *fakeCluster) {
			f.onCall = func(_ context.Context, call fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
				answer, err := deliver()
				after(1200 * time.Millisecond)
				f.nodes[1].NewLeader(2, 3)
				after(100 * time.Millisecond)
				return answer, err
			}
		}, ask: func(r *Router) error { return ask(r, 2) }, took: 1300 * time.Millisecond, calls: 1},
		{name: "the silent one itself", set: func(f *fakeCluster) {
			silentAfter(f, 5)
			time.AfterFunc(1100*time.Millisecond, func() { f.nodes[1].NewLeader(2, 2) })
		}, ask: func(r *Router) error { return ask(r, 2) }, err: timer.ErrUnknown, took: answerIn, calls: 1},
		{name: "known before it is sent", ask: func(r *Router) error {
			after(2 * time.Second)
			_, err := r.askLeader(context.Background(), answerIn, 2, newAwaitedCall(2), methodOps, nil)
			return err
		}, err: errNotSentFake, took: 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(3, 6)
				if c.set == nil {
					c.set = func(f *fakeCluster) { silentAfter(f, 2) }
				}
				c.set(f)
				begin := time.Now()
				if err := c.ask(f.nodes[1].Router); err != c.err {
					t.Errorf("%v, want %v", err, c.err)
				}
				if took := time.Since(begin); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if len(f.calls) != c.calls {
					t.Errorf("%d calls, want %d", len(f.calls), c.calls)
				}
				for node, list := range f.nodes[1].awaited.calls {
					if len(list) > 0 {
						t.Errorf("%d requests to node %d are still awaited", len(list), node)
					}
				}
				after(3 * time.Second)
			})
		})
	}
}
