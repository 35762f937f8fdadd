package sim

import (
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/timer/bulk"
)

// TestManyBulkChangesWithoutAnEnd: a timer that dozens of unfinished bulk changes may have changed
// is judged quickly, for any final state.
func TestManyBulkChangesWithoutAnEnd(t *testing.T) {
	for _, test := range []struct {
		name    string
		dueMs   int64 // at the end, after two of the bulk changes
		version uint32
		wrong   bool
	}{
		{"two of them explain it", 1000 + 4 + 1<<20, 3, false},
		{"the same one twice would explain it", 1000 + 4 + 4, 3, true},
		{"none explains it", 1000 + 5, 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := &bulkID{id: "x"}
			b := &bulkChecker{ids: map[string]*bulkID{"x": n}, names: []string{"x"}, looked: true}
			do := func(o *bulkOp, ends bool) {
				o.called = b.tick()
				if n.note(o); ends {
					o.ended = b.tick()
					o.out.known = true
				}
			}
			do(&bulkOp{kind: timer.Add, dueMs: 1000, out: heard{code: timer.Created, there: true, version: 1}, outMs: 1000}, true)
			for i := range 50 {
				s := &sweep{number: uint64(i)}
				switch {
				case i == 2 || i == 20:
					s.move = bulk.Move{By: bulk.MoveShift, Ms: 1 << i}
				case i%2 == 0: // it selects nothing
					s.bulk.Query.FromMs = 1 << 40
				default: // it changes nothing once the timer is due later
					s.move = bulk.Move{By: bulk.MoveNotBefore, Ms: 900}
				}
				do(&bulkOp{sweep: s, number: s.number, must: true}, false)
			}
			do(&bulkOp{out: heard{there: true, version: test.version, state: timer.Scheduled}, outMs: test.dueMs}, true)
			err := b.check(time.Minute)
			if wrong := err != nil; wrong != test.wrong || wrong && strings.Contains(err.Error(), "undecided") {
				t.Errorf("%v", err)
			}
		})
	}
}
