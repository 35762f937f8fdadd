package table

import (
	"bytes"
	"testing"

	"carillon/timer"
)

// TestSeriesInSnapshot: a snapshot preserves the number of an occurrence, and that the series has
// continued without a dead one.
func TestSeriesInSnapshot(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now, Repeat: &timer.Repeat{EveryMs: 1000, Count: 3}}})
	for n := range int64(2) {
		d.lease()
		d.end(Outcome{Kind: Kill, Reason: timer.Stopped, RetainUntilMs: d.now + 9e6, AgainMs: d.now + 1000*(n+1)})
	}
	b, _ := d.table.BeginSnapshot().Next(nil, 1<<30)
	loaded, err := Load(1, bytes.NewReader(b))
	if err != nil || loaded.Hash() != d.table.Hash() {
		t.Fatal(err)
	}
	d.table = loaded
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: d.now + 9000})
	if v := d.table.Read(1, "a"); v.State != timer.Done {
		t.Errorf("after as many as there are to be: %+v", v)
	}
	if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != timer.OK {
		t.Fatalf("redrive: %d", got.Code)
	}
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: d.now + 9000})
	if c := d.table.Totals(); c.Scheduled != 0 || c.Dead != 1 {
		t.Errorf("a redriven occurrence brought about another: %+v", c)
	}
}

// TestPutOfARunningSeries: a put whose first time is past begins the same series once only. With
// other times, another kind of time, or a first time that is to come it begins again.
func TestPutOfARunningSeries(t *testing.T) {
	d := newTableHarness(t)
	first := d.now - 3_500
	every := func(ms int64) *timer.Repeat { return &timer.Repeat{EveryMs: ms} }
	put := func(dueMs int64, absolute bool, p *timer.Repeat) {
		t.Helper()
		if got := d.command(timer.Command{Kind: timer.Put, Absolute: absolute, Spec: &timer.Spec{DueMs: dueMs, Repeat: p, Payload: []byte("1")}}); got.Code != timer.Created && got.Code != timer.OK {
			t.Fatalf("the put answers %d", got.Code)
		}
	}
	due := func(want int64) {
		t.Helper()
		if v := d.table.Read(1, "a"); v.DueMs != want || v.NextMs != want || v.State != timer.Scheduled || v.Attempts != 0 {
			t.Errorf("due %+d, next %+d after the first time, want %+d: %+v", v.DueMs-first, v.NextMs-first, want-first, v)
		}
	}
	put(first, true, every(1000))
	due(first)
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: first + 4000})
	due(first + 4000)
	for range 3 {
		put(first, true, every(1000))
		due(first + 4000)
	}
	put(first-2000, true, every(1000)) // the same times
	due(first + 4000)
	put(first, false, every(1000)) // a delay begins now
	due(first)
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: first + 4000})
	put(first+1, true, every(1000)) // other times
	due(first + 1)
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: first + 4001})
	put(first+1, true, every(500))
	due(first + 1)
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: first + 4001})
	put(d.now+60_000, true, every(500)) // to come
	due(d.now + 60_000)
	put(first, true, nil)
	due(first)
	put(first, true, every(500)) // it was none
	due(first)
}
