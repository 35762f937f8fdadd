package history

import (
	"fmt"
	"testing"
	"time"

	"carillon/test/testkit/growth"
)

// TestAnswerFromManyFiles: a page of one timer's ends, and of a topic's, from a history of many
// files takes about as long as from one of few.
func TestAnswerFromManyFiles(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "history files", N: maxSlices / 8, Longest: func(t testing.TB, n int) time.Duration {
		r := newStoreHarness(t, 1, func(c *Config) { c.SegmentSize = minSegment })
		r.keep = maxSlices * hour
		for slice := range n {
			for i := range 40 {
				shard := uint32(1)
				r.index[shard]++
				r.store.Record([]Event{{Shard: shard, Index: r.index[shard], Topic: 1, Seq: uint64(slice*40 + i + 1), State: 3, EndMs: r.now, ID: fmt.Appendf(nil, "timer-%d-%d", slice, i)}})
			}
			r.store.Flush()
			r.now += hour
		}
		if files := r.store.Stats().Files; files < n {
			t.Fatalf("%d files, want %d", files, n)
		}
		queries := []*Query{
			{Topic: 1, ID: []byte("timer-3-7"), States: 1 << 3, Limit: 10},
			{Topic: 1, ID: []byte("unknown"), States: 1 << 3, Limit: 10},
			{Topic: 1, States: 1 << 3, Limit: 100},
		}
		return growth.LongestStep(t, func() bool {
			page, _, err := r.store.List(queries[0])
			if err != nil || len(queries) == 3 && len(page) != 1 || len(queries) == 1 && len(page) != 100 {
				t.Fatalf("%d ends, %v", len(page), err)
			}
			queries = queries[1:]
			return len(queries) > 0
		}, func() {})
	}})
}

// TestAnswerFromManyEndsOfAnID: a page of the ends of one id, and the newest of them, take about as
// long where it has ended often, like a series of short intervals.
func TestAnswerFromManyEndsOfAnID(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "ends of an id", N: 4000, Longest: func(t testing.TB, n int) time.Duration {
		r := newStoreHarness(t, 1, func(c *Config) { c.SegmentSize = minSegment })
		for i := range n {
			r.now += 1000
			r.store.Record([]Event{{Shard: 1, Index: uint64(i + 1), Topic: 1, Seq: uint64(i + 1), State: 3, EndMs: r.now, ID: []byte("series")}})
			if i%100 == 0 {
				r.store.Maintain()
			}
		}
		r.store.Flush()
		middle := r.now - int64(n)*500
		queries := []*Query{{Limit: 20}, {Limit: 20, FromMs: middle}, {Limit: 20, Newest: true}, {Limit: 1, Newest: true, ToMs: middle}}
		return growth.LongestStep(t, func() bool {
			q := queries[0]
			q.Topic, q.ID, q.States = 1, []byte("series"), 1<<3
			page, more, err := r.store.List(q)
			if err != nil || len(page) != q.Limit || !more {
				t.Fatalf("%d ends, more: %v, %v", len(page), more, err)
			}
			queries = queries[1:]
			return len(queries) > 0
		}, func() {})
	}})
}
