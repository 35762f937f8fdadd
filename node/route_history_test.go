package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"carillon/shard"
)

// TestRouterHistory: page by page, whoever is asked, the history of all shards comes in order, each entry once, while leaders move and
// messages are lost; or there is an error.
func TestRouterHistory(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 4))
			const shards = 9
			f := newFakeCluster(1+draw.IntN(4), shards)
			for i := range 60 {
				key := shard.HistoryKey{EndMs: 1000 + int64(draw.IntN(30)), Index: uint64(i), Shard: shard.ID(1 + draw.IntN(shards)), Item: uint32(draw.IntN(2))}
				f.past = append(f.past, &shard.HistoryEntry{Key: key, Timer: &shard.Timer{ID: fmt.Sprint(i), State: shard.Done}})
			}
			slices.SortFunc(f.past, func(a, b *shard.HistoryEntry) int { return a.Key.Compare(b.Key) })
			if seed%2 == 1 {
				f.rand, f.moves, f.faults = draw, draw.IntN(30), draw.IntN(8)
			}
			q := &shard.HistoryQuery{Limit: 1 + draw.IntN(20), States: 0xff}
			if draw.IntN(3) == 0 {
				q.Shards = []shard.ID{2, 3, 7}
			}
			var want, got []shard.HistoryKey
			for _, e := range f.past {
				if len(q.Shards) == 0 || slices.Contains(q.Shards, e.Key.Shard) {
					want = append(want, e.Key)
				}
			}
			failed := 0
			for {
				page, more, err := f.nodes[uint64(1+draw.IntN(len(f.nodes)))].History(t.Context(), q)
				if err != nil {
					if failed++; seed%2 == 0 || !refused(err) || failed > 1000 {
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

// TestRouterHistoryWithoutLeader: a shard that nobody leads is no gap: there is an error.
func TestRouterHistoryWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(3, 4)
		f.leaders[2] = 0
		if _, _, err := f.nodes[1].History(t.Context(), &shard.HistoryQuery{Limit: 9}); !errors.Is(err, shard.ErrNoLeader) {
			t.Errorf("%v", err)
		}
	})
}
