package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// CopySize returns the Size of a timer in the table without copying it.
func (t *Table) CopySize(h timer.Handle, payload bool) int {
	s := t.get(h)
	if s == nil {
		return 0
	}
	v := t.view(s.ref)
	n := timer.BaseSize + len(v.id) + len(v.rest)
	if !payload {
		n -= len(encoding.PayloadIn(v.rest))
	}
	if v.target != 0 {
		n += len(t.targets.at(v.target).bytes(&t.blobs))
	}
	return n
}
