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

// TestOutcomeTopicIsNeverSerial: a serial topic is not named for outcomes, and one that is named does
// not become serial: with one code, and the way out.
func TestOutcomeTopicIsNeverSerial(t *testing.T) {
	for err, says := range map[error]string{timer.ErrOutcomeTopic: "not serial", timer.ErrNamedSerial: "name another there first"} {
		if p := Fault(err); p.Status != 422 || p.Code != UnknownOutcomeTopic || !strings.Contains(p.Detail, says) {
			t.Errorf("%v: %+v", err, p)
		}
	}
}
