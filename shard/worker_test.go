package shard

import "testing"

// TestTouchedBetweenTurns: a group that is given work between two turns has it done in the next, as
// one that is given it within a turn has. The simulator's planned stops looked between turns, and
// groups were never worked on again.
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
