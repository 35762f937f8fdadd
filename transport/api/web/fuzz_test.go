package web

import (
	"bytes"
	"math"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"carillon/timer/duration"
)

// Times against the standard library, where it can say.
func FuzzTime(f *testing.F) {
	for _, s := range []string{"2026-06-01T12:00:00Z", "2026-06-01T12:00:00.1234567+05:30", "2024-02-29T23:59:59.999999999-00:01", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59.9999Z", "0000-02-29T00:00:00Z",
		"1h30m", "1.5s", "-1ms", "0", "+.5h", "1h1h1ns", "9223372036854775807ns", "2562047h47m16.854775807s", "99999999999999999999h", "1µs1μs1us", "1.00000000000000000000001h", "s", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := ParseInstant(s)
		upper := strings.ToUpper(s)
		want, err := time.Parse(time.RFC3339Nano, upper)
		// The library takes a comma for the point, one digit for the hour, and offsets beyond a
		// day; it takes only nine digits as they are.
		lenient := strings.Contains(s, ",") || len(s) > 12 && s[12] == ':'
		if err == nil && !ok && !lenient && !oddOffset(s) {
			t.Fatalf("refused %q", s)
		}
		if ok && err != nil {
			t.Fatalf("took %q: %v", s, err)
		}
		if ok {
			floor := want.UnixMilli()
			if ms != floor && ms != floor+1 || want.Nanosecond()%nsPerMs != 0 && ms == floor {
				t.Fatalf("%q: %d, want %v", s, ms, want)
			}
			if y := want.UTC().Year(); y >= 1 && y <= 9999 && time.UnixMilli(ms).UTC().Year() <= 9999 {
				if shown := string(AppendInstant(nil, ms)); shown != time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") {
					t.Fatalf("%d is shown as %s", ms, shown)
				}
			}
		}

		span, ok := ParseSpan(s)
		d, err := duration.Parse(s)
		if err == nil && !ok {
			t.Fatalf("refused duration %q", s)
		}
		if ok && err != nil && span != math.MaxInt64 && span != -math.MaxInt64 && math.Abs(float64(span)) < math.MaxInt64/nsPerMs {
			t.Fatalf("took duration %q as %d ms: %v", s, span, err)
		}
		if ok && err == nil {
			// Ours rounds away from zero: never early, never a millisecond late.
			if span < 0 != (d < 0) && d != 0 && span != 0 {
				t.Fatalf("%q: %d, want %v", s, span, d)
			}
			diff := time.Duration(span)*time.Millisecond - d
			if d >= 0 && (diff < 0 || diff > time.Millisecond+time.Microsecond) && d < math.MaxInt64-2*time.Millisecond {
				t.Fatalf("%q: %d ms, want %v", s, span, d)
			}
			// A longer one is held at the bound.
			if span > 0 && span <= int64(math.MaxInt64/time.Millisecond) {
				if back, ok := ParseSpan(string(AppendSpan(nil, span))); !ok || back != span {
					t.Fatalf("%d ms is shown as %s", span, AppendSpan(nil, span))
				}
			}
		}
	})
}

var hoursAndMinutes = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

// oddOffset recognises a zone that the library takes and the RFC does not have.
func oddOffset(s string) bool {
	i := strings.LastIndexAny(s, "+-")
	if i < len("2006-01-02T15:04:05") {
		return false
	}
	return !hoursAndMinutes.MatchString(s[i+1:])
}

// Parameters are read as net/url reads them, or refused; none is there twice but a label.
func FuzzQuery(f *testing.F) {
	takes := []string{"limit", "cursor", "label", "state"}
	for _, s := range []string{"", "limit=10&cursor=abc", "label=a&label=b", "state=%64one", "limit=1&limit=2", "limit=+%2B%20", "x=1", "&", "limit", "limit=%zz", "limit=%ff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		q := ParseQuery(raw, takes)
		p := q.Problem()
		if p != nil {
			if p.Status != 400 {
				t.Fatal(p)
			}
			return
		}
		if bytes.ContainsRune(raw, ';') {
			return // the library refuses it, to us it is a letter
		}
		want, err := url.ParseQuery(string(raw))
		if err != nil {
			t.Fatalf("%q was read: %v", raw, err)
		}
		count := 0
		for _, name := range takes {
			values := want[name]
			count += len(values)
			if got, ok := q.Value(name); ok != (len(values) > 0) || ok && got != values[0] || len(values) > 1 && name != "label" {
				t.Fatalf("%q: %s is %q, want %q", raw, name, got, values)
			}
		}
		if count != len(q.params) {
			t.Fatalf("%q: %d parameters, want %d", raw, len(q.params), count)
		}
	})
}
