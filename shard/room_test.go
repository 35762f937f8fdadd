package shard

import (
	"bytes"
	"fmt"
	"testing"

	"carillon/timer"
)

// largeTimers adds n timers of 64 KiB each.
func largeTimers(r *hostHarness, n int) (ops []timer.Op) {
	payload := bytes.Repeat([]byte{7}, 64<<10)
	for i := range n {
		spec := &timer.Spec{DueMs: 1<<41 + int64(i), PayloadKind: timer.BinaryPayload, Payload: payload}
		ops = append(ops, timer.Op{Shard: 1, Brief: true, Command: &timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("t%02d", i), Spec: spec}})
	}
	r.blocking(func() { r.host.DoAll(ops) })
	return ops
}

// TestAnswersStayWithinTheirRoom: a small request that changes many large timers does not get all
// of them in its response.
func TestAnswersStayWithinTheirRoom(t *testing.T) {
	r := newHostHarness(t, nil)
	largeTimers(r, 20)
	room := timer.NewAllowance(256 << 10)
	ops := make([]timer.Op, 20)
	for i := range ops {
		ops[i] = timer.Op{Shard: 1, Room: room, Command: &timer.Command{Kind: timer.Modify, Topic: 1, ID: fmt.Sprintf("t%02d", i),
			Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 9}}}}
	}
	r.blocking(func() { r.host.DoAll(ops) })
	whole := 0
	for i, o := range ops {
		if o.Err != nil || o.Result.Code != timer.OK {
			t.Errorf("%d: %+v %v", i, o.Result, o.Err)
		}
		if o.Result.Timer != nil {
			whole++
		}
	}
	if whole != 3 { // counting each timer's size in addition to its payload
		t.Errorf("%d timers came with the answers", whole)
	}
	r.blocking(func() {
		got, err := r.host.Timer(1, 1, "t19")
		if err != nil || got.Priority != 9 || len(got.Payload) != 64<<10 {
			t.Errorf("the last of them: %+v %v", got, err)
		}
	})
}

// TestListEndsWhereItsRoomDoes: a page ends before the first timer that there is no room for, and
// has its place.
func TestListEndsWhereItsRoomDoes(t *testing.T) {
	r := newHostHarness(t, nil)
	largeTimers(r, 20)
	for _, tt := range []struct {
		query timer.Query
		whole int
	}{
		{timer.Query{Bytes: 256 << 10}, 3},
		{timer.Query{Room: timer.NewAllowance(128 << 10)}, 1},
		{timer.Query{Bytes: 1 << 20, Room: timer.NewAllowance(256 << 10)}, 3},
		{timer.Query{Bytes: 256 << 10, WithoutPayload: true}, 20},
		{timer.Query{Bytes: 1}, 0},
		{timer.Query{}, 20},
	} {
		q := tt.query
		q.Topic, q.States, q.Limit = 1, 1<<timer.Scheduled, 100
		var page timer.Page
		r.blocking(func() {
			var err error
			if page, _, err = r.host.List([]timer.ShardID{1}, &q); err != nil {
				t.Error(err)
			}
		})
		if len(page.Timers) != tt.whole || page.More != (tt.whole < 20) || page.More && page.Next.ID != fmt.Sprintf("t%02d", tt.whole) {
			t.Fatalf("%+v: %d timers, more %v at %+v", tt.query, len(page.Timers), page.More, page.Next)
		}
		for i, m := range page.Timers {
			if m.ID != fmt.Sprintf("t%02d", i) || m.DueMs != 1<<41+int64(i) || m.State != timer.Scheduled || (len(m.Payload) > 0) == q.WithoutPayload {
				t.Errorf("%+v: timer %d is %s, with %d bytes", tt.query, i, m.ID, len(m.Payload))
			}
		}
	}
}

// TestSizeIsTheSameInTheTable: the size of a copy is known before it is made.
func TestSizeIsTheSameInTheTable(t *testing.T) {
	r := newHostHarness(t, nil)
	r.blocking(func() {
		spec := &timer.Spec{DueMs: 1 << 41, PayloadKind: timer.BinaryPayload, Payload: make([]byte, 5000), Labels: []string{"a"},
			Callback: timer.Callback{URL: "http://a/", HasHeaders: true, Headers: []timer.Header{{Name: "X-A", Value: string(make([]byte, 3000))}}}}
		if _, err := r.host.Do(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: spec}, true); err != nil {
			t.Error(err)
		}
	})
	table := r.table()
	h, _ := table.Lookup(1, "a")
	for _, payload := range []bool{true, false} {
		size, copied := table.CopySize(h, payload), table.CopyWith(h, payload).Size()
		if size < copied || size > copied+100 {
			t.Errorf("payload %v: %d bytes are said, %d are copied", payload, size, copied)
		}
	}
}
