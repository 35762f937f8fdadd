package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/timer/bulk"
)

// filled is a cluster with timers, of so many bytes each, spread over its shards; of is their
// number of shards, from the first on. The ids are in order of the listing.
func filled(nodes, shards, timers, of, bytes int, draw *rand.Rand) (f *fakeCluster, ids []string) {
	f = newFakeCluster(nodes, shards)
	for i := range timers {
		id := timer.ShardID(1 + draw.IntN(of))
		ids = append(ids, fmt.Sprintf("t%05d", i))
		f.timers[id] = append(f.timers[id], &timer.Timer{
			ID: ids[i], State: timer.Scheduled, Spec: timer.Spec{DueMs: int64(1 + i/3), PayloadKind: timer.BinaryPayload, Payload: make([]byte, bytes)},
		})
	}
	return f, ids
}

// TestPageTakesOneCallOfEachNode: a page of 1,024 shards asks each of nine nodes once, for about
// what is in the page; a topic that is in one shard, once more. Each page costs the same.
func TestPageTakesOneCallOfEachNode(t *testing.T) {
	for _, c := range []struct {
		name          string
		of            int // shards that have timers
		calls, listed int
	}{{"spread", 1024, 9, 300}, {"in one shard", 1, 10, 180}} {
		t.Run(c.name, func(t *testing.T) {
			f, ids := filled(9, 1024, 2000, c.of, 10, rand.New(rand.NewPCG(1, 2)))
			q := &timer.Query{Limit: 100, Bytes: 4 << 20, Waits: true}
			var got []string
			for n := range 20 {
				f.calls = nil
				for _, node := range f.nodes {
					node.listed.Store(0)
				}
				page, err := f.nodes[5].Router.List(t.Context(), q)
				if err != nil || len(page.Timers) != 100 || len(page.Waits) != 100 || page.More != (n < 19) {
					t.Fatalf("page %d: %d timers, %d waits, more %v: %v", n, len(page.Timers), len(page.Waits), page.More, err)
				}
				listed := int64(0)
				for _, node := range f.nodes {
					listed += node.listed.Load()
				}
				if len(f.calls) > c.calls || listed > int64(c.listed) {
					t.Errorf("page %d: %d calls between nodes for %d timers, want at most %d for %d", n, len(f.calls), listed, c.calls, c.listed)
				}
				for _, x := range page.Timers {
					got = append(got, x.ID)
				}
				last := q.SortKey(page.Timers[99])
				q.After = &last
			}
			if !slices.Equal(got, ids) {
				t.Error("the pages have other timers than there are")
			}
		})
	}
}

// TestPageAsksMovedShardsAlone: where a leader has moved, and this node does not know it yet, its
// shard is asked for again, without the others.
func TestPageAsksMovedShardsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ids := filled(3, 30, 90, 30, 10, rand.New(rand.NewPCG(3, 4)))
		n := f.nodes[1]
		f.onCall = func(_ context.Context, c fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			if c.to == 2 {
				f.mu.Lock()
				f.leaders[5] = 3
				f.mu.Unlock()
			}
			return deliver()
		}
		page, err := n.Router.List(t.Context(), &timer.Query{Limit: 1000})
		var got []string
		for _, x := range page.Timers {
			got = append(got, x.ID)
		}
		if err != nil || !slices.Equal(got, ids) || page.More {
			t.Errorf("%d timers of %d, more %v: %v", len(got), len(ids), page.More, err)
		}
		if len(f.calls) > 4 {
			t.Errorf("%d calls, want one of each other node, and at most two for the shard that moved", len(f.calls))
		}
	})
}

// TestPageOfANodeThatIsDown: a page is whole or there is an error, as long as a shard has no leader
// that answers; then it is there again.
func TestPageOfANodeThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ids := filled(3, 9, 60, 9, 10, rand.New(rand.NewPCG(5, 6)))
		f.onCall = func(_ context.Context, c fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			if c.to == 2 {
				return nil, errNotSentFake
			}
			return deliver()
		}
		begin := time.Now()
		if page, err := f.nodes[1].Router.List(t.Context(), &timer.Query{Limit: 1000}); !errors.Is(err, timer.ErrNoLeader) || time.Since(begin) > task.RetryTime {
			t.Errorf("%d timers, %v after %s", len(page.Timers), err, time.Since(begin))
		}
		for id, leader := range f.leaders {
			if leader == 2 {
				f.leaders[id] = 3
			}
		}
		if page, err := f.nodes[1].Router.List(t.Context(), &timer.Query{Limit: 1000}); err != nil || len(page.Timers) != len(ids) {
			t.Errorf("%d timers, %v", len(page.Timers), err)
		}
	})
}

// TestPagesAreWhole: whatever the sizes of pages, timers and rooms are, and while leaders move, the
// pages of a listing have each timer once and in order; those of all topics within ranges of slots.
func TestPagesAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			draw := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			shards := rapid.IntRange(1, 40).Draw(rt, "shards")
			f, ids := filled(rapid.IntRange(1, 5).Draw(rt, "nodes"), shards, rapid.IntRange(0, 120).Draw(rt, "timers"), rapid.IntRange(1, shards).Draw(rt, "of"),
				rapid.SampledFrom([]int{10, 5000, 100_000}).Draw(rt, "bytes"), draw)
			if rapid.Bool().Draw(rt, "faults") {
				f.rand, f.moves, f.faults = draw, draw.IntN(30), draw.IntN(8)
			}
			q := timer.Query{Limit: rapid.IntRange(1, 50).Draw(rt, "limit"), Waits: rapid.Bool().Draw(rt, "waits")}
			if rapid.Bool().Draw(rt, "bounded") {
				q.Bytes = rapid.IntRange(1, 1<<20).Draw(rt, "page")
			}
			slots := rapid.IntRange(0, 30).Draw(rt, "slots")
			q.AllTopics = slots > 0
			most := rapid.SampledFrom([]int{150_000, 4 << 20}).Draw(rt, "room")
			var got []string
			for failed := 0; ; {
				room := &strictRoom{left: most}
				q.Room = room
				asked := f.nodes[uint64(1+draw.IntN(len(f.nodes)))].Router
				if slots > 0 { // a page of another size begins no other range
					asked.cfg.SearchSlots = 1 + draw.IntN(slots)
				}
				page, err := asked.List(t.Context(), &q)
				if err != nil {
					if failed++; f.rand == nil || failed > 1000 || !errors.Is(err, timer.ErrNoLeader) {
						rt.Fatal(err)
					}
					f.mu.Lock()
					for id := range f.leaders { // an election
						f.leaders[id] = uint64(1 + draw.IntN(len(f.nodes)))
					}
					f.mu.Unlock()
					continue
				}
				size := 0
				for _, x := range page.Timers {
					got = append(got, x.ID)
					size += x.Size()
				}
				if used := most - room.left; used < size || f.rand == nil && used > size {
					rt.Fatalf("%d bytes of the room are used, the page has %d", used, size)
				}
				if len(page.Timers) > q.Limit || q.Waits != (page.Waits != nil) && len(page.Timers) > 0 || page.More && len(page.Timers) == 0 && page.Slots.From == q.Slots.From {
					rt.Fatalf("a page of %d timers, %d waits, more %v", len(page.Timers), len(page.Waits), page.More)
				}
				if !page.More {
					break
				}
				if q.After = nil; page.Slots.From == q.Slots.From {
					last := q.SortKey(page.Timers[len(page.Timers)-1])
					q.After = &last
				}
				q.Slots = page.Slots
			}
			if q.AllTopics { // in order of the ranges
				slices.Sort(got)
			}
			if !slices.Equal(got, ids) {
				rt.Fatalf("%d timers are listed, there are %d", len(got), len(ids))
			}
		})
	})
}

// TestPageBeginsAgainWhenShardsDouble: what was listed of half as many shards counts for nothing.
func TestPageBeginsAgainWhenShardsDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ids := filled(2, 4, 40, 4, 10, rand.New(rand.NewPCG(9, 9)))
		for id := timer.ShardID(5); id <= 8; id++ {
			f.leaders[id] = 2
		}
		for _, n := range f.nodes {
			n.counts.Store(4)
		}
		asked := 0
		f.onCall = func(_ context.Context, _ fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
			answer, err := deliver()
			f.mu.Lock()
			defer f.mu.Unlock()
			if asked++; asked == 1 {
				for id := timer.ShardID(1); id <= 4; id++ {
					n := len(f.timers[id]) / 2
					f.timers[id], f.timers[id+4] = f.timers[id][n:], f.timers[id][:n]
				}
				for _, n := range f.nodes {
					n.counts.Store(8)
				}
			}
			return answer, err
		}
		page, err := f.nodes[1].Router.List(t.Context(), &timer.Query{Limit: 100})
		var got []string
		for _, x := range page.Timers {
			got = append(got, x.ID)
		}
		if err != nil || !slices.Equal(got, ids) || asked < 2 {
			t.Errorf("%d timers of %d in %d calls: %v", len(got), len(ids), asked, err)
		}
	})
}

// strictRoom takes nothing more once it was full, until something is given back: as an answer's
// room does.
type strictRoom struct {
	mu   sync.Mutex
	left int
	full bool
}

func (r *strictRoom) Take(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full = r.full || bytes > r.left; r.full {
		return false
	}
	r.left -= bytes
	return true
}

func (r *strictRoom) GiveBack(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.full = r.left+bytes, false
}

// TestBulkTakesFewCalls: a bulk change that selects nothing of 1,024 shards asks each of eight
// other nodes once.
func TestBulkTakesFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := filled(9, 1024, 500, 1024, 10, rand.New(rand.NewPCG(7, 8)))
		b := &bulk.Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled}, Plan: func(*timer.Ref) (*timer.Command, bulk.Decision) { return nil, bulk.Pass }}
		if err := f.nodes[5].Router.Bulk(t.Context(), b); err != nil || len(f.calls) > 8 {
			t.Errorf("%d calls between nodes: %v", len(f.calls), err)
		}
	})
}

// TestHistoryTakesOneCallOfEachNode: those that lead and those that do not are asked in the same
// call.
func TestHistoryTakesOneCallOfEachNode(t *testing.T) {
	f := newFakeCluster(9, 1024)
	if _, _, err := f.nodes[5].History(t.Context(), &timer.HistoryQuery{Limit: 100, States: 0xff}); err != nil || len(f.calls) != 8 {
		t.Errorf("%d calls between nodes: %v", len(f.calls), err)
	}
}

// rightClock is a time that can be trusted.
type rightClock struct{}

func (rightClock) WallMs() int64        { return 1 }
func (rightClock) Lease() time.Duration { return time.Second }
func (rightClock) Fault() string        { return "" }

// TestIdleTopicsAreCountedTogether: a look at 2,500 topics asks each other node three times, not
// once for each topic.
func TestIdleTopicsAreCountedTogether(t *testing.T) {
	f := newFakeCluster(3, 9)
	f.leaders[shard.Meta] = 1
	state := ring.NewState(nil, nil)
	policy := timer.DefaultPolicy()
	for i := range 2500 {
		if _, err := state.Apply(1, (&ring.Command{Verb: ring.Ensure, Name: fmt.Sprint("t", i), Policy: &policy}).Encode()); err != nil {
			t.Fatal(err)
		}
	}
	n := f.nodes[1]
	it := NewIdleTopics(NewTopics(n.Router, state.Topics, nil), time.Hour, n.tasks, rightClock{}, slog.New(slog.DiscardHandler))
	it.Round(t.Context())
	if len(f.calls) != 6 || len(it.seen.empty) != 0 {
		t.Errorf("%d calls, %d topics are empty", len(f.calls), len(it.seen.empty))
	}
	for id := range f.leaders {
		f.leaders[id] = 1
	}
	f.empty = true
	if it.Round(t.Context()); len(it.seen.empty) != 2500 {
		t.Errorf("%d topics are empty", len(it.seen.empty))
	}
}
