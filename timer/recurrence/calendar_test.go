package recurrence

import (
	"fmt"
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
				t.Errorf("%+v: it goes on after its end", p)
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

// TestCalendarForgetsTheOldestRules: rules in use stay when more rules than the cache holds pass
// by.
func TestCalendarForgetsTheOldestRules(t *testing.T) {
	var c Calendar
	used := c.rule(ruleKey{"0 8 * * *", ""})
	for i := range 3 * maxCalendar {
		if c.cron(fmt.Sprintf("%d %d %d * *", i%60, i/60%24, 1+i/1440), "", 0) == 0 {
			t.Fatal("a rule without an occurrence: the test is about nothing")
		}
		if c.rule(ruleKey{"0 8 * * *", ""}) != used {
			t.Fatalf("after %d others a rule that is in use is read anew", i+1)
		}
	}
	if len(c.rules) != maxCalendar || c.recent.Len() != maxCalendar {
		t.Errorf("%d and %d rules are kept, at most %d are to be", len(c.rules), c.recent.Len(), maxCalendar)
	}
}
