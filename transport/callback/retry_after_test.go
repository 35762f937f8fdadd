package callback

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	f := func(value string, want time.Duration) {
		t.Helper()
		if got := parseRetryAfter(value, noon); got != want {
			t.Errorf("parseRetryAfter(%q) = %v, want %v", value, got, want)
		}
	}
	f("", 0)
	f("0", time.Second)
	f("1", time.Second)
	f(" 30 ", 30*time.Second)
	f("3600", time.Hour)
	f("3601", time.Hour)
	f("99999999999999999999999999", time.Hour)
	f("-1", 0)
	f("+5", 0)
	f("1.5", 0)
	f("soon", 0)
	f("Fri, 02 Jan 2026 12:00:45 GMT", 45*time.Second)
	f("Friday, 02-Jan-26 12:00:45 GMT", 45*time.Second)
	f("Fri Jan  2 12:00:45 2026", 45*time.Second)
	f("Fri, 02 Jan 2026 11:00:00 GMT", time.Second)
	f("Sat, 03 Jan 2026 12:00:00 GMT", time.Hour)
	f("Fri, 32 Jan 2026 12:00:00 GMT", 0)
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "1e9", "Fri, 02 Jan 2026 12:00:45 GMT", "Friday, 02-Jan-26 12:00:45 GMT", "Fri Jan  2 12:00:45 2026"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if d := parseRetryAfter(value, noon); d != 0 && (d < minRetryAfter || d > maxRetryAfter) {
			t.Fatalf("parseRetryAfter(%q) = %v", value, d)
		}
	})
}
