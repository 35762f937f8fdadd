package api

import (
	"cmp"
	"sync"

	"carillon/timer"
	"carillon/timer/bulk"
)

// dryRun counts the timers that a bulk change would change, and changes none.
type dryRun struct {
	mu      sync.Mutex
	changed int64
	first   timer.Ref // of those: the one that is due first
}

// plan judges as p does. Where p would send a command, it counts.
func (d *dryRun) plan(p bulk.Plan) bulk.Plan {
	return func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		_, decision := p(m)
		if decision != bulk.Change {
			return nil, decision
		}
		if m.Leased {
			return nil, bulk.Skip
		}
		d.count(m)
		return nil, bulk.Leave
	}
}

func (d *dryRun) count(m *timer.Ref) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed++; d.changed == 1 || cmp.Or(cmp.Compare(m.DueMs, d.first.DueMs), cmp.Compare(m.ID, d.first.ID)) < 0 {
		d.first = *m
	}
}

// answer gives the counts that the change would have had.
func (d *dryRun) answer(rq *request, matched, skipped int64, skips *skipList) {
	o := object{b: rq.out()}
	o.integer("matched", matched)
	o.integer("changed", d.changed)
	o.integer("skipped", skipped)
	o.boolean("dry_run", true)
	if d.changed > 0 {
		o.str("first", d.first.ID)
	}
	skips.write(&o)
	rq.json(200, o.end())
}

// dry reports whether only a count is asked for. That is no change, and not one for the audit log.
func (rq *request) dry() (bool, *problem) {
	dry, p := rq.query.boolean("dry_run", false)
	rq.audited = rq.audited || dry
	return dry, p
}
