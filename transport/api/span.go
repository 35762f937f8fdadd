package api

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// parseSpan reads a Go duration (the language of time.ParseDuration) as milliseconds, rounded away from zero and held
// at the bounds of int64: "9000000h" is well formed though time.Duration cannot hold it, and deserves a better answer
// than "cannot be parsed".
func parseSpan(s string) (ms int64, ok bool) {
	negative := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if s == "0" {
		return 0, true
	}
	if s == "" {
		return 0, false
	}
	var totalNs uint64
	for s != "" {
		var ns uint64
		if ns, s, ok = cutSpan(s); !ok {
			return 0, false
		}
		if totalNs += ns; totalNs < ns {
			totalNs = math.MaxUint64
		}
	}
	ms = int64(totalNs / nsPerMs)
	if totalNs%nsPerMs != 0 {
		ms++
	}
	if totalNs == math.MaxUint64 {
		ms = math.MaxInt64
	}
	if negative {
		ms = -ms
	}
	return ms, true
}

// cutSpan takes one number and its unit off the front; MaxUint64 when they are too large.
func cutSpan(s string) (ns uint64, rest string, ok bool) {
	whole, n := leadingDigits(s)
	s = s[n:]
	var fraction uint64
	fractionDigits := 0
	if s != "" && s[0] == '.' {
		// 18 digits are finer than a nanosecond of the largest unit.
		var m int
		fraction, m = leadingDigits(s[1:min(len(s), 19)])
		fractionDigits = m
		s = strings.TrimLeft(s[1+m:], "0123456789")
	}
	if n == 0 && fractionDigits == 0 {
		return 0, "", false
	}
	unit, s, ok := cutUnit(s)
	if !ok {
		return 0, "", false
	}
	hi, lo := bits.Mul64(whole, unit)
	if hi != 0 || whole == math.MaxUint64 {
		return math.MaxUint64, s, true
	}
	scale := uint64(1)
	for range fractionDigits {
		scale *= 10
	}
	fhi, flo := bits.Mul64(fraction, unit)
	part, rem := bits.Div64(fhi, flo, scale)
	if rem != 0 {
		part++
	}
	if ns = lo + part; ns < lo {
		ns = math.MaxUint64
	}
	return ns, s, true
}

// leadingDigits reads a decimal number, held at MaxUint64, and how many digits it had.
func leadingDigits(s string) (v uint64, n int) {
	for ; n < len(s) && s[n] >= '0' && s[n] <= '9'; n++ {
		d := uint64(s[n] - '0')
		if v > (math.MaxUint64-d)/10 {
			v = math.MaxUint64
			continue
		}
		v = v*10 + d
	}
	return v, n
}

func cutUnit(s string) (ns uint64, rest string, ok bool) {
	i := 0
	for i < len(s) && s[i] != '.' && (s[i] < '0' || s[i] > '9') {
		i++
	}
	switch s[:i] {
	case "ns":
		ns = 1
	case "us", "µs", "μs": // U+00B5 and U+03BC
		ns = 1_000
	case "ms":
		ns = nsPerMs
	case "s":
		ns = 1_000_000_000
	case "m":
		ns = 60_000_000_000
	case "h":
		ns = 3_600_000_000_000
	default:
		return 0, "", false
	}
	return ns, s[i:], true
}

// appendSpan writes milliseconds as the shortest Go duration: "30m", "72h", "1h30m", "1.5s", "250ms".
func appendSpan(b []byte, ms int64) []byte {
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
