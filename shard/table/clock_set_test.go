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

// TestRestampedOutcomeIsDue: an outcome that was due at once by a clock that was ahead is due at
// once when the clock is set back, in every state. A client's timer keeps its time.
func TestRestampedOutcomeIsDue(t *testing.T) {
	ahead := applyNow + time.Hour.Milliseconds()
	for _, state := range []string{"scheduled", "leased", "released", "retried"} {
		d := newTableHarness(t)
		d.now = ahead
		for id, content := range map[string]uint64{"a": 0, "client": 5} {
			none := &timer.OutcomeTopic{}
			d.command(timer.Command{Kind: timer.Add, ID: id, Content: content, Spec: &timer.Spec{DueMs: ahead, OnDone: none, OnDead: none}})
		}
		if state != "scheduled" {
			d.lease()
		}
		switch state {
		case "released":
			d.end(Outcome{Kind: Release})
		case "retried":
			d.end(Outcome{Kind: RetryLater, NextMs: ahead + 700})
		}
		d.now = applyNow
		d.do(func(b *Batch) { b.SetClock() })
		d.do(func(b *Batch) { b.Tick() })
		if state == "leased" {
			d.end(Outcome{Kind: Release})
		}
		want := applyNow
		if state == "retried" {
			want += 700
		}
		if got := d.table.Read(1, "a"); got.DueMs != applyNow || got.NextMs != want {
			t.Errorf("%s: due at %d, next at %d, want %d and %d", state, got.DueMs, got.NextMs, applyNow, want)
		}
		if got := d.table.Read(1, "client"); got.DueMs != ahead || got.NextMs != ahead {
			t.Errorf("%s: a client's timer is due at %d", state, got.DueMs)
		}
	}
}
