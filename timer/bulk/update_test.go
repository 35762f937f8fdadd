package bulk

import (
	"testing"

	"carillon/timer"
)

// TestBulkSettlesOnce: each outcome of a command leads to the right counts, and a shift that may
// have taken effect is not repeated.
func TestBulkSettlesOnce(t *testing.T) {
	moved := func(version uint32, dueMs int64) *timer.Timer {
		return &timer.Timer{ID: "a", State: timer.Scheduled, Version: version, NextMs: dueMs, Spec: timer.Spec{DueMs: dueMs}}
	}
	for _, c := range []struct {
		name                      string
		lost                      bool // the first command has no answer
		code                      timer.Code
		now                       *timer.Timer // the timer as read after the version had changed
		again                     bool
		matched, changed, skipped int64
	}{
		{"done", false, timer.OK, nil, false, 1, 1, 0},
		{"a call runs", false, timer.InFlight, nil, false, 1, 0, 1},
		{"it has ended", false, timer.OverFired, nil, false, 0, 0, 0},
		{"changed by another", false, timer.VersionMismatch, moved(5, 3000), true, 0, 0, 0},
		{"changed by another, and not meant any more", false, timer.VersionMismatch, moved(5, 9000), false, 0, 0, 0},
		{"gone", false, timer.VersionMismatch, nil, false, 0, 0, 0},
		{"lost, then done", true, timer.OK, nil, false, 1, 1, 0},
		{"lost, and had been done", true, timer.VersionMismatch, moved(4, 2500), false, 1, 1, 0},
		{"lost, and who knows", true, timer.VersionMismatch, moved(5, 2500), false, 1, 0, 1},
	} {
		b := &Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled, ToMs: 5000}, Plan: Move{MoveShift, 500}.Each(1, 1<<40)}
		e := b.Begin(timer.Ref{ID: "a", Version: 3, DueMs: 2000, NextMs: 2000})
		if e == nil || e.Command.IfMatch != 3 || e.Command.Patch.Spec.DueMs != 2500 {
			t.Fatalf("%s: %+v", c.name, e)
		}
		if c.lost && !b.Take(e, &timer.Result{}, timer.ErrUnknown) {
			t.Errorf("%s: settled after no answer", c.name)
		}
		again := b.Take(e, &timer.Result{Code: c.code}, nil)
		if c.code == timer.VersionMismatch {
			if !again || e.Brief() {
				t.Errorf("%s: the timer is not asked for", c.name)
			}
			r := timer.Result{Code: c.code, Timer: c.now}
			if c.now == nil {
				r.Code = timer.NotFound
			}
			again = b.Take(e, &r, nil)
		}
		if again != c.again || b.Matched.Load() != c.matched || b.Changed.Load() != c.changed || b.Skipped.Load() != c.skipped {
			t.Errorf("%s: again: %v, %d matched, %d changed, %d skipped", c.name, again, b.Matched.Load(), b.Changed.Load(), b.Skipped.Load())
		}
	}
}

// TestMoves: a move goes by the due time, not by the time of the next attempt, and none makes a
// timer due earlier than a not-before has found it.
func TestMoves(t *testing.T) {
	const hour = 3_600_000
	for _, c := range []struct {
		name      string
		move      Move
		due, next int64
		want      int64 // 0: no command
		shift     bool
	}{
		{"shift", Move{MoveShift, hour}, 5 * hour, 5 * hour, 6 * hour, true},
		{"shift of a fired one", Move{MoveShift, hour}, 5 * hour, 1, 6 * hour, true},
		{"shift of one in backoff", Move{MoveShift, 24 * hour}, 5 * hour, 6 * hour, 29 * hour, true},
		{"shift beyond the horizon", Move{MoveShift, 100 * hour}, 5 * hour, 1, 0, true},
		{"not before", Move{MoveNotBefore, 7 * hour}, 5 * hour, 5 * hour, 7 * hour, true},
		{"not before, of a fired one that is due later", Move{MoveNotBefore, 2 * hour}, 5 * hour, 1, 5 * hour, true},
		{"not before the end of a backoff", Move{MoveNotBefore, 6 * hour}, 5 * hour, 6 * hour, 0, true},
		{"at", Move{MoveAt, 2 * hour}, 5 * hour, 1, 2 * hour, false},
		{"at that time already", Move{MoveAt, 2 * hour}, 2 * hour, 2 * hour, 0, false},
	} {
		cmd, _ := c.move.Each(1, 100*hour)(&timer.Ref{ID: "a", Seq: 7, Version: 3, DueMs: c.due, NextMs: c.next})
		switch {
		case (cmd == nil) != (c.want == 0):
			t.Errorf("%s: command %+v", c.name, cmd)
		case cmd != nil && (cmd.Patch.Spec.DueMs != c.want || cmd.Shift != c.shift || cmd.Seq != 7):
			t.Errorf("%s: due %d, shift %v, number %d", c.name, cmd.Patch.Spec.DueMs, cmd.Shift, cmd.Seq)
		}
	}
}

// TestBulkCancelOfOneThatIsGone: the id then names another timer, like the series beside which the
// one was redriven. That is cancelled only if the query selects it.
func TestBulkCancelOfOneThatIsGone(t *testing.T) {
	for _, c := range []struct {
		name    string
		lost    bool // the first command has no answer
		due     int64
		seq     uint64 // named by the next command; 0: there is none
		changed int64
	}{
		{"the other one is not meant", false, 9000, 0, 0},
		{"… after a command without an answer", true, 9000, 0, 1},
		{"the other one is meant", false, 3000, 2, 0},
	} {
		b := &Update{Query: timer.Query{Topic: 1, States: 1 << timer.Scheduled, ToMs: 5000}, Plan: CancelEach(1)}
		e := b.Begin(timer.Ref{ID: "a", Seq: 1, Version: 3, DueMs: 2000, NextMs: 2000})
		if c.lost {
			b.Take(e, &timer.Result{}, timer.ErrUnknown)
		}
		now := &timer.Timer{ID: "a", Seq: 2, State: timer.Scheduled, Version: 3, NextMs: c.due, Spec: timer.Spec{DueMs: c.due}}
		again := b.Take(e, &timer.Result{Code: timer.VersionMismatch, Timer: now}, nil)
		if again != (c.seq != 0) || again && e.Command.Seq != c.seq || b.Changed.Load() != c.changed {
			t.Errorf("%s: again: %v, %+v, %d changed", c.name, again, e.Command, b.Changed.Load())
		}
	}
}
