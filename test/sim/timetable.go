package sim

import (
	"slices"
	"sync"
	"time"

	"carillon/timer/recurrence"
)

// timetable is a cron series as a receiver would compute it: minute by minute, across clock
// changes.
type timetable struct {
	cron, zone string
	dues       []int64
}

// timetables are the rules to draw from. minute and hour select the due times. A rule with rhythm
// fires in both passes of a repeated hour, and does not make up for skipped minutes.
var timetables = []struct {
	cron, zone   string
	in           func() *time.Location
	minute, hour func(n int) bool
	rhythm       bool
	from         time.Time
	count        int
}{
	{"*/20 * * * *", "Europe/Berlin", berlin, every(20), every(1), true, time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), 8},
	{"*/20 * * * *", "Europe/Berlin", berlin, every(20), every(1), true, time.Date(2026, 10, 24, 23, 30, 0, 0, time.UTC), 12},
	{"30 2 * * *", "Europe/Berlin", berlin, only(30), only(2), false, time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC), 4},
	{"30 2 * * *", "Europe/Berlin", berlin, only(30), only(2), false, time.Date(2026, 10, 23, 12, 0, 0, 0, time.UTC), 4},
	{"0 */2 * * *", "America/New_York", newYork, only(0), every(2), true, time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC), 6},
	{"15 1,2 * * *", "America/New_York", newYork, only(15), func(n int) bool { return n == 1 || n == 2 }, false, time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), 6},
	{"15 2 * * *", "Australia/Lord_Howe", lordHowe, only(15), only(2), false, time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC), 3},
	{"45 1 * * *", "Australia/Lord_Howe", lordHowe, only(45), only(1), false, time.Date(2026, 4, 3, 0, 0, 0, 0, time.UTC), 3},
}

// The zones of the timetables.
var (
	berlin   = sync.OnceValue(func() *time.Location { return zoneNamed("Europe/Berlin") })
	newYork  = sync.OnceValue(func() *time.Location { return zoneNamed("America/New_York") })
	lordHowe = sync.OnceValue(func() *time.Location { return zoneNamed("Australia/Lord_Howe") })
)

func zoneNamed(name string) *time.Location {
	zone, err := recurrence.Release.Load(name)
	if err != nil {
		panic(err)
	}
	return zone
}

func only(want int) func(int) bool  { return func(n int) bool { return n == want } }
func every(step int) func(int) bool { return func(n int) bool { return n%step == 0 } }

// drawTimetable draws a series. All its occurrences lie in the past, so it catches up with them one
// after another.
func drawTimetable(c chance) *timetable {
	i := c.IntN(len(timetables))
	rule, dues := &timetables[i], occurrences()[i]
	first, _ := slices.BinarySearch(dues, rule.from.Add(time.Duration(c.IntN(beginsWithin))*time.Minute).UnixMilli())
	return &timetable{cron: rule.cron, zone: rule.zone, dues: slices.Clone(dues[first : first+rule.count])}
}

// beginsWithin is the number of minutes after a rule's from in which a series may begin.
const beginsWithin = 90

// occurrences are by rule the due times of all its series. It walks days minute by minute, so it
// does that once.
var occurrences = sync.OnceValue(func() [][]int64 {
	all := make([][]int64, len(timetables))
	for i, rule := range timetables {
		zone := rule.in()
		fits := func(at time.Time) bool { return rule.minute(at.Minute()) && rule.hour(at.Hour()) }
		last := rule.from.Add(beginsWithin * time.Minute)
		for at, left := rule.from, rule.count; left > 0; at = at.Add(time.Minute) {
			switch {
			case fits(at.In(zone)) && (rule.rhythm || !cameBefore(at, zone)):
			case !rule.rhythm && leftOut(at, zone, fits):
			default:
				continue
			}
			all[i] = append(all[i], at.UnixMilli())
			if !at.Before(last) {
				left--
			}
		}
	}
	return all
})

// shown is the wall clock time in minutes.
func shown(at time.Time, zone *time.Location) int64 {
	_, offset := at.In(zone).Zone()
	return (at.Unix() + int64(offset)) / 60
}

// cameBefore reports whether the wall clock has shown this minute before, because it was set back.
func cameBefore(at time.Time, zone *time.Location) bool {
	now := shown(at, zone)
	for d := time.Minute; d <= 2*time.Hour; d += time.Minute {
		if shown(at.Add(-d), zone) == now {
			return true
		}
	}
	return false
}

// leftOut reports whether a matching minute was skipped when the wall clock was set forward.
func leftOut(at time.Time, zone *time.Location, fits func(time.Time) bool) bool {
	_, before := at.Add(-3 * time.Hour).In(zone).Zone()
	_, now := at.In(zone).Zone()
	meant := at.UTC().Add(time.Duration(before) * time.Second)
	if now <= before || !fits(meant) {
		return false
	}
	for d := time.Duration(0); d <= 3*time.Hour; d += time.Minute { // it exists, only elsewhere
		if shown(at.Add(-d), zone) == meant.Unix()/60 {
			return false
		}
	}
	return true
}
