package route

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/timer"
	"carillon/timer/bulk"
)

func TestAncestorsAndDescendants(t *testing.T) {
	for _, c := range []struct {
		id    timer.ShardID
		first int
		from  timer.ShardID
	}{{1, 4, 0}, {4, 4, 0}, {5, 4, 1}, {8, 4, 4}, {9, 4, 1}, {13, 4, 5}, {16, 4, 8}, {17, 4, 1}, {4, 3, 1}, {7, 3, 1}, {12, 3, 6}, {2, 1, 1}, {4, 1, 2}, {3, 1, 1}} {
		if got := Ancestor(c.id, c.first); got != c.from {
			t.Errorf("shard %d of %d at first was divided from %d, want %d", c.id, c.first, got, c.from)
		}
	}
	f := newFakeCluster(1, 4)
	f.nodes[1].counts.Store(16)
	for id, want := range map[timer.ShardID][]timer.ShardID{1: {1, 5, 9, 13}, 5: {5, 13}, 12: {12}, 8: {8, 16}} {
		if got := f.nodes[1].Descendants(id); !slices.Equal(got, want) {
			t.Errorf("timers of shard %d may be in %v, want %v", id, got, want)
		}
	}
	if got := f.nodes[1].withAncestors([]timer.ShardID{13}); !slices.Equal(got, []timer.ShardID{13, 5, 1}) {
		t.Error(got)
	}
}

// TestReadsCountWithOneNumber: a read of many shards is answered only where all count with the same
// number of them. Who knows of more waits for the others, and whose number is old begins again.
func TestReadsCountWithOneNumber(t *testing.T) {
	for _, c := range []struct {
		name         string
		asker, asked int  // the numbers that they count with
		later        int  // the number that the asked node has after 30 ms
		grows        bool // the asked node's host is on its way
		want         error
	}{
		{name: "never another", asker: 4, asked: 4, later: 4},
		{name: "both have grown", asker: 8, asked: 8, later: 8},
		{name: "the asked one is late", asker: 8, asked: 4, later: 8},
		{name: "the asker is late", asker: 4, asked: 8, later: 8, want: timer.ErrNoLeader},
		{name: "its host is late", asker: 8, asked: 8, later: 8, grows: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(2, 4)
				for id := timer.ShardID(1); id <= 8; id++ {
					f.leaders[id] = 2
				}
				f.timers[2] = []*timer.Timer{{ID: "a", State: timer.Scheduled, Version: 1}}
				f.nodes[1].counts.Store(int64(c.asker))
				f.nodes[2].counts.Store(int64(c.asked))
				f.nodes[2].grows.Store(c.grows)
				time.AfterFunc(30*time.Millisecond, func() {
					f.nodes[2].counts.Store(int64(c.later))
					f.nodes[2].grows.Store(false)
				})
				page, err := f.nodes[1].Router.List(t.Context(), &timer.Query{Limit: 10})
				if !errors.Is(err, c.want) || err == nil && len(page.Timers) != 1 {
					t.Fatal(page, err)
				}
			})
		})
	}
}

// TestNumberThatGrowsWithinARead: what was read while the number of shards became another counts for
// nothing.
func TestNumberThatGrowsWithinARead(t *testing.T) {
	n := newFakeCluster(1, 4).nodes[1]
	read := func(of int, meanwhile func()) error {
		return n.counting(of, func() error { meanwhile(); return nil })
	}
	if err := read(4, func() {}); err != nil {
		t.Error(err)
	}
	if err := read(4, func() { n.counts.Store(8) }); !errors.Is(err, timer.ErrNoLeader) {
		t.Errorf("a read that began with 4 shards and ended with 8: %v", err)
	}
	if err := read(8, func() { n.grows.Store(true) }); !errors.Is(err, timer.ErrNoLeader) {
		t.Errorf("the host began to grow meanwhile: %v", err)
	}
}

// TestRequestsFindTheirShard: an operation and a read of a timer go where the timer is by now,
// whatever the number of shards was when they were begun.
func TestRequestsFindTheirShard(t *testing.T) {
	topic := &timer.Topic{ID: 1, Name: "orders"}
	f := newFakeCluster(1, 4)
	n := f.nodes[1]
	n.Router.topic = func(timer.TopicID) (*timer.Topic, bool) { return topic, true }
	n.counts.Store(16)
	for i := range 100 {
		id := fmt.Sprintf("t%d", i)
		was, is := timer.ShardOf(topic, id, 4), timer.ShardOf(topic, id, 16)
		if got := n.shardOf(was, 1, id); got != is {
			t.Fatalf("%s is found in %d, and is in %d", id, got, is)
		}
		o := timer.Op{Shard: was, Command: &timer.Command{Topic: 1}, Place: n.PlaceOf(1, id)}
		n.place(&o)
		if o.Shard != is || (is-1)%4 != was-1 {
			t.Fatalf("the lease of %s is found in %d, and is in %d", id, o.Shard, is)
		}
	}
}

// growing is a cluster of one node whose shards double when so many steps of walks were taken. The
// timers in odd slots are the children's.
type growing struct {
	*bulkCluster
	after  int32
	steps  atomic.Int32
	mu     sync.Mutex
	shards int
	first  int
}

func (g *growing) Steady() bool { return true }

func (g *growing) Shards() (now, first int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shards, g.first
}

func (g *growing) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	now, first := g.Shards()
	list, next, err := g.bulkCluster.Walk(id, q, at)
	for i, m := range list {
		if slot := int(at.From) + i; now == first || (slot%2 == 1) == (int(id) > first) {
			marks = append(marks, m)
		}
	}
	if g.steps.Add(1) == g.after {
		g.mu.Lock()
		g.shards *= 2
		g.mu.Unlock()
	}
	return marks, next, err
}

// TestBulkWhileShardsDouble: a bulk change does each timer once, whenever the shards double.
func TestBulkWhileShardsDouble(t *testing.T) {
	for after := range int32(14) {
		synctest.Test(t, func(t *testing.T) {
			g := &growing{bulkCluster: newBulkCluster(2), after: after, shards: 2, first: 2}
			for i := range 20 {
				g.add(1, fmt.Sprintf("a%d", i), 1000)
				g.add(2, fmt.Sprintf("b%d", i), 1000)
			}
			g.timers[3], g.timers[4] = g.timers[1], g.timers[2] // commands find them there, too
			if after == 0 {
				g.shards = 4
			}
			begin := time.Now()
			r := New(Config{Self: 1, Host: g, Cluster: growingView{g}, Tasks: task.NewGoroutines(func() time.Duration { return time.Since(begin) }), BulkPage: 4,
				Topic: func(timer.TopicID) (*timer.Topic, bool) { return nil, false }})
			b := &bulk.Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled}, Plan: bulk.Move{By: bulk.MoveShift, Ms: 500}.Each(1, 1<<40), Of: 2}
			if err := r.Bulk(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for _, list := range [][]*timer.Timer{g.timers[1], g.timers[2]} {
				for _, x := range list {
					if x.DueMs != 1500 {
						t.Errorf("doubled after %d steps: %s is due at %d, want 1500", after, x.ID, x.DueMs)
					}
				}
			}
			if n := b.Changed.Load(); n != 40 {
				t.Errorf("doubled after %d steps: %d changed, want 40", after, n)
			}
		})
	}
}

// growingView is a growing cluster as its router sees it.
type growingView struct{ *growing }

func (growingView) LikelyLeaders(timer.ShardID) []uint64 { return nil }
func (growingView) LeadingNodes() []uint64               { return []uint64{1} }
func (growingView) LiveNodes() []uint64                  { return nil }
func (growingView) Silent(uint64) bool                   { return false }
func (growingView) Replicas(timer.ShardID) []uint64      { return []uint64{1} }
