package web

import (
	"errors"
	"math"
	"strconv"

	"carillon/timer/duration"
)

// ParseSpan reads a duration as milliseconds, rounded away from zero and held at the bounds of
// int64: "9000000h" is well formed though time.Duration cannot hold it, and deserves a better
// answer than "cannot be parsed".
func ParseSpan(s string) (ms int64, ok bool) {
	d, err := duration.Parse(s)
	switch {
	case errors.Is(err, duration.ErrRange) && d < 0:
		return -math.MaxInt64, true
	case errors.Is(err, duration.ErrRange):
		return math.MaxInt64, true
	}
	ms = d.Milliseconds()
	switch rest := d % nsPerMs; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms, err == nil
}

// AppendSpan writes milliseconds as the shortest Go duration: "30m", "72h", "1h30m", "1.5s",
// "250ms".
func AppendSpan(b []byte, ms int64) []byte {
	if ms < 0 {
		b = append(b, '-')
		ms = -ms
	}
	if ms < 1000 {
		if ms == 0 {
			return append(b, "0s"...)
		}
		return append(strconv.AppendInt(b, ms, 10), "ms"...)
	}
	if h := ms / 3_600_000; h > 0 {
		b = append(strconv.AppendInt(b, h, 10), 'h')
	}
	if m := ms / 60_000 % 60; m > 0 {
		b = append(strconv.AppendInt(b, m, 10), 'm')
	}
	s, f := ms/1000%60, ms%1000
	if s == 0 && f == 0 {
		return b
	}
	b = strconv.AppendInt(b, s, 10)
	if f > 0 {
		b = append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return append(b, 's')
}
