package recurrence

import (
	"math"
	"time"
)

// maxCalendar is how many rules a calendar caches.
const maxCalendar = 1024

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
	offset := func(t time.Time) time.Duration {
		_, sec := t.In(zone).Zone()
		return time.Duration(sec) * time.Second
	}
	early := wall.Add(-offset(wall.Add(-26 * time.Hour))) // no place is that far from UTC
	late := wall.Add(-offset(wall.Add(26 * time.Hour)))
	real := func(t time.Time) bool { return t.Add(offset(t)).Equal(wall) }
	if real(late) && !real(early) {
		return late
	}
	return early
}

// span is a time between two clock changes, in Unix seconds.
type span struct {
	start, end int64
	offset     int64 // of the local time, in seconds
	before     int64 // offset before the start
}

func spanAt(zone *time.Location, sec int64) span {
	at := time.Unix(sec, 0).In(zone)
	_, offset := at.Zone()
	s := span{math.MinInt64, math.MaxInt64, int64(offset), int64(offset)}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		s.start, s.before = start.Unix(), int64(before)
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= sec { // package time does so on 31 December of leap years from 2038 on
		s.end, s.before = sec+3600, s.offset
	}
	return s
}

// after is the first occurrence later than ms; 0: none within ten years. Cost: O(1) in the clock
// changes near it, and one step for each change before it.
func (r *rule) after(ms int64) int64 {
	for {
		s := spanAt(r.zone, time.UnixMilli(ms+1).Unix())
		first, never := r.within(&s, ms)
		if first != 0 || never {
			return first
		}
		ms = s.end*1000 - 1
	}
}

// within is the first occurrence in a span that is later than ms; 0: there is none. never: nor is
// there one within ten years after the span.
func (r *rule) within(s *span, ms int64) (first int64, never bool) {
	// The local time, in Unix ms as if it were UTC, at which the clock changed, as it was shown.
	changed := (s.start + s.before) * 1000
	from := ms + s.offset*1000
	if !r.rhythm && s.before > s.offset { // what comes twice is the first of the two
		from = max(from, changed-1)
	}
	wall := r.next(time.UnixMilli(from).UTC())
	if never = wall.IsZero(); !never && wall.Unix()-s.offset < s.end {
		first = (wall.Unix() - s.offset) * 1000
	}
	if r.rhythm || s.before >= s.offset {
		return first, never
	}
	// The times that the change has skipped follow it, by the offset before.
	skipped := r.next(time.UnixMilli(max(ms+s.before*1000, changed-1)).UTC())
	if at := (skipped.Unix() - s.before) * 1000; skipped.Unix() < s.start+s.offset && !skipped.IsZero() && (first == 0 || at < first) {
		first = at
	}
	return first, never
}
