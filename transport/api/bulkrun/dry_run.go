package bulkrun

import (
	"cmp"
	"sync"

	"carillon/timer"
	"carillon/timer/bulk"
)

// DryRun counts the timers that a bulk change would change, and changes none.
type DryRun struct {
	mu      sync.Mutex
	Changed int64
	first   timer.Ref // of those: the one that is due first
}

// plan judges as p does. Where p would send a command, it counts.
func (d *DryRun) plan(p bulk.Plan) bulk.Plan {
	return func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		_, decision := p(m)
		if decision != bulk.Change {
			return nil, decision
		}
		if m.Leased {
			return nil, bulk.Skip
		}
		d.Count(m)
		return nil, bulk.Leave
	}
}

func (d *DryRun) Count(m *timer.Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Changed++; d.Changed == 1 || cmp.Or(cmp.Compare(m.DueMs, d.first.DueMs), cmp.Compare(m.ID, d.first.ID)) < 0 {
		d.first = *m
	}
}
