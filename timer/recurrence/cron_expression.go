package recurrence

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// expression is a parsed cron expression: bit n of a field is set when the field matches n. Times
// are plain dates here, without a zone.
type expression struct {
	minute, hour, dayOfMonth, month, dayOfWeek uint64
	// bothDays: a day must match the day of the month and that of the week, because one of the two
	// fields starts with *. Otherwise one of them is enough. This is the rule of Vixie's cron.
	bothDays bool
	rhythm   bool // see rule
}

// cronField describes one of the five fields. Day 7 of the week is Sunday, as 0 is.
type cronField struct {
	name      string
	low, high int
	names     string // of the values from low on, three letters each
	size      int    // values until it begins again
}

var cronFields = [5]cronField{
	{"minute", 0, 59, "", 60},
	{"hour", 0, 23, "", 24},
	{"day of month", 1, 31, "", 31},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec", 12},
	{"day of week", 0, 7, "sunmontuewedthufrisat", 7},
}

const (
	maxCron         = 256
	cronSearchYears = 10 // 29 February is at most eight years away
)

// nicknames are the names that some crons have for expressions.
var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
	"@hourly": "0 * * * *",
}

func parseExpression(text string) (*expression, error) {
	if same := nicknames[strings.ToLower(strings.TrimSpace(text))]; same != "" {
		return nil, fmt.Errorf("cron: must be five fields: %q is written %q", strings.TrimSpace(text), same)
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) || len(text) > maxCron {
		return nil, errors.New("cron: must be five fields: minute, hour, day of month, month, day of week")
	}
	e := &expression{}
	for i, to := range [len(cronFields)]*uint64{&e.minute, &e.hour, &e.dayOfMonth, &e.month, &e.dayOfWeek} {
		f := &cronFields[i]
		for part := range strings.SplitSeq(fields[i], ",") {
			bits, err := f.part(part)
			if err != nil {
				return nil, fmt.Errorf("cron: %s: %w", f.name, err)
			}
			*to |= bits
		}
	}
	const everyHour = 1<<24 - 1
	star := func(i int) bool { return fields[i][0] == '*' }
	e.bothDays, e.rhythm = star(2) || star(4), star(1) || e.hour == everyHour
	return e, nil
}

// part reads one of the parts that commas separate: *, 5, 1-5, each with a step behind a slash or
// without. 5/15 is 5-59/15. As in Vixie's cron, a range does not go over the end of the field.
func (f *cronField) part(text string) (bits uint64, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		var ok bool
		if step, ok = digits(stepText); !ok || step == 0 {
			return 0, fmt.Errorf("%q: the step must be a number from 1 on", text)
		}
	}
	low, high := f.low, f.low+f.size-1
	if span != "*" {
		first, last, ranged := strings.Cut(span, "-")
		if low, err = f.value(first); err != nil {
			return 0, err
		}
		switch {
		case ranged:
			if high, err = f.value(last); err != nil {
				return 0, err
			}
			if high < low {
				return 0, fmt.Errorf("%q ends before it begins; over the end of the field it is written %q", text, f.inTwo(low, high, first, last))
			}
		case !stepped:
			high = low
		}
	}
	for v := low; v <= high; v += step {
		bits |= 1 << ((v-f.low)%f.size + f.low)
	}
	return bits, nil
}

// inTwo writes a range that goes over the end of the field as two.
func (f *cronField) inTwo(low, high int, first, last string) string {
	before, after := first, last
	if end := f.low + f.size - 1; low < end {
		before += "-" + f.spelled(end, first)
	}
	if high > f.low {
		after = f.spelled(f.low, last) + "-" + last
	}
	return before + "," + after
}

// spelled writes a value as a name where another one was written so, else as a number.
func (f *cronField) spelled(value int, as string) string {
	if _, number := digits(as); number {
		return strconv.Itoa(value)
	}
	at := 3 * (value - f.low)
	return f.names[at : at+3]
}

func (f *cronField) value(text string) (int, error) {
	if at := strings.Index(f.names, strings.ToLower(text)); len(text) == 3 && at >= 0 && at%3 == 0 {
		return f.low + at/3, nil
	}
	n, ok := digits(text)
	switch {
	case !ok && f.names != "":
		return 0, fmt.Errorf("%q is no number, name, range or *", text)
	case !ok:
		return 0, fmt.Errorf("%q is no number, range or *", text)
	case n < f.low || n > f.high:
		return 0, fmt.Errorf("%s is not within %d to %d", text, f.low, f.high)
	}
	return n, nil
}

// digits reads a number of up to nine digits. A step may be longer than its field: then the first
// value is the only one.
func digits(text string) (n int, ok bool) {
	v, err := strconv.ParseUint(text, 10, 64)
	return int(v), err == nil && len(text) <= 9
}

func (e *expression) day(t time.Time) bool {
	month, week := e.dayOfMonth>>t.Day()&1 == 1, e.dayOfWeek>>t.Weekday()&1 == 1
	if e.bothDays {
		return month && week
	}
	return month || week
}

// next returns the first minute later than t that matches, both in UTC; zero if there is none
// within ten years.
func (e *expression) next(t time.Time) time.Time {
	t = t.Truncate(time.Minute).Add(time.Minute)
	for end := t.AddDate(cronSearchYears, 0, 0); t.Before(end); {
		year, month, day := t.Date()
		switch {
		case e.month>>month&1 == 0:
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !e.day(t):
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case e.hour>>t.Hour()&1 == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case e.minute>>t.Minute()&1 == 0:
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}
