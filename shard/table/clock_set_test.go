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

// TestRestampedFire: a timer that was fired by hand is attempted again from the right time when the
// clock is set back, whichever clock it was fired by: not when it is due.
func TestRestampedFire(t *testing.T) {
	ahead := applyNow + time.Hour.Milliseconds()
	fire := func(d *tableHarness, ms int64) { d.command(timer.Command{Kind: timer.Fire, DueMs: ms}) }
	retried := func(d *tableHarness) {
		d.lease()
		d.end(Outcome{Kind: RetryLater, NextMs: ahead + 700})
	}
	for name, test := range map[string]struct {
		do   func(d *tableHarness)
		want int64
	}{
		"scheduled": {func(d *tableHarness) { fire(d, ahead) }, 0},
		"leased": {func(d *tableHarness) {
			fire(d, ahead)
			d.lease()
		}, 0},
		"retried": {func(d *tableHarness) {
			fire(d, ahead)
			retried(d)
		}, 700},
		"leased again": {func(d *tableHarness) {
			fire(d, ahead)
			retried(d)
			d.now = ahead + 700
			d.lease()
		}, 0},
		"by the right clock": {func(d *tableHarness) {
			fire(d, ahead)
			retried(d)
			d.now = applyNow
			fire(d, applyNow)
		}, 0},
		"by the right clock, leased by the wrong one": {func(d *tableHarness) {
			d.now = applyNow
			fire(d, applyNow)
			d.now = ahead
			retried(d)
			d.lease()
		}, 0},
	} {
		d := newTableHarness(t)
		due := ahead + time.Minute.Milliseconds()
		d.command(timer.Command{Kind: timer.Add, Content: 5, Spec: &timer.Spec{DueMs: due}})
		d.now = ahead
		test.do(d)
		d.now = applyNow
		d.do(func(b *Batch) { b.SetClock() })
		d.do(func(b *Batch) { b.Tick() })
		if d.table.Read(1, "a").State == timer.Leased {
			d.end(Outcome{Kind: Release})
		}
		if got := d.table.Read(1, "a"); got.DueMs != due || got.NextMs != applyNow+test.want {
			t.Errorf("%s: due %d ms from now, next in %d ms, want %d", name, got.DueMs-applyNow, got.NextMs-applyNow, test.want)
		}
	}
}

// TestNotBefore: an attempt is not before a timer is due or somebody asked for one. One by hand is
// not when the timer is due either, even if the clock of the leader that was asked was ahead.
func TestNotBefore(t *testing.T) {
	for _, test := range []struct{ dueMs, askedMs, ms, want int64 }{
		{1000, 0, 1000, 1000},
		{1000, 0, 1500, 1500},
		{1000, 0, 900, 1001},
		{1000, 500, 700, 700},
		{1000, 500, 1000, 1001},
		{1000, 500, 400, 500},
		{1000, 1200, 1500, 1500},
		{1000, 1200, 900, 1001},
	} {
		d := Due{FirstMs: test.dueMs, AskedMs: test.askedMs}
		if got := d.NotBefore(test.ms); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// TestRestampedMiss: an occurrence that was missed by a clock that was ahead only is not skipped.
func TestRestampedMiss(t *testing.T) {
	for late, want := range map[int64]bool{-1000: true, time.Minute.Milliseconds(): false} {
		d := newTableHarness(t)
		due := applyNow + late
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: due, Repeat: &timer.Repeat{EveryMs: 60_000, CatchUp: timer.CatchUpSkip}}})
		d.command(timer.Command{Kind: timer.Pause})
		d.now += time.Hour.Milliseconds()
		d.command(timer.Command{Kind: timer.Resume, DueMs: d.now})
		h, _ := d.table.Lookup(1, "a")
		if !d.table.Due(h).Missed {
			t.Fatal("it is not missed by the wrong clock")
		}
		d.now = applyNow
		d.do(func(b *Batch) { b.SetClock() })
		d.do(func(b *Batch) { b.Tick() })
		if got := d.table.Due(h); got.Missed != want || got.NextMs != due {
			t.Errorf("due in %d ms: missed %v, next in %d ms", late, got.Missed, got.NextMs-applyNow)
		}
	}
}

// TestReleaseAheadOfTheRestamp: a lease that a wrong clock gave, of a timer that waited by it, is
// released in the entry that sets the clock back, before its slot is visited. The timer is
// attempted again by the right clock.
func TestReleaseAheadOfTheRestamp(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Content: 5, Spec: &timer.Spec{DueMs: applyNow}})
	d.lease()
	ahead := applyNow + time.Hour.Milliseconds()
	d.now = ahead
	end := func(b *Batch, kind OutcomeKind) { // of a call that started before the clock was wrong, or never
		due := d.table.Due(1)
		b.Outcome(&Outcome{Handle: 1, Seq: due.Seq, Fence: due.Fence, Kind: kind, StartedMs: applyNow, NextMs: ahead + 700})
	}
	d.do(func(b *Batch) { end(b, RetryLater) })
	d.now = ahead + 700
	d.lease()
	var b Batch
	b.Reset(applyNow, 1, 1)
	b.SetClock()
	end(&b, Release)
	if _, err := d.table.Apply(b.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	d.now = applyNow
	d.do(func(b *Batch) { b.Tick() })
	if got := d.table.Read(1, "a"); got.State != timer.Scheduled || got.NextMs > applyNow+1000 {
		t.Errorf("state %d, next in %d ms", got.State, got.NextMs-applyNow)
	}
}

// TestRestampedOccurrence: an occurrence that a wrong clock set and called, and that its series has
// left, is attempted again after its backoff once the clock is set back. One that a client set, or
// fired, or one of a series that catches up with all, keeps its due time.
func TestRestampedOccurrence(t *testing.T) {
	const hour = 3_600_000
	for name, test := range map[string]struct {
		catchUp     timer.CatchUp
		due, called int64 // of the first occurrence, from applyNow
		calls       int
		dueMs, want int64 // of the last one that was called, and its next attempt
	}{
		"set by the series": {timer.CatchUpOne, 24 * hour, 24 * hour, 2, 0, 700},
		"the third":         {timer.CatchUpSkip, 24 * hour, 24 * hour, 3, 0, 700},
		"set by a client":   {timer.CatchUpOne, 24 * hour, 24 * hour, 1, 24 * hour, 24*hour + 1},
		"catches up":        {timer.CatchUpAll, 24 * hour, 24 * hour, 2, 25 * hour, 25*hour + 1},
		"fired":             {timer.CatchUpOne, hour / 2, 0, 1, hour / 2, 700},
	} {
		for _, state := range []string{"retried", "leased", "corrected"} {
			d := newTableHarness(t)
			d.command(timer.Command{Kind: timer.Add, Content: 5, Spec: &timer.Spec{
				DueMs: applyNow + test.due, Repeat: &timer.Repeat{EveryMs: hour, CatchUp: test.catchUp, Overlap: true},
			}})
			d.now = applyNow + test.called
			if test.called < test.due {
				d.command(timer.Command{Kind: timer.Fire, DueMs: d.now})
			}
			var h timer.Handle
			var due Due
			for n := range test.calls {
				d.now = applyNow + test.called + int64(n)*hour
				d.lease()
				h, _ = d.table.Lookup(1, "a")
				due = d.table.Due(h)
				d.do(func(b *Batch) { b.Overlap(h, due.Seq, due.Fence, d.now+hour) })
			}
			retry := func() {
				next := d.now + 700
				if due := d.table.Due(h); !d.table.DueByClock(h) {
					next = due.NotBefore(next)
				}
				d.do(func(b *Batch) {
					b.Outcome(&Outcome{Handle: h, Seq: due.Seq, Fence: due.Fence, Kind: RetryLater, StartedMs: d.now, EndedMs: d.now, NextMs: next})
				})
			}
			if state == "retried" {
				retry()
			}
			d.now = applyNow + 30*hour
			d.do(func(b *Batch) { b.Tick() })
			d.now = applyNow
			d.do(func(b *Batch) { b.SetClock() })
			if state != "leased" {
				d.do(func(b *Batch) { b.Tick() })
			}
			if state != "retried" {
				retry()
			}
			if got := d.table.Due(h); got.FirstMs != applyNow+test.dueMs || got.NextMs != applyNow+test.want {
				t.Errorf("%s, %s: due in %d ms, next in %d ms; expected %d and %d", name, state, got.FirstMs-applyNow, got.NextMs-applyNow, test.dueMs, test.want)
			}
		}
	}
}

// TestRestampedArrayInBackoff: an array that became full by a wrong clock, and whose call failed,
// is attempted again after its backoff once the clock is set back.
func TestRestampedArrayInBackoff(t *testing.T) {
	d := newTableHarness(t)
	d.now += time.Hour.Milliseconds()
	for range 2 {
		d.collect("1", collectMax(2))
	}
	d.lease()
	d.end(Outcome{Kind: RetryLater, NextMs: d.now + 700})
	d.now = applyNow
	d.do(func(b *Batch) { b.SetClock() })
	d.do(func(b *Batch) { b.Tick() })
	if got := d.table.Read(1, "a"); got.NextMs != applyNow+700 {
		t.Errorf("next in %d ms", got.NextMs-applyNow)
	}
}
