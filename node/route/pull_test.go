package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

func readyTimer(id string, priority uint8, dueMs int64, bytes int) *timer.Timer {
	return &timer.Timer{ID: id, State: timer.Leased, Spec: timer.Spec{Priority: priority, DueMs: dueMs, PayloadKind: timer.BinaryPayload, Payload: make([]byte, bytes)}}
}

func idsOf(list []timer.PulledTimer) (ids []string) {
	for _, t := range list {
		ids = append(ids, t.Timer.ID)
	}
	return ids
}

// TestPullOrderAcrossNodes: the first timers are taken first, wherever they are, and no more than
// fit.
func TestPullOrderAcrossNodes(t *testing.T) {
	c := newFakeCluster(3, 6)
	c.becomes(1, readyTimer("d", 0, 40, 10))
	c.becomes(2, readyTimer("b", 5, 99, 10))
	c.becomes(3, readyTimer("c", 0, 10, 10))
	c.becomes(3, readyTimer("e", 0, 50, 10))
	c.becomes(6, readyTimer("a", 9, 500, 1<<20))
	r := c.nodes[1]
	for _, want := range [][]string{{"a", "b"}, {"c", "d"}, {"e"}, nil} {
		got, err := r.Pull(t.Context(), 1, 2, 0, 0)
		if err != nil || !slices.Equal(idsOf(got), want) {
			t.Errorf("pulled %v, want %v: %v", idsOf(got), want, err)
		}
	}
	for i := range 3 {
		c.becomes(timer.ShardID(1+i), readyTimer(fmt.Sprint("big", i), 0, int64(i), 2<<20-1000))
	}
	if got, err := r.Pull(t.Context(), 1, 1000, 0, 0); err != nil || !slices.Equal(idsOf(got), []string{"big0", "big1"}) {
		t.Errorf("pulled %v: %v", idsOf(got), err)
	}
}

// TestPullWhenNobodyLeads: a node that sees no leader says so within two seconds, for any wait.
func TestPullWhenNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(3, 3)
		clear(c.leaders)
		begin := time.Now()
		_, err := c.nodes[1].Pull(t.Context(), 1, 1, 0, time.Minute)
		if took := time.Since(begin); !errors.Is(err, timer.ErrNoLeader) || took > 2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		c.leaders[1] = 2
		c.nodes[2].answer = timer.ErrUnknown
		c.becomes(1, readyTimer("a", 0, 1, 1))
		if _, err := c.nodes[1].Pull(t.Context(), 1, 1, 0, 0); !errors.Is(err, timer.ErrNoLeader) {
			t.Errorf("a leader that does not answer: %v", err)
		}
	})
}

// TestPullersAreServedInTurn: a hundred wait, at three nodes; each timer goes to one of them, the
// ones of a node in the order in which they came, and nobody asks anybody while nothing is ready.
func TestPullersAreServedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(3, 3)
		var mu sync.Mutex
		served := map[uint64][]int{}
		all := map[string]int{}
		var wg sync.WaitGroup
		for i := range 100 {
			node := uint64(1 + i%3)
			wg.Go(func() {
				got, err := c.nodes[node].Pull(t.Context(), 1, 1, 0, time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(got) != 1 {
					t.Errorf("puller %d: %v, %v", i, idsOf(got), err)
					return
				}
				served[node] = append(served[node], i)
				all[got[0].Timer.ID]++
			})
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		c.mu.Lock()
		asked := len(c.calls)
		c.mu.Unlock()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		c.mu.Lock()
		if more := len(c.calls) - asked; more > 12 { // a call of each to each other in awaitTime
			t.Errorf("%d calls in four seconds of nothing", more)
		}
		c.mu.Unlock()
		for i := range 100 {
			c.becomes(timer.ShardID(1+i%3), readyTimer(fmt.Sprint("t", i), 0, int64(i), 1))
			time.Sleep(60 * time.Millisecond)
			c.remind()
		}
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			c.remind()
		}
		wg.Wait()
		if len(all) != 100 {
			t.Errorf("%d of 100 timers were pulled", len(all))
		}
		for node, list := range served {
			if !slices.IsSorted(list) {
				t.Errorf("node %d served its pullers in the order %v", node, list)
			}
		}
		time.Sleep(10 * time.Second) // the last watches end
		synctest.Wait()
		for id, n := range c.nodes {
			if w := n.waiters; w.count.Load() != 0 || len(w.topics) != 0 || w.watches != 0 {
				t.Errorf("node %d: %d waiters, %d topics, %d watches are left", id, w.count.Load(), len(w.topics), w.watches)
			}
		}
	})
}

// remind notifies as hosts do every 50 ms.
func (c *fakeCluster) remind() {
	c.mu.Lock()
	ready := map[timer.ShardID]int{}
	for id, list := range c.ready {
		ready[id] = len(list)
	}
	c.mu.Unlock()
	for id, n := range ready {
		if n > 0 {
			c.nodes[c.leaders[id]].Ready(1, n)
		}
	}
}

// TestWaitEnds: without anything, when the time is over, or the client's context.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(2, 2)
		begin := time.Now()
		if got, err := c.nodes[1].Pull(t.Context(), 1, 1, 0, 20*time.Second); len(got) != 0 || err != nil || time.Since(begin) != 20*time.Second {
			t.Errorf("%v, %v after %v", got, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if got, err := c.nodes[1].Pull(ctx, 1, 1, 0, time.Minute); len(got) != 0 || err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v, %v after %v", got, err, time.Since(begin))
		}
		time.Sleep(10 * time.Second)
	})
}

// TestOneTimerWakesOne: of a hundred consumers that wait at a node, a timer that another node has
// ready wakes one. When each asked for it, it cost three hundred calls between nodes.
func TestOneTimerWakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(2, 2)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _, _ = c.nodes[1].Pull(t.Context(), 1, 1, 0, 20*time.Second) })
		}
		time.Sleep(awaitTime + time.Second) // the other node knows how many wait
		for ready := 1; ready <= 2; ready++ {
			c.mu.Lock()
			asked := len(c.calls)
			c.mu.Unlock()
			for i := range ready {
				c.becomes(2, readyTimer(fmt.Sprint("t", i), 0, 1, 1))
			}
			time.Sleep(time.Second)
			c.mu.Lock()
			if more := len(c.calls) - asked; more > 6*ready {
				t.Errorf("%d calls for %d timers", more, ready)
			}
			if left := len(c.ready[2]); left > 0 {
				t.Errorf("%d of %d timers are left", left, ready)
			}
			c.mu.Unlock()
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
	})
}

// TestWaitEndsWithItsTopic: at once when the topic is deleted or has come to call its receivers, and
// not when it changes otherwise.
func TestWaitEndsWithItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(2, 2)
		n := c.nodes[1]
		for name, change := range map[string]func(){
			"deleted": func() { c.pulled.Store(nil); n.TopicsChanged(1) },
			"pushed":  func() { c.pulled.Store(&timer.Topic{ID: 1}); n.TopicsChanged(1) },
			"unknown": func() { c.pulled.Store(nil); n.TopicsChanged() },
		} {
			c.pulled.Store(&timer.Topic{ID: 1, Policy: timer.Policy{Pull: true}})
			begin := time.Now()
			time.AfterFunc(time.Second, func() { n.TopicsChanged(1, 2) })
			time.AfterFunc(2*time.Second, change)
			got, err := n.Pull(t.Context(), 1, 1, 0, 20*time.Second)
			if len(got) != 0 || !errors.Is(err, timer.ErrNoTopic) || time.Since(begin) != 2*time.Second {
				t.Errorf("%s: %v, %v after %v", name, got, err, time.Since(begin))
			}
		}
		begin := time.Now() // the topic is gone since its caller looked it up
		if _, err := n.Pull(t.Context(), 1, 1, 0, 20*time.Second); !errors.Is(err, timer.ErrNoTopic) || time.Since(begin) != 0 {
			t.Errorf("before the wait: %v after %v", err, time.Since(begin))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w := n.waiters; w.count.Load() != 0 || len(w.topics) != 0 {
			t.Errorf("%d waiters, %d topics are left", w.count.Load(), len(w.topics))
		}
	})
}

// TestPullBeyondTheWatches: consumers wait for so many topics that this node asks the others to
// notify it of no further one. Those of such a topic look themselves: a timer that another node has
// ready does not wait for the end of their polls.
func TestPullBeyondTheWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(2, 2)
		r := c.nodes[1]
		r.waiters.watches = maxWatches
		time.AfterFunc(3500*time.Millisecond, func() { c.becomes(2, readyTimer("a", 0, 1, 1)) })
		begin := time.Now()
		got, err := r.Pull(t.Context(), 1, 1, 0, time.Minute)
		if took := time.Since(begin); err != nil || len(got) != 1 || took > 5*time.Second {
			t.Errorf("pulled %v after %s: %v", idsOf(got), took, err)
		}
		begin = time.Now()
		if got, err = r.Pull(t.Context(), 1, 1, 0, 20*time.Second); len(got) != 0 || err != nil || time.Since(begin) != 20*time.Second {
			t.Errorf("%v, %v after %v", got, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if got, err = r.Pull(ctx, 1, 1, 0, time.Minute); len(got) != 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		if w := r.waiters; w.count.Load() != 0 || len(w.topics) != 0 {
			t.Errorf("%d waiters, %d topics are left", w.count.Load(), len(w.topics))
		}
	})
}
