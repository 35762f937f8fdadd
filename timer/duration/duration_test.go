package duration

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "+0": 0, "0s": 0, "30d": 30 * day, "1w2d": 9 * day, "1d12h": 36 * time.Hour, "-1d": -day, "+2w": 14 * day, "0.5d": 12 * time.Hour,
		".5w": 84 * time.Hour, "1.d": day, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "1µs2μs3us": 6 * time.Microsecond, "5m1h": 65 * time.Minute,
		"106751d": 106751 * day, "9223372036854775807ns": math.MaxInt64,
	} {
		if got, err := Parse(text); got != want || err != nil {
			t.Errorf("%q gives %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "+", "1", "00", "d", ".d", "1.2.3d", "1D", "1 d", "1y", "1mo", "1dd", "1hd", "--1d", "+-1d", "1d-1h", "1e3d", "1d ", "\x00d", "1_0d", "٣d", "-0", "-0s", "-0d", "-0.1ns", "-0h0m"} {
		if _, err := Parse(text); err == nil || errors.Is(err, ErrRange) || !strings.Contains(err.Error(), Units) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]time.Duration{
		"106752d": math.MaxInt64, "15251w": math.MaxInt64, "-99999999999999999999d": -math.MaxInt64, "106751d24h": math.MaxInt64, "9000000h1s": math.MaxInt64,
	} {
		if got, err := Parse(text); got != want || !errors.Is(err, ErrRange) {
			t.Errorf("%q gives %v, %v", text, got, err)
		}
	}
}

// FuzzParse: what Go takes means the same here, but for a zero with a minus, and a day is 24 hours
// wherever it stands.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1h30m", "-1.5h", "0", ".5s", "1w2d", "1d12h", "9223372036854775807ns", "1µs", "1dh", "1.d", "99999999999d", "1h1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Parse(s)
		if want, fault := time.ParseDuration(s); fault == nil && want != math.MinInt64 && !(want == 0 && s[0] == '-') && (err != nil || got != want) {
			t.Fatalf("%q gives %v, %v; Go reads %v", s, got, err, want)
		}
		if !strings.ContainsAny(s, "dw") {
			if _, fault := time.ParseDuration(s); fault != nil && err == nil {
				t.Fatalf("%q gives %v; Go does not take it", s, got)
			}
			return
		}
		if err != nil {
			return
		}
		if _, err := Parse(s + "1h"); err != nil && !errors.Is(err, ErrRange) {
			t.Fatalf("%q is taken, and not with an hour more: %v", s, err)
		}
	})
}
