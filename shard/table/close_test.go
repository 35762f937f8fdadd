package table

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

// TestForcedCloseInSlices: many bounded commands drop as many timers as one unbounded command, and
// each returns the slot to continue after.
func TestForcedCloseInSlices(t *testing.T) {
	fill := func() *tableHarness {
		d := newTableHarness(t)
		for i := range 200 {
			d.command(timer.Command{Kind: timer.Add, Topic: timer.TopicID(7 + i%2), ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: 5000}})
		}
		return d
	}
	whole := fill()
	want := whole.command(timer.Command{Kind: timer.CloseTopic, Topic: 7, Force: true})
	if want.Removed != 100 || want.Handle != 0 {
		t.Fatalf("%+v", want)
	}
	sliced := fill()
	commands, removed := 0, 0
	for from := timer.Handle(0); commands == 0 || from != 0; commands++ {
		got := sliced.command(timer.Command{Kind: timer.CloseTopic, Topic: 7, Force: true, Work: 100, From: from})
		if got.Code != timer.OK || got.Handle != 0 && got.Handle <= from {
			t.Fatalf("%+v after %d", got, from)
		}
		removed += got.Removed
		from = got.Handle
		if add := sliced.command(timer.Command{Kind: timer.Add, Topic: 7, ID: "late", Spec: &timer.Spec{DueMs: 1}}); add.Code != timer.TopicClosed {
			t.Fatalf("an add while the topic is being emptied: %d", add.Code)
		}
	}
	if removed != 100 || commands < 10 || sliced.table.Counts(7) != (timer.Counts{}) || sliced.table.Counts(8).Scheduled != 100 {
		t.Errorf("%d commands removed %d", commands, removed)
	}
	if err := sliced.table.Audit(true); err != nil {
		t.Error(err)
	}
	// out-of-range values from a peer
	for _, from := range []int64{-1, 1 << 40, encoding.MaxHandle} {
		raw := encoding.AppendCommand(nil, &timer.Command{Kind: timer.Fire, Topic: 8, Force: true, IfMatch: 1, DueMs: from})
		raw[0] = byte(timer.CloseTopic)
		var c encoding.Command
		r := encoding.Reader{Rest: raw}
		r.Command(&c)
		if got := sliced.table.closeTopic(&c); r.Err() != nil || got.Code != timer.OK {
			t.Errorf("from %d: %+v, %v", from, got, r.Err())
		}
	}
}

// TestManyClosedTopics: the cost of an add does not depend on the number of recently deleted
// topics, each of which is kept for an hour.
func TestManyClosedTopics(t *testing.T) {
	adds := func(table *Table) time.Duration {
		var b Batch
		var results []timer.Result
		begin := testkit.CPUTime(t)
		for n := range 100 {
			b.Reset(benchNow, 1, uint64(n))
			for i := range benchBatch {
				b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: benchID(n*benchBatch + i), Spec: &timer.Spec{DueMs: benchNow + 1000}})
			}
			var err error
			if results, err = table.Apply(b.Bytes(), nil, results[:0]); err != nil || results[0].Code != timer.Created {
				t.Fatalf("%+v, %v", results[0], err)
			}
		}
		return testkit.CPUTime(t) - begin
	}
	table := New(1, benchNow)
	const closed = 20_000
	for from := timer.TopicID(2); from < closed; from += 100 {
		var b Batch
		b.Reset(benchNow, 1, uint64(from))
		for i := range timer.TopicID(100) {
			b.Command(&timer.Command{Kind: timer.CloseTopic, Topic: from + i})
		}
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	few, many := adds(New(1, benchNow)), adds(table)
	t.Logf("20,000 adds: %v with no topic closed, %v with %d", few, many, closed)
	if many > 2*few+50*time.Millisecond {
		t.Errorf("20,000 adds take %v with no topic closed, %v with %d", few, many, closed)
	}
}

// TestSnapshotsOfManyClosedTopics: topics may be made and deleted all the time. However many were
// deleted within the last hour, a table can be loaded, that of a divided shard too, and its
// child's.
func TestSnapshotsOfManyClosedTopics(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Topic: 7, ID: "x", Spec: &timer.Spec{DueMs: 5000}})
	closed := 0
	loadWith := func(n int) {
		t.Helper()
		for ; closed < n; closed++ {
			d.table.closedTopics.add(tombstone{timer.TopicID(100 + closed), d.table.clockMs})
		}
		loaded, err := Load(d.table.id, bytes.NewReader(image(d.table)))
		if err != nil {
			t.Fatal(err)
		}
		if loaded.Hash() != d.table.Hash() {
			t.Error("the loaded table differs")
		}
	}
	loadWith(250_000)
	if r := d.table.divide(2, []byte{2, 0, 0, 0, 0, 0, 0, 0}); r.Code != timer.OK {
		t.Fatalf("code %d", r.Code)
	}
	child, err := LoadChild(d.table.id, d.table.id+1, bytes.NewReader(saveChild(d.table)))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(child.tombs); n != closed || child.Counts(7).Scheduled != 1 {
		t.Errorf("the child has %d closed topics, %+v", n, child.Counts(7))
	}
	if !testing.Short() {
		loadWith(1<<20 + 1)
	}
}
