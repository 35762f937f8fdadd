package shard

import (
	"testing"

	"carillon/internal/delivery"
)

type cancelledPermit struct {
	delivery.Permit
	cancelled int
}

func (p *cancelledPermit) Cancel() { p.cancelled++ }

// TestPermitOfAStoppedHost: a permit that is granted after the host has stopped is cancelled.
// Otherwise its slot would be lost for good.
func TestPermitOfAStoppedHost(t *testing.T) {
	r := newHostHarness(t, nil)
	g := r.host.group(1)
	r.host.Abandon()
	p := &cancelledPermit{}
	schedulerEnv{shardOf(g)}.Post(func(stopped bool) {
		if !stopped {
			t.Error("an event after the host has stopped is not told so")
		}
		p.Cancel()
	})
	if p.cancelled != 1 {
		t.Errorf("it was given back %d times", p.cancelled)
	}
}
