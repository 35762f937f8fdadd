package web

import (
	"strings"
	"testing"

	"carillon/timer"
)

// TestNamedTopicIsNotDeleted: who deletes a topic that pending timers name for their outcomes reads
// what force does to it, and nothing of changes of a policy.
func TestNamedTopicIsNotDeleted(t *testing.T) {
	for _, err := range []error{timer.InUseError{Naming: 1}, timer.InUseError{Naming: 2}, timer.ErrNamed} {
		p := Fault(err)
		if p.Status != 409 || p.Code != "in_use" || strings.Contains(p.Detail, "PATCH") ||
			!strings.HasSuffix(p.Detail, " in on_done or on_dead; ?force=true deletes it nevertheless, and their outcomes are not made") {
			t.Errorf("%v: %+v", err, p)
		}
	}
	if p := Fault(timer.InUseError{Timers: 2}); !strings.HasSuffix(p.Detail, "PATCH changes the given fields only; ?force=true does it nevertheless") {
		t.Errorf("%+v", p)
	}
}
