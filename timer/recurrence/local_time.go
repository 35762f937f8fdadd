package recurrence

import (
	"time"
)

// maxCalendar is how many rules a calendar caches.
const maxCalendar = 1024

// zoneShift is more than any clock change, except for the few places that have crossed the date
// line.
const zoneShift = 3 * time.Hour

// rule is a cron expression in a zone. The meaning of local times on days with a clock change is
// decided here:
//
//   - A time that does not exist uses the offset before the change: 02:30 becomes 03:30.
//   - A time that exists twice means the first of the two.
//   - If every hour matches (or the hour field begins with *), the rule is a rhythm and not a time
//     of day: it fires in both hours of the repetition, and not in the hour that is skipped.
type rule struct {
	*expression
	zone *time.Location
}

func newRule(text, zone string, zones *Zones) (*rule, error) {
	e, err := parseExpression(text)
	if err != nil {
		return nil, err
	}
	r := &rule{expression: e}
	if r.zone, err = zones.Load(zone); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckCron describes the fault of a cron expression or its zone, for clients.
func CheckCron(expression, zone string) error {
	_, err := newRule(expression, zone, Release)
	return err
}

// FirstCron is the first occurrence at or after an instant in Unix ms; 0: there is none.
func FirstCron(expression, zone string, ms int64) int64 {
	r, err := newRule(expression, zone, Release)
	if err != nil {
		return 0
	}
	return r.after(ms - 1)
}

// Local is the instant of a local time in a zone, which is given as if it were UTC. A time that a
// clock change skips is moved by the gap; one that comes twice is the first.
func Local(wall time.Time, zone *time.Location) time.Time {
	r := rule{expression: &expression{}, zone: zone}
	first, _ := r.instants(wall)
	return first
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
		if first, _ := r.instants(r.next(wall)); !first.IsZero() && first.After(base) && r.steady(first) {
			return first.UnixMilli()
		}
	}
	// A clock change is near, so local times need not be in the order of their instants: look at
	// all of them.
	var best time.Time
	wall = wall.Add(-zoneShift)
	for {
		wall = r.next(wall)
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
