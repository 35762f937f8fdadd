package route

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// TestRouterHistory: page by page, at any node, the history of all shards comes in order, each
// entry once, while leaders move and messages are lost; or there is an error.
func TestRouterHistory(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 4))
			const shards = 9
			f := newFakeCluster(1+draw.IntN(4), shards)
			for i := range 60 {
				key := timer.HistoryKey{EndMs: 1000 + int64(draw.IntN(30)), Index: uint64(i), Shard: timer.ShardID(1 + draw.IntN(shards)), Item: uint32(draw.IntN(2))}
				f.past = append(f.past, &timer.HistoryEntry{Key: key, Timer: &timer.Timer{ID: fmt.Sprint(i), State: timer.Done}})
			}
			slices.SortFunc(f.past, func(a, b *timer.HistoryEntry) int { return a.Key.Compare(b.Key) })
			if seed%2 == 1 {
				f.rand, f.moves, f.faults = draw, draw.IntN(30), draw.IntN(8)
			}
			q := &timer.HistoryQuery{Limit: 1 + draw.IntN(20), States: 0xff}
			if draw.IntN(3) == 0 {
				q.Shards = []timer.ShardID{2, 3, 7}
			}
			var want, got []timer.HistoryKey
			for _, e := range f.past {
				if len(q.Shards) == 0 || slices.Contains(q.Shards, e.Key.Shard) {
					want = append(want, e.Key)
				}
			}
			failed := 0
			for {
				page, more, err := f.nodes[uint64(1+draw.IntN(len(f.nodes)))].History(t.Context(), q)
				if err != nil {
					if failed++; seed%2 == 0 || !Refused(err) || failed > 1000 {
						t.Fatalf("seed %d: %v", seed, err)
					}
					f.mu.Lock()
					for id := range f.leaders { // an election
						f.leaders[id] = uint64(1 + draw.IntN(len(f.nodes)))
					}
					f.mu.Unlock()
					continue
				}
				for _, e := range page {
					got = append(got, e.Key)
				}
				if !more {
					break
				}
				if len(page) == 0 || len(page) > q.Limit {
					t.Fatalf("seed %d: a page of %d, and more", seed, len(page))
				}
				q.After = &page[len(page)-1].Key
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d:\n%v\nwant\n%v", seed, got, want)
			}
		})
	}
}

// TestRouterHistoryOfOthers: others are asked for entries that the leader of a shard does not have,
// since it was filled by a snapshot. An entry that several have comes once, with most of its
// attempts. No node is waited for that does not answer.
func TestRouterHistoryOfOthers(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 5))
			const shards = 5
			f := newFakeCluster(4, shards)
			f.kept = map[timer.HistoryKey][]uint64{}
			var want []timer.HistoryKey
			for i := range 60 {
				key := timer.HistoryKey{EndMs: 1000 + int64(draw.IntN(30)), Index: uint64(i), Shard: timer.ShardID(1 + draw.IntN(shards))}
				f.past = append(f.past, &timer.HistoryEntry{Key: key, Timer: &timer.Timer{ID: fmt.Sprint(i), State: timer.Done}})
				f.kept[key] = []uint64{uint64(1 + draw.IntN(4)), uint64(1 + draw.IntN(4))}
				want = append(want, key)
			}
			slices.SortFunc(f.past, func(a, b *timer.HistoryEntry) int { return a.Key.Compare(b.Key) })
			slices.SortFunc(want, timer.HistoryKey.Compare)
			q := &timer.HistoryQuery{Limit: 1 + draw.IntN(20), States: 0xff}
			var got []timer.HistoryKey
			for {
				page, more, err := f.nodes[uint64(1+draw.IntN(4))].History(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					got = append(got, e.Key)
				}
				if !more {
					break
				}
				q.After = &page[len(page)-1].Key
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d:\n%v\nwant\n%v", seed, got, want)
			}
		})
	}
}

// TestRouterHistoryOfSilentNodes: one that leads nothing and does not answer costs a second, and
// the entries that it alone has.
func TestRouterHistoryOfSilentNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 4)
		for id := range f.leaders {
			f.leaders[id] = 1
		}
		f.past = []*timer.HistoryEntry{{Key: timer.HistoryKey{EndMs: 1, Shard: 1}, Timer: &timer.Timer{ID: "a", State: timer.Done}}}
		f.onCall = func(ctx context.Context, _ fakeCall, _ func() ([]byte, error)) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begin := time.Now()
		list, more, err := f.nodes[1].History(t.Context(), &timer.HistoryQuery{Limit: 9, States: 0xff})
		if err != nil || more || len(list) != 1 || time.Since(begin) != replicaCallIn {
			t.Errorf("%v %v %v after %v", list, more, err, time.Since(begin))
		}
	})
}

// TestRouterHistoryForSure: a node that does not answer may have the end of the add in question, or
// a newer one than a cancel. Nothing is guessed then; an end that was delivered is no guess.
func TestRouterHistoryForSure(t *testing.T) {
	for name, c := range map[string]struct {
		here   timer.State // of the end that the asked node has; 0 none
		silent bool
		fails  bool
	}{
		"nothing, all answer": {0, false, false}, "nothing, one is silent": {0, true, true},
		"done, one is silent": {timer.Done, true, false}, "dead, one is silent": {timer.Dead, true, false},
		"cancelled, all answer": {timer.Cancelled, false, false}, "cancelled, one is silent": {timer.Cancelled, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeCluster(3, 2)
			for id := range f.leaders {
				f.leaders[id] = 1
			}
			if c.here != 0 {
				f.past = []*timer.HistoryEntry{{Key: timer.HistoryKey{EndMs: 1, Shard: 1}, Timer: &timer.Timer{ID: "a", State: c.here}}}
			}
			f.onCall = func(ctx context.Context, _ fakeCall, call func() ([]byte, error)) ([]byte, error) {
				if !c.silent {
					return call()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			list, _, err := f.nodes[1].History(t.Context(), &timer.HistoryQuery{ID: "a", Shards: []timer.ShardID{1}, Limit: 1, States: 0xff, Newest: true, Sure: true})
			if errors.Is(err, timer.ErrHistory) != c.fails || err == nil && (len(list) == 1) != (c.here != 0) {
				t.Errorf("%s: %v, %v", name, list, err)
			}
		})
	}
}

// TestRouterHistoryOfNodesThatAreDown: while a majority of a shard's replicas answers, one of them was
// there when a timer ended, so that one node that is down does not hold up adds. With fewer, nothing
// is guessed.
func TestRouterHistoryOfNodesThatAreDown(t *testing.T) {
	for _, c := range []struct {
		down  []uint64
		here  timer.State
		fails bool
	}{{nil, 0, false}, {[]uint64{3}, 0, false}, {[]uint64{2, 3}, 0, true}, {[]uint64{2, 3}, timer.Cancelled, true}, {[]uint64{2, 3}, timer.Done, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeCluster(3, 2)
			for id := range f.leaders {
				f.leaders[id] = 1
			}
			if f.down = c.down; c.here != 0 {
				f.past = []*timer.HistoryEntry{{Key: timer.HistoryKey{EndMs: 1, Shard: 1}, Timer: &timer.Timer{ID: "a", State: c.here}}}
			}
			list, _, err := f.nodes[1].History(t.Context(), &timer.HistoryQuery{ID: "a", Shards: []timer.ShardID{1}, Limit: 1, States: 0xff, Newest: true, Sure: true})
			if errors.Is(err, timer.ErrHistory) != c.fails || err == nil && (len(list) == 1) != (c.here != 0) {
				t.Errorf("%v are down, state %v here: %v, %v", c.down, c.here, list, err)
			}
		})
	}
}

func TestDistinctEntries(t *testing.T) {
	entry := func(at int64, attempts int) *timer.HistoryEntry {
		return &timer.HistoryEntry{Key: timer.HistoryKey{EndMs: at}, Timer: &timer.Timer{Attempts: 3}, Attempts: make([]timer.HistoryAttempt, attempts)}
	}
	got := distinct([]*timer.HistoryEntry{entry(2, 1), entry(1, 3), entry(2, 3), entry(2, 0)})
	if len(got) != 2 || got[0].Key.EndMs != 1 || got[1].Missing() != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRouterHistoryWithoutLeader: a shard that nobody leads is no gap: there is an error.
func TestRouterHistoryWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 4)
		f.leaders[2] = 0
		if _, _, err := f.nodes[1].History(t.Context(), &timer.HistoryQuery{Limit: 9}); !errors.Is(err, timer.ErrNoLeader) {
			t.Errorf("%v", err)
		}
	})
}
