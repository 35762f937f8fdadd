package recurrence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"carillon/timer"
)

// MaxExcept bounds the dates that a window leaves out.
const MaxExcept = 366

const minutesPerDay = 24 * 60

// Hours is a timer.Window in its time zone. What counts is what a clock on a wall there shows: it
// is open in each minute that the clock shows a time in [from, to) of a day on which it opens. A
// time that a clock change skips is not shown, and one that is repeated is shown twice.
//
// Hours does not change after NewHours and may be shared.
type Hours struct {
	zone     *time.Location
	days     [7]bool // by time.Weekday
	from, to int     // minutes of the day
	except   []int64 // days since 1970, in order
}

// NewHours reads a window. The zone is that of w.Zone; the caller finds it. An error is a text for
// the client that names the field.
func NewHours(w *timer.Window, zone *time.Location) (*Hours, error) {
	h := &Hours{zone: zone, to: minutesPerDay}
	var err error
	if h.days, err = readDays(w.Days); err != nil {
		return nil, err
	}
	if w.From != "" {
		if h.from, err = readTimeOfDay(w.From); err != nil || h.from == minutesPerDay {
			return nil, errors.New(`window.from: must be a time of day from 00:00 to 23:59, like "08:00"`)
		}
	}
	if w.To != "" {
		if h.to, err = readTimeOfDay(w.To); err != nil {
			return nil, errors.New(`window.to: must be a time of day from 00:00 to 24:00, like "20:00"`)
		}
	}
	if h.from == h.to {
		return nil, errors.New("window: from and to are the same time; leave both out for the whole day")
	}
	if len(w.Except) > MaxExcept {
		return nil, fmt.Errorf("window.except: more than %d dates", MaxExcept)
	}
	for _, text := range w.Except {
		date, err := time.Parse(time.DateOnly, text)
		if err != nil || date.Year() < 1970 {
			return nil, errors.New(`window.except: each must be a date like "2026-12-25"`)
		}
		h.except = append(h.except, dayOf(date.Unix()))
	}
	slices.Sort(h.except)
	if len(slices.Compact(slices.Clone(h.except))) < len(h.except) {
		return nil, errors.New("window.except: a date is given twice")
	}
	return h, nil
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// readDays reads a list of days and of ranges of days. A range may pass the end of the week.
func readDays(text string) (days [7]bool, err error) {
	if text == "" {
		return [7]bool{true, true, true, true, true, true, true}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranges := strings.Cut(part, "-")
		if !ranges {
			last = first
		}
		at, end := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if at < 0 || end < 0 || ranges && at == end {
			return days, errors.New(`window.days: must be days of sun, mon, tue, wed, thu, fri, sat, like "mon-fri" or "mon,wed"`)
		}
		for ; ; at = (at + 1) % 7 {
			if days[at] {
				return days, fmt.Errorf("window.days: %s is given twice", dayNames[at])
			}
			if days[at] = true; at == end {
				break
			}
		}
	}
	return days, nil
}

// readTimeOfDay reads "08:00" as minutes of the day; "24:00" is its end.
func readTimeOfDay(text string) (int, error) {
	if text == "24:00" {
		return minutesPerDay, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, errors.New("not a time of day")
	}
	return t.Hour()*60 + t.Minute(), nil
}

// Open reports whether the window is open at an instant in Unix ms, and until when it surely stays
// as it is. It changes then, or, where no change is near, must be asked again then. untilMs is
// later than ms.
func (h *Hours) Open(ms int64) (open bool, untilMs int64) {
	sec := time.UnixMilli(ms).Unix()
	offset, set := h.clock(sec)
	open = h.shows(sec + offset)
	// Within a week and the dates left out there is a change, or the window is always open.
	for end := sec + int64(len(h.except)+2)*7*86_400; sec < end; {
		if sec = min(h.next(sec+offset)-offset, set); sec == set {
			offset, set = h.clock(sec)
		}
		if h.shows(sec+offset) != open {
			break
		}
	}
	return open, sec * 1000
}

// clock is what the clock on the wall is ahead of UTC, in seconds, and when it is set next.
func (h *Hours) clock(sec int64) (offset, set int64) {
	s := spanAt(h.zone, sec)
	return s.offset, s.end
}

// next is the time after wall at which the window may change: midnight, from or to.
func (h *Hours) next(wall int64) int64 {
	midnight := dayOf(wall) * 86_400
	next := midnight + 86_400
	for _, minutes := range [2]int{h.from, h.to} {
		if t := midnight + int64(minutes)*60; t > wall {
			next = min(next, t)
		}
	}
	return next
}

// shows reports whether the window is open when the clock on the wall shows this.
func (h *Hours) shows(wall int64) bool {
	day := dayOf(wall)
	minute := int(wall-day*86_400) / 60
	if h.from < h.to {
		return h.opens(day) && minute >= h.from && minute < h.to
	}
	return h.opens(day) && minute >= h.from || h.opens(day-1) && minute < h.to
}

// opens reports whether the window opens on a day.
func (h *Hours) opens(day int64) bool {
	if _, left := slices.BinarySearch(h.except, day); left {
		return false
	}
	return h.days[((day+int64(time.Thursday))%7+7)%7] // 1970 began on a Thursday
}

// dayOf is the day since 1970 of seconds since then.
func dayOf(sec int64) int64 {
	day := sec / 86_400
	if sec%86_400 < 0 {
		day--
	}
	return day
}
