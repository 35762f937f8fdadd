package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// TestWhatIsProposedIsDecided: a leader could learn the outcome of a call only until it proposed
// something about its lease. While most disks hang the leader proposes, and nothing is applied.
func TestWhatIsProposedIsDecided(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		script := func(w *World) {
			w.lay()
			w.found()
			w.pass(time.Second)
			leader := w.leader(1)
			handle := timer.Handle(0)
			cmd := &timer.Command{Kind: timer.Put, Topic: ballastTopic, ID: "a", Spec: &timer.Spec{DueMs: ballastDueMs, Payload: []byte(`1`), PayloadKind: timer.JSONPayload}}
			leader.host.Submit(1, cmd, true, func(timer.Result, error) {})
			leader.wake(0)
			w.pass(time.Second)
			handle, _ = leader.host.Table(1).Lookup(ballastTopic, "a")
			from := w.now
			r := reach{leader: leader, since: from}
			for _, n := range w.others(leader) {
				if hangs {
					n.hungUntil = w.now + time.Minute
				}
			}
			cmd = &timer.Command{Kind: timer.Cancel, Topic: ballastTopic, ID: "a"}
			leader.host.Submit(1, cmd, true, func(timer.Result, error) {})
			leader.wake(0)
			for range 20 {
				w.pass(reachEach)
				r.longer = max(r.longer, leader.undecided(1)-r.since)
			}
			if over := leader.host.Table(1).Due(handle).State != timer.Scheduled; over == hangs {
				t.Errorf("disks stand still: %v, and it is applied: %v", hangs, over)
			}
			if short := r.longer < 100*time.Millisecond; short != hangs {
				t.Errorf("disks stand still: %v, and nothing was decided for %s", hangs, r.longer)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
				p.nodes, p.shards, p.replicas, p.early = 3, 2, 3, false
				p.calm()
			}})
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
}
