package history

import (
	"fmt"
	"sync"
	"testing"
)

// TestAtOnce: recording, queries and maintenance run at once; answers are in order and as they
// were recorded.
func TestAtOnce(t *testing.T) {
	r := newStoreHarness(t, 1, func(c *Config) { c.SegmentSize, c.Bytes = 30_000, 300_000 })
	var work, asking sync.WaitGroup
	done := make(chan struct{})
	for shard := uint32(1); shard <= 3; shard++ {
		work.Go(func() {
			for i := uint64(1); i <= 1000; i++ {
				id := fmt.Appendf(nil, "t%d", i%50)
				r.store.Record([]Event{
					{Shard: shard, Index: i, Topic: 1, Seq: i, EndMs: r.now, ID: id, Body: id},
					{Shard: shard, Index: i, Item: 1, Topic: 1, Seq: i, State: 3, EndMs: r.now + int64(i/100), ID: id, Body: id},
				})
				if i%64 == 0 {
					r.store.Flush()
				}
			}
		})
	}
	for n := range 3 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				q := &Query{Topic: 1, States: 0xff, Limit: 200}
				if n == 1 {
					q.ID = []byte("t7")
				}
				page, _, err := r.store.List(q)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range page {
					if string(page[i].Body) != string(page[i].ID) || i > 0 && page[i-1].Key().Compare(page[i].Key()) >= 0 {
						t.Errorf("%+v", page[i])
						return
					}
				}
				if n == 2 {
					r.store.Maintain()
					if _, err := r.store.Attempts(1, 990, 1<<40, 0); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	work.Wait()
	r.store.Flush() // others may be at it, and then it waits for them
	if s := r.store.Stats(); s.Recorded != 6_000 {
		t.Errorf("what was recorded before a Flush is not written after it: %+v", s)
	}
	close(done)
	asking.Wait()
	if s := r.store.Stats(); s.Recorded != 6_000 || s.Damaged+s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	r.store.Close()
	if page, more, err := r.store.List(&Query{Topic: 1, States: 0xff, Limit: 9}); len(page) != 0 || more || err != nil {
		t.Errorf("after the end: %d, %v", len(page), err)
	}
}
