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
