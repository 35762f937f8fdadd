package timer

import "testing"

// TestAddThatMergesIsRepeatedLate: an add that would merge, and comes again when it is too late, is
// answered as the one that made the timer if that still waits.
func TestAddThatMergesIsRepeatedLate(t *testing.T) {
	const now = 10 * LateMs
	for _, c := range []struct {
		name    string
		content uint64
		want    Code
	}{{"the same", 7, Same}, {"another", 8, TooLate}} {
		add := &Command{Kind: Add, Merge: MergeReplace, NotLate: true, Content: c.content}
		if code := add.DecideAdd(&Former{State: Scheduled, Content: 7}, now-LateMs-1, now); code != c.want {
			t.Errorf("%s: %v, want %v", c.name, code, c.want)
		}
	}
}

// TestRescheduled: a new due time ends a pending retry, but where it is a shift.
func TestRescheduled(t *testing.T) {
	for _, c := range []struct {
		name                   string
		shift                  bool
		was, next, moved, want int64
	}{
		{"a pending retry", false, 100, 500, 300, 300},
		{"a shift with a pending retry", true, 100, 500, 300, 500},
		{"a shift beyond the pending retry", true, 100, 500, 700, 700},
		{"a shift to an earlier time, without a retry", true, 100, 100, 50, 50},
	} {
		if got := (&Command{Shift: c.shift}).Rescheduled(c.was, c.next, c.moved); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
