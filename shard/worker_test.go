package shard

import "testing"

// TestTouchedBetweenTurns: work that a group gets between two turns is done in the next turn, as is
// work that it gets within a turn. The simulator's planned stops touched groups between turns, and
// those groups were never processed again.
func TestTouchedBetweenTurns(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	call := r.one()
	if n := r.host.StepDrain(); n != 1 {
		t.Fatalf("%d calls are in flight, want 1", n)
	}
	call.answer(200)
	r.settle()
	r.wantState("a", "done 1")
	if n := r.host.StepDrain(); n != 0 {
		t.Errorf("%d calls are in flight, want none", n)
	}
}
