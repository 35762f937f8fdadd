package table

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"carillon/timer"
)

// TestRestampInSlices: a large table is restamped in slices, also by a replica that is loaded from
// a snapshot between two of them.
func TestRestampInSlices(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	table := New(1, benchNow)
	var b Batch
	at := benchNow + 10*365*24*time.Hour.Milliseconds()
	b.Reset(at, 1, 1)
	for i := range 3 * restampsPerEntry {
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: at + 1000}})
	}
	apply := func(table *Table) {
		t.Helper()
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	apply(table)
	table.Advance(at+2000, 1<<30)
	b.Reset(benchNow, 1, 2)
	b.SetClock()
	apply(table)
	b.Reset(benchNow+1, 1, 3)
	b.Tick()
	apply(table)
	other, err := Load(1, bytes.NewReader(image(table)))
	if err != nil {
		t.Fatal(err)
	}
	if table.restamped != restampsPerEntry || other.restamped != restampsPerEntry {
		t.Fatalf("%d slots after an entry, %d of them in the snapshot", table.restamped, other.restamped)
	}
	for n := range 4 {
		b.Reset(benchNow+2, 1, uint64(4+n))
		b.Tick()
		apply(table)
		apply(other)
	}
	if table.restamped != seriesAwait || table.Hash() != other.Hash() || dump(table) != dump(other) {
		t.Errorf("up to slot %d; hashes %x and %x", table.restamped, table.Hash(), other.Hash())
	}
	for _, table := range []*Table{table, other} {
		if got := table.Read(1, "0"); got.CreatedMs > benchNow+2 || got.UpdatedMs > benchNow+2 {
			t.Errorf("made at %d", got.CreatedMs)
		}
		if next, ok := table.NextDue(); !ok || next > at+1000 || next < benchNow {
			t.Errorf("the wheel is at %d", next)
		}
		if err := table.Audit(false); err != nil {
			t.Error(err)
		}
	}
	b.Reset(benchNow+3, 1, 8)
	b.SetClock() // proposed twice because the first proposal took long
	if apply(table); table.restamped != seriesAwait {
		t.Error("what sets a clock that is right says that the series were seen to")
	}
	b.Reset(benchNow+4, 1, 9)
	b.SeriesSeen()
	if apply(table); table.restamped != noRestamp {
		t.Errorf("the series were seen to, and slots up to %d", table.restamped)
	}
}
