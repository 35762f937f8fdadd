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
			for range 4 { // one is too short to measure
				page, _, err := r.store.List(queries[0])
				if err != nil || len(queries) == 3 && len(page) != 1 || len(queries) == 1 && len(page) != 100 {
					t.Fatalf("%d ends, %v", len(page), err)
				}
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

// TestAnswerFromManyRecords: the ends of one id, and its attempts, are found as soon in a file that
// is being written and has many records of others.
func TestAnswerFromManyRecords(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "history records", N: indexLimit / 10, Longest: func(t testing.TB, n int) time.Duration {
		r := newStoreHarness(t, 1, func(c *Config) { c.QueueBytes, c.SegmentSize, c.Bytes = 256<<20, maxSegment, defaultBytes })
		for i := range n / 2 {
			seq, id := uint64(i+1), fmt.Appendf(nil, "timer-%d", i)
			r.store.Record([]Event{
				{Shard: 1, Index: 2 * seq, Topic: 1, Seq: seq, EndMs: r.now, ID: id},
				{Shard: 1, Index: 2*seq + 1, Topic: 1, Seq: seq, State: 3, EndMs: r.now, ID: id},
			})
		}
		r.store.Flush()
		if s := r.store.Stats(); s.Files != 1 || s.Recorded != uint64(n) {
			t.Fatalf("%+v", s)
		}
		steps := 5
		return growth.LongestStep(t, func() bool {
			for i := range 20 {
				seq := uint64((i + 1) * n / 2 / 20)
				page, _, err := r.store.List(&Query{Topic: 1, ID: fmt.Appendf(nil, "timer-%d", seq-1), States: 1 << 3, Limit: 10})
				if err != nil || len(page) != 1 {
					t.Fatalf("%d ends, %v", len(page), err)
				}
				if list, err := r.store.Attempts(1, seq, 1<<40, 0); err != nil || len(list) != 1 {
					t.Fatalf("%d attempts, %v", len(list), err)
				}
			}
			steps--
			return steps > 0
		}, func() {})
	}})
}
