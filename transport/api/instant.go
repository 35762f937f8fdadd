package api

import (
	"math"
	"time"
)

const (
	msPerDay = 86_400_000
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

// parseInstant reads an RFC 3339 time with a zone as Unix ms; what is finer than a millisecond is rounded up.
// Own code because time.Parse is three times as slow, takes forms that the RFC does not have, and cannot round up.
func parseInstant(s string) (ms int64, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	year, ok1 := digits(s[0:4])
	month, ok2 := digits(s[5:7])
	d, ok3 := digits(s[8:10])
	hour, ok4 := digits(s[11:13])
	minute, ok5 := digits(s[14:16])
	second, ok6 := digits(s[17:19])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) || month < 1 || month > 12 || d < 1 || d > daysIn(year, month) ||
		hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	fraction, rest, ok := parseFraction(s[19:])
	if !ok {
		return 0, false
	}
	offset, ok := parseOffset(rest)
	if !ok {
		return 0, false
	}
	return daysFromCivil(year, month, d)*msPerDay + hour*3_600_000 + (minute-offset)*60_000 + second*1_000 + fraction, true
}

// parseFraction reads what may stand after the seconds, as ms rounded up (so up to 1,000).
func parseFraction(s string) (ms int64, rest string, ok bool) {
	if s == "" || s[0] != '.' {
		return 0, s, s != ""
	}
	unit, finer, i := int64(100), false, 1
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		ms += int64(s[i]-'0') * unit
		finer = finer || unit == 0 && s[i] != '0'
		unit /= 10
	}
	if finer {
		ms++
	}
	return ms, s[i:], i > 1
}

// parseOffset reads Z or ±hh:mm as minutes east.
func parseOffset(s string) (minutes int64, ok bool) {
	if len(s) == 1 {
		return 0, s[0]|0x20 == 'z'
	}
	if len(s) != 6 || s[3] != ':' || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, ok1 := digits(s[1:3])
	m, ok2 := digits(s[4:6])
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	minutes = h*60 + m
	if s[0] == '-' {
		minutes = -minutes
	}
	return minutes, true
}

func digits(s string) (n int64, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysFromCivil and civilFromDays are Howard Hinnant's algorithms (chrono-compatible low-level date algorithms):
// days since 1970-01-01 of a proleptic Gregorian date, and back. Years 0–9999.
func daysFromCivil(y, m, d int64) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

func civilFromDays(z int64) (y, m, d int64) {
	z += 719468
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = doy - (153*mp+2)/5 + 1
	if m = mp + 3; m > 12 {
		m -= 12
	}
	if y = yoe + era*400; m <= 2 {
		y++
	}
	return y, m, d
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

const (
	minShownMs = -62_135_596_800_000 // 0001-01-01
	maxShownMs = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// appendInstant writes Unix ms as RFC 3339 UTC with milliseconds.
func appendInstant(b []byte, ms int64) []byte {
	ms = min(max(ms, minShownMs), maxShownMs)
	days := floorDiv(ms, msPerDay)
	t := ms - days*msPerDay
	y, m, d := civilFromDays(days)
	b = appendPadded(b, y/100, y%100)
	b = append(b, '-')
	b = append(b, byte('0'+m/10), byte('0'+m%10), '-', byte('0'+d/10), byte('0'+d%10), 'T')
	h, mi, s, f := t/3_600_000, t/60_000%60, t/1_000%60, t%1_000
	return append(b, byte('0'+h/10), byte('0'+h%10), ':', byte('0'+mi/10), byte('0'+mi%10), ':',
		byte('0'+s/10), byte('0'+s%10), '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10), 'Z')
}

func appendPadded(b []byte, hi, lo int64) []byte {
	return append(b, byte('0'+hi/10), byte('0'+hi%10), byte('0'+lo/10), byte('0'+lo%10))
}

// addMs adds without wrapping round.
func addMs(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
