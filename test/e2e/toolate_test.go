package e2e

import (
	"testing"
	"time"
)

// TestAnsweredTooLate: a call is excused only if the node gave it up after the whole timeout and
// before the receiver answered.
func TestAnsweredTooLate(t *testing.T) {
	t.Parallel()
	given := attempt{Attempt: 2, StartedMs: 1000, EndedMs: 2000, Error: "timeout"}
	quick, refused, other := given, given, given
	quick.StartedMs, refused.Error, other.Attempt = 1500, "reset", 1
	late, inTime := arrival{attempt: 2, done: time.UnixMilli(2100)}, arrival{attempt: 2, done: time.UnixMilli(1900)}
	for name, c := range map[string]struct {
		list []attempt
		call arrival
		want bool
	}{
		"known late":           {[]attempt{{Attempt: 2, StartedMs: 1000, EndedMs: 3000, Error: "timeout"}}, late, true},
		"late, for its way":    {[]attempt{given}, arrival{attempt: 2, at: time.UnixMilli(1900), done: time.UnixMilli(1900)}, true},
		"late":                 {[]attempt{other, given}, late, true},
		"in time":              {[]attempt{given}, inTime, false},
		"given up too soon":    {[]attempt{quick}, late, false},
		"not for its time":     {[]attempt{refused}, late, false},
		"another attempt":      {[]attempt{other}, late, false},
		"attempts not known":   {nil, late, false},
		"answered as it ended": {[]attempt{given}, arrival{attempt: 2, done: time.UnixMilli(2000)}, true},
	} {
		if got := answeredTooLate(c.list, c.call, time.Second); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
