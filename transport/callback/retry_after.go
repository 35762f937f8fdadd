package callback

import (
	"strconv"
	"strings"
	"time"
)

const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Hour
)

// The three forms of an HTTP date (RFC 9110, 5.6.7).
var httpDates = []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}

// parseRetryAfter reads seconds or an HTTP date, clamped to 1 s – 1 h. A value that it cannot read
// is no wish at all: 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > 64 {
		return 0
	}
	if isDigits(value) {
		seconds, err := strconv.ParseUint(value, 10, 64)
		// Overflow is a long wait too.
		if err != nil || seconds > uint64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return clampRetryAfter(time.Duration(seconds) * time.Second)
	}
	for _, layout := range httpDates {
		if t, err := time.Parse(layout, value); err == nil {
			return clampRetryAfter(t.Sub(now))
		}
	}
	return 0
}

func clampRetryAfter(d time.Duration) time.Duration {
	return min(max(d, minRetryAfter), maxRetryAfter)
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
