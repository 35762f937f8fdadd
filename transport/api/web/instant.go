package web

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	MsPerDay = 86_400_000
	nsPerMs  = 1_000_000
)

// ceilMs is a clock's reading in Unix ms, rounded up: nothing is ever early.
func ceilMs(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%nsPerMs != 0 {
		ms++
	}
	return ms
}

// LeastMs is the first instant that is taken as Unix milliseconds, in 1973. Smaller numbers are
// seconds that somebody took for milliseconds: a timer for them would fire at once.
const LeastMs = 100_000_000_000

// inSeconds reports whether a number that is to be Unix ms looks like Unix seconds. A filter may
// begin or end at 0.
func inSeconds(ms int64) bool { return ms > 0 && ms < LeastMs }

// MeantMs is the fault of seconds in the place of milliseconds.
func MeantMs(name string) *Problem {
	return Badf(BadTime, "%s: seconds? milliseconds are meant: %d or higher", name, int64(LeastMs))
}

const instantRule = "must be an RFC 3339 time with a zone, or Unix milliseconds, from 1970 on"

// ParseInstant reads an RFC 3339 time with a zone as Unix ms; fractions of a millisecond are
// rounded up.
func ParseInstant(s string) (ms int64, ok bool) {
	if strings.ContainsAny(s, "tz") {
		s = strings.ToUpper(s)
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, false
	}
	// Package time also takes an hour of one digit, a comma for the point, and offsets of 24 hours
	// and 60 minutes.
	if n := len(s); s[13] != ':' || strings.Contains(s, ",") || s[n-1] != 'Z' && (s[n-5:n-3] > "23" || s[n-2:] > "59") {
		return 0, false
	}
	ms = ceilMs(t)
	if t.Nanosecond()%nsPerMs == 0 && finerThanNs(s) {
		ms++
	}
	return ms, true
}

// finerThanNs reports whether a time has digits behind the ninth of its fraction, which package
// time drops.
func finerThanNs(s string) bool {
	_, fraction, _ := strings.Cut(s, ".")
	digits := fraction[:len(fraction)-len(strings.TrimLeft(fraction, "0123456789"))]
	return len(digits) > 9 && strings.Trim(digits[9:], "0") != ""
}

const (
	minShownMs = -62_135_596_800_000 // 0001-01-01
	maxShownMs = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// AppendInstant writes Unix ms as RFC 3339 UTC with milliseconds.
func AppendInstant(b []byte, ms int64) []byte {
	t := time.UnixMilli(min(max(ms, minShownMs), maxShownMs)).UTC()
	b = t.AppendFormat(b, time.RFC3339) // the one layout that package time writes quickly
	f := t.Nanosecond() / nsPerMs
	return append(b[:len(b)-1], '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10), 'Z')
}

// AddMs adds without wrapping round.
func AddMs(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// AppendTime writes a time in both of its forms, a comma first.
func AppendTime(b []byte, name string, ms int64) []byte {
	b = append(append(append(b, ',', '"'), name...), `":"`...)
	b = AppendInstant(b, ms)
	b = append(append(append(b, `","`...), name...), `_ms":`...)
	return strconv.AppendInt(b, ms, 10)
}
