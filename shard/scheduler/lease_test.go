package scheduler

import (
	"testing"
	"time"
)

// TestPipelineFollowsTheShortestCommit: a node that is busy for a while has no more leases on their
// way, one whose commits always take long has.
func TestPipelineFollowsTheShortestCommit(t *testing.T) {
	var p pipeline
	most := func() (n int) {
		for p.proposed = 0; !p.full(); p.proposed++ {
		}
		return p.proposed
	}
	if n := most(); n != leastProposed {
		t.Errorf("%d leases at first", n)
	}
	now := time.Hour
	commit := func(took time.Duration) int {
		now += time.Second
		p.committed(took, now)
		return most()
	}
	if n := commit(0); n != leastProposed {
		t.Errorf("%d leases where commits take no time", n)
	}
	for range 15 {
		if n := commit(50 * time.Millisecond); n != leastProposed {
			t.Fatalf("%d leases while the node is busy", n)
		}
	}
	for range 15 {
		commit(50 * time.Millisecond)
	}
	if n, want := most(), leastProposed+50*leasesInMs; n != want {
		t.Errorf("%d leases where commits take 50 ms, want %d", n, want)
	}
	if n, want := commit(2*time.Millisecond), leastProposed+2*leasesInMs; n != want {
		t.Errorf("%d leases after a short commit, want %d", n, want)
	}
}
