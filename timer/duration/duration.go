// Package duration reads durations as people write them: Go's grammar, with days and weeks. It is
// the only such reader of this module, so that the API and the command line take the same.
package duration

import (
	"errors"
	"math"
	"strings"
	"time"
)

// Units are the units that Parse knows, for error messages.
const Units = "w, d (24h), h, m, s, ms, us, ns"

// ErrRange is returned for a duration that is well formed and longer than time.Duration holds, 292
// years.
var ErrRange = errors.New("is longer than 292 years")

var errSyntax = errors.New(`must be a number with its unit, like "1h30m" or "30d"; the units are ` + Units)

// Parse reads a duration like "1w2d", "1d12h" or "-1.5h". A day is 24 hours, a week seven days.
// Zero has no minus: where only a duration from zero on is meant, "-0s" is a mistake. On ErrRange
// it returns the bound that was passed.
func Parse(s string) (time.Duration, error) {
	d, err := parse(s)
	if err == nil && d == 0 && s[0] == '-' {
		return 0, errSyntax
	}
	return d, err
}

func parse(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(s, "+")
	}
	if rest == "" {
		return 0, errSyntax
	}
	sum, long := time.Duration(0), false
	for rest != "" {
		d, size, err := leading(rest)
		if err == errSyntax {
			return 0, err
		}
		long = long || err != nil || d > math.MaxInt64-sum
		sum, rest = sum+d, rest[size:]
	}
	var err error
	if long {
		sum, err = math.MaxInt64, ErrRange
	}
	if negative {
		sum = -sum
	}
	return sum, err
}

// leading reads the number and the unit that s begins with, and how long they are.
func leading(s string) (d time.Duration, size int, err error) {
	number := len(s) - len(strings.TrimLeft(s, "0123456789."))
	unit := len(s) - number - len(strings.TrimLeft(s[number:], "nuµμmshdw"))
	size = number + unit
	scale, known := units[s[number:size]]
	digits := strings.Replace(s[:number], ".", "", 1)
	if !known || digits == "" || strings.Contains(digits, ".") {
		return 0, 0, errSyntax
	}
	d, err = time.ParseDuration(s[:number] + scale.unit)
	if err != nil || d > math.MaxInt64/scale.times {
		return 0, size, ErrRange
	}
	return d * scale.times, size, nil
}

// units are the units as multiples of Go's.
var units = map[string]struct {
	unit  string
	times time.Duration
}{
	"ns": {"ns", 1}, "us": {"us", 1}, "µs": {"us", 1}, "μs": {"us", 1}, "ms": {"ms", 1}, "s": {"s", 1}, "m": {"m", 1}, "h": {"h", 1},
	"d": {"h", 24}, "w": {"h", 7 * 24},
}
