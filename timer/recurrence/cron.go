package recurrence

import (
	"errors"
	"strings"
	"time"
	_ "time/tzdata"

	cron "github.com/netresearch/go-cron"
)

// How much a calendar caches, and how far it looks ahead: 29 February is at most eight years away.
const (
	maxCalendar     = 1024
	cronSearchYears = 10
	maxCron         = 256
	maxZone         = 64
)

// zoneShift is more than any clock change, except for the few places that have crossed the date
// line.
const zoneShift = 3 * time.Hour

var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).
	WithMaxSearchYears(cronSearchYears)

// rule is a parsed cron expression. The library only parses it and finds matches among plain dates.
// The meaning of local times on days with a clock change is decided here:
//
//   - A time that does not exist uses the offset before the change: 02:30 becomes 03:30.
//   - A time that exists twice means the first of the two.
//   - If every hour matches (or the hour field begins with *), the rule is a rhythm and not a time
//     of day: it fires in both hours of the repetition, and not in the hour that is skipped.
type rule struct {
	schedule cron.Schedule
	zone     *time.Location
	rhythm   bool
}

func newRule(expression, zone string, load func(string) (*time.Location, error)) (*rule, error) {
	fields := strings.Fields(expression)
	if len(fields) != 5 || len(expression) > maxCron {
		return nil, errors.New("must be five fields: minute, hour, day of month, month, day of week")
	}
	schedule, err := cronParser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	spec, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("must be five fields")
	}
	spec.Location = time.UTC
	const everyHour = 1<<24 - 1
	r := &rule{schedule: spec, rhythm: strings.HasPrefix(fields[1], "*") || spec.Hour&everyHour == everyHour}
	if r.zone, err = load(zone); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckCron describes the fault of a cron expression or its zone, for clients.
func CheckCron(expression, zone string) error {
	_, err := newRule(expression, zone, LoadZone)
	return err
}

// FirstCron is the first occurrence at or after an instant in Unix ms; 0: there is none.
func FirstCron(expression, zone string, ms int64) int64 {
	r, err := newRule(expression, zone, LoadZone)
	if err != nil {
		return 0
	}
	return r.after(ms - 1)
}

// wall is the local time of an instant, represented in UTC.
func (r *rule) wall(t time.Time) time.Time {
	_, offset := t.In(r.zone).Zone()
	return t.Add(time.Duration(offset) * time.Second)
}

// steady reports that no clock change is near an instant.
func (r *rule) steady(t time.Time) bool {
	_, before := t.Add(-zoneShift).In(r.zone).Zone()
	_, after := t.Add(zoneShift).In(r.zone).Zone()
	return before == after
}

// instants are the instants of a local time: none, one or two, in order.
func (r *rule) instants(wall time.Time) (first, second time.Time) {
	_, before := wall.Add(-26 * time.Hour).In(r.zone).Zone() // no place is that far from UTC
	_, after := wall.Add(26 * time.Hour).In(r.zone).Zone()
	early := wall.Add(-time.Duration(before) * time.Second)
	late := wall.Add(-time.Duration(after) * time.Second)
	real := func(t time.Time) bool { return r.wall(t).Equal(wall) }
	switch {
	case before == after:
		return early, time.Time{}
	case real(early) && real(late):
		if !r.rhythm {
			late = time.Time{}
		}
		return early, late
	case real(early):
		return early, time.Time{}
	case real(late):
		return late, time.Time{}
	case r.rhythm:
		return time.Time{}, time.Time{}
	}
	return early, time.Time{}
}

// after is the first occurrence later than ms; 0: none within ten years.
func (r *rule) after(ms int64) int64 {
	base := time.UnixMilli(ms).UTC()
	wall := r.wall(base)
	if r.steady(base) {
		if first, _ := r.instants(r.schedule.Next(wall)); !first.IsZero() && first.After(base) && r.steady(first) {
			return first.UnixMilli()
		}
	}
	// A clock change is near, so local times need not be in the order of their instants: look at
	// all of them.
	var best time.Time
	wall = wall.Add(-zoneShift)
	for {
		wall = r.schedule.Next(wall)
		if wall.IsZero() || !best.IsZero() && wall.After(r.wall(best).Add(zoneShift)) {
			break
		}
		first, second := r.instants(wall)
		for _, t := range [2]time.Time{first, second} {
			if !t.IsZero() && t.After(base) && (best.IsZero() || t.Before(best)) {
				best = t
			}
		}
	}
	if best.IsZero() {
		return 0
	}
	return best.UnixMilli()
}
