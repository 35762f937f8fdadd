package sim

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// TestAskedForInABackoff: a client asks for the next attempt of a timer whose backoff lasts. That
// attempt keeps no backoff.
func TestAskedForInABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Run(Config{Seed: 1, Settle: synctest.Wait, Change: func(p *Plan) {
			representative(p)
			p.sickThink = 2 * time.Second // its breaker stays shut
		}, script: func(w *World) {
			w.lay()
			w.found()
			w.sicken()
			last := w.checker.attempts.last
			var before *call
			var key timerKey
			if !w.passUntil(time.Minute, func() bool {
				now := epochMs + w.now.Milliseconds()
				for k, c := range last {
					waits := c.delivery.Job.Topic == sickTopic && c.nextMs > now+50 && c.endedMs < now-10
					if waits && (before == nil || c.delivery.Job.ID < before.delivery.Job.ID) {
						key, before = k, c
					}
				}
				return before != nil
			}) {
				t.Fatal("no timer waits for its retry")
			}
			id := before.delivery.Job.ID
			w.operator(w.nodes[0], func(ctx context.Context, n *node) error {
				w.checker.features.ids[idKey{sickTopic, id}].askedMs = math.MaxInt64
				cmd := &timer.Command{Kind: timer.Fire, Topic: sickTopic, ID: id}
				_, err := n.router.Do(ctx, w.place(sickTopic, id), cmd, true)
				return err
			}, func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
			if !w.passUntil(time.Minute, func() bool { return last[key] != before }) || last[key].letGoMs >= before.nextMs {
				t.Error("it is not called before its backoff is over")
			}
		}})
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
}
