package recurrence

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/timer"
)

// TestRepeatNext compares the kinds of catch-up. Occurrences are at 0, 10, 20 … s.
func TestRepeatNext(t *testing.T) {
	var c Calendar
	for _, x := range []struct {
		catchUp               timer.CatchUp
		due, started, now, at int64
	}{
		{timer.CatchUpOne, 10, 10, 11, 20}, {timer.CatchUpSkip, 10, 10, 11, 20}, {timer.CatchUpAll, 10, 10, 11, 20},
		// The call lasted until 45: 20, 30 and 40 were missed.
		{timer.CatchUpOne, 10, 10, 45, 40}, {timer.CatchUpSkip, 10, 10, 45, 50}, {timer.CatchUpAll, 10, 10, 45, 20},
		// The call itself was late and stands for all.
		{timer.CatchUpOne, 10, 44, 45, 50}, {timer.CatchUpSkip, 10, 44, 45, 50}, {timer.CatchUpAll, 10, 44, 45, 20},
		{timer.CatchUpOne, 10, 24, 45, 40}, {timer.CatchUpOne, 10, 30, 35, 40},
		// The end of the call is an occurrence's time.
		{timer.CatchUpOne, 10, 10, 20, 20}, {timer.CatchUpSkip, 10, 10, 20, 30}, {timer.CatchUpAll, 10, 10, 20, 20},
		// It never started: expired.
		{timer.CatchUpOne, 10, 0, 45, 40}, {timer.CatchUpOne, 10, 0, 12, 20},
		{timer.CatchUpOne, 10, 10, 5, 20}, {timer.CatchUpSkip, 10, 10, 5, 20},
	} {
		for _, p := range []timer.Repeat{{EveryMs: 600_000, CatchUp: x.catchUp}, {Cron: "*/10 * * * *", CatchUp: x.catchUp}} {
			got := c.Next(&p, x.due*60_000, x.started*60_000, x.now*60_000)
			if got != x.at*60_000 {
				t.Errorf("%+v: %+v gives %d", p, x, got/60_000)
			}
			if p.UntilMs = x.at*60_000 - 1; c.Next(&p, x.due*60_000, x.started*60_000, x.now*60_000) != 0 {
				t.Errorf("%+v: it continues after its end", p)
			}
			if p.UntilMs++; c.Next(&p, x.due*60_000, x.started*60_000, x.now*60_000) != got {
				t.Errorf("%+v: its end does not count", p)
			}
		}
	}
	// A year of missed minutes is searched without a walk.
	year := int64(365 * 24 * 3_600_000)
	minutely := timer.Repeat{Cron: "* * * 1 *", Zone: "Europe/Berlin"}
	if got, want := c.last(&minutely, 0, 0, year-5*24*3_600_000), "1970-01-31 22:59"; time.UnixMilli(got).UTC().Format("2006-01-02 15:04") != want {
		t.Errorf("the last minute of January was %s, want %s", time.UnixMilli(got).UTC(), want)
	}
}

// TestCalendarForgetsRules: a rule in use is read again once, at most, while as many others as the
// cache holds pass by.
func TestCalendarForgetsRules(t *testing.T) {
	var c Calendar
	last, read := (*rule)(nil), 0
	for i := range 3 * maxCalendar {
		if c.cron(fmt.Sprintf("%d %d %d * *", i%60, i/60%24, 1+i/1440), "", 0) == 0 {
			t.Fatal("a rule without an occurrence: the test is about nothing")
		}
		if r := c.rule(ruleKey{"0 8 * * *", ""}); r != last {
			last, read = r, read+1
		}
		if len(c.rules) > maxCalendar {
			t.Fatalf("%d rules are kept, at most %d are to be", len(c.rules), maxCalendar)
		}
	}
	if read > 4 {
		t.Errorf("a rule that is in use was read %d times", read)
	}
}

// TestComing: what comes of a series, by its state, its end and its way to catch up. Occurrences
// are at 0, 10, 20 … minutes.
func TestComing(t *testing.T) {
	const minute = 60_000
	for _, x := range []struct {
		name     string
		due, now int64
		edit     func(*timer.Timer)
		n        int
		want     []int64
	}{
		{"ahead", 50, 5, nil, 3, []int64{50, 60, 70}},
		{"one, late", 10, 45, nil, 3, []int64{10, 50, 60}},
		{"all, late", 10, 45, func(t *timer.Timer) { t.Repeat.CatchUp = timer.CatchUpAll }, 6, []int64{10, 20, 30, 40, 50, 60}},
		{"skip, late", 10, 45, func(t *timer.Timer) { t.Repeat.CatchUp = timer.CatchUpSkip }, 2, []int64{50, 60}},
		{"skip, tried", 10, 45, func(t *timer.Timer) { t.Repeat.CatchUp, t.Attempts = timer.CatchUpSkip, 1 }, 2, []int64{10, 50}},
		{"at the epoch", 0, 45, nil, 3, []int64{0, 50, 60}},
		{"running", 10, 12, func(t *timer.Timer) { t.State = timer.Leased }, 2, []int64{20, 30}},
		{"count", 30, 5, func(t *timer.Timer) { t.Repeat.Count, t.Occurrence = 4, 3 }, 5, []int64{30, 40}},
		{"count, running", 30, 5, func(t *timer.Timer) { t.Repeat.Count, t.Occurrence, t.State = 4, 3, timer.Leased }, 5, []int64{40}},
		{"the last runs", 30, 5, func(t *timer.Timer) { t.Repeat.Count, t.Occurrence, t.State = 4, 4, timer.Leased }, 5, []int64{}},
		{"until", 30, 5, func(t *timer.Timer) { t.Repeat.UntilMs = 40 * minute }, 5, []int64{30, 40}},
		{"moved behind until", 50, 5, func(t *timer.Timer) { t.Repeat.UntilMs = 40 * minute }, 5, []int64{50}}, // it is called
		{"over", 30, 5, func(t *timer.Timer) { t.State = timer.Done }, 5, []int64{}},
		{"went on", 30, 5, func(t *timer.Timer) { t.Occurrence = 0 }, 5, []int64{}},
		{"none", 30, 5, func(t *timer.Timer) { t.Repeat = nil }, 5, []int64{}},
	} {
		for _, p := range []timer.Repeat{{EveryMs: 10 * minute}, {Cron: "*/10 * * * *"}} {
			v := &timer.Timer{State: timer.Scheduled, Occurrence: 1, Spec: timer.Spec{DueMs: x.due * minute, Repeat: &p}}
			if x.edit != nil {
				x.edit(v)
			}
			var c Calendar
			got := c.Coming(v, timer.NoWait, x.now*minute, x.n)
			for i := range got {
				got[i] /= minute
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("%s, %+v: %v, want %v", x.name, p, got, x.want)
			}
		}
	}
	var c Calendar
	late := &timer.Timer{State: timer.Scheduled, Occurrence: 1, Spec: timer.Spec{DueMs: 10 * minute, Repeat: &timer.Repeat{EveryMs: 10 * minute, CatchUp: timer.CatchUpSkip}}}
	for wait, first := range map[timer.WaitCause]int64{timer.WaitWindow: 10, timer.WaitSpread: 10, timer.WaitBatch: 10, timer.WaitPaused: 50} {
		if got := c.Coming(late, wait, 45*minute, 1); !slices.Equal(got, []int64{first * minute}) {
			t.Errorf("one that waits for its %s: %v, want %d", wait, got, first*minute)
		}
	}
	v := &timer.Timer{State: timer.Scheduled, Occurrence: 1, Spec: timer.Spec{DueMs: 1_798_761_600_000, Repeat: &timer.Repeat{Cron: "0 0 29 2 *", Zone: "Europe/Berlin"}}}
	if got := c.Coming(v, timer.NoWait, 0, 100); len(got) != 100 {
		t.Errorf("%d of a hundred leap days", len(got))
	}
}
