package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// TestRankOfACallThatIsTooLate: a call goes before a timer with a higher priority. That is a
// violation, unless its lease is over and so it is not sent.
func TestRankOfACallThatIsTooLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		script := func(w *World) {
			w.lay()
			w.found()
			w.pass(time.Second)
			n := w.leader(1)
			tbl := n.host.Table(1)
			ago := func(d time.Duration) int64 { return n.keeper.WallMs() - d.Milliseconds() }
			w.checker.ranked.reigns[place{1, n.host.Progress(1).Term}] = 0
			for i, id := range []string{"x", "y"} {
				cmd := &timer.Command{Kind: timer.Put, Topic: rankedTopic, ID: id, Spec: &timer.Spec{DueMs: ballastDueMs, Payload: []byte(`1`), PayloadKind: timer.JSONPayload}}
				n.host.Submit(1, cmd, true, func(timer.Result, error) {})
				n.wake(0)
				w.pass(time.Second)
				h, _ := tbl.Lookup(rankedTopic, id)
				d := tbl.Due(h)
				waiting := &rankedTimer{id: id, seq: d.Seq, priority: uint8(i), dueMs: ago(500 * time.Millisecond), at: w.now - 500*time.Millisecond, node: n.id, believed: n.believes(), rev: d.Rev}
				w.checker.ranked.lines[1] = append(w.checker.ranked.lines[1], waiting)
			}
			x, y := w.checker.ranked.lines[1][0], w.checker.ranked.lines[1][1]
			x.dueMs, x.at = y.dueMs, y.at
			c := &call{node: n, permit: &permit{asked: w.now}, delivery: scheduler.Delivery{Shard: 1, Deadline: n.keeper.Lease() + scheduler.StartWithin + callTimeout}}
			c.delivery.Job.Seq, c.delivery.Job.Attempts, c.delivery.Job.Fence = x.seq, 1, tbl.LastFence()
			if late {
				c.delivery.Deadline = n.keeper.Lease()
			}
			w.checker.ranked.mayStart(c, tbl)
		}
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
				representative(p)
				p.calm()
			}})
			if (r.Err == nil) != late {
				t.Errorf("late %v: %v", late, r.Err)
			}
		})
	}
}
