package sim

import (
	"fmt"
	"time"

	"carillon/timer"
)

// mergingTopic has few ids and long calls, so that adds with merge rules, cancels and running calls
// meet.
const mergingTopic timer.TopicID = 15

// merging is the workload of that topic. It draws from a stream of its own and is on in half of the
// runs.
type merging struct {
	crew
	ids   int // number of ids in use
	slow  time.Duration
	fails float64
}

// mergeIDFor is how long an id is used.
const mergeIDFor = 5 * time.Second

func (w *World) drawMerging() *merging {
	c := newChance(w.cfg.Seed, 21)
	return &merging{
		crew: crew{w: w, chance: c, on: c.IntN(2) == 0, think: c.between(20*time.Millisecond, 200*time.Millisecond)},
		ids:  1 + c.IntN(4), slow: c.between(100*time.Millisecond, 1500*time.Millisecond), fails: 0.5 * c.Float64(),
	}
}

// begin starts its clients.
func (m *merging) begin() {
	if m.on {
		m.employ(4000, 3, m.pick)
	}
}

// pick draws an operation, usually an add with a merge rule.
func (m *merging) pick() *operation {
	w, r := m.w, m.chance
	o := &operation{number: w.checker.nextOp(), topic: mergingTopic, astray: r.IntN(8) == 0}
	o.id = fmt.Sprintf("m%d.%d", w.now/mergeIDFor, r.IntN(m.ids))
	switch n := r.IntN(12); {
	case n < 2:
		o.cmd = &timer.Command{Kind: timer.Cancel}
	case n < 10:
		due := r.between(-50*time.Millisecond, 400*time.Millisecond)
		if r.IntN(3) == 0 {
			due = r.between(0, 4*time.Second)
		}
		o.write = &write{op: o.number, dueMs: epochMs + (w.now + due).Milliseconds(), payload: fmt.Sprintf(`"%s/%d"`, o.id, o.number)}
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number, Merge: [...]timer.Merge{timer.MergeKeep, timer.MergeReplace, timer.MergeDebounce, timer.MergeDebounce}[r.IntN(4)]}
		if o.cmd.Merge == timer.MergeDebounce && r.IntN(3) > 0 {
			o.write.maxWaitMs = 1 + r.Int64N(2000)
			o.cmd.MaxWaitMs, o.write.capped = o.write.maxWaitMs, true
		}
	}
	w.complete(o)
	return o
}

// answers draws the receiver's answer to a call.
func (m *merging) answers() (took time.Duration, status int) {
	if m.w.calm {
		return m.chance.between(time.Millisecond, 20*time.Millisecond), 200
	}
	took, status = m.chance.between(time.Millisecond, m.slow), 200
	if m.chance.hit(m.fails) {
		status = 503
	}
	return took, status
}
