//go:build !race

package shard

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"carillon/test/testkit/growth"
	"carillon/timer"
)

// BenchmarkLongestTurn measures the CPU time of the longest turn of a shard with a million timers
// while its topic is changed or dropped. With ready set, all timers are due and wait in the
// leader's queues behind the paused topic. Otherwise they are due much later.
func BenchmarkLongestTurn(b *testing.B) {
	const timers = 1_000_000
	serial := func(t *timer.Topic) { t.Policy.Serial = true }
	elsewhere := func(t *timer.Topic) { t.Policy.Callback.URL = "http://elsewhere/" }
	for _, ready := range []bool{false, true} {
		for _, c := range []struct {
			name          string
			before, after func(*timer.Topic)
		}{
			{"another receiver", nil, elsewhere},
			{"limited", nil, func(t *timer.Topic) { t.Policy.Concurrency, t.Policy.Rate = 10, timer.Rate{PerSecond: 10, Burst: 1} }},
			{"serial", nil, serial},
			{"serial no more", serial, func(*timer.Topic) {}},
			{"another receiver of a serial topic", serial, func(t *timer.Topic) { serial(t); elsewhere(t) }},
			{"dropped", nil, nil},
			{"serial dropped", serial, nil},
		} {
			b.Run(fmt.Sprintf("ready=%v/%s", ready, c.name), func(b *testing.B) {
				var longest time.Duration
				for b.Loop() {
					b.StopTimer()
					r := crowd(b, timers, c.before)
					if ready {
						r.step(time.Minute)
						r.runIdle()
						if n := r.queued(1); n < timers {
							b.Fatalf("%d are ready", n)
						}
					}
					b.StartTimer()
					longest = max(longest, r.longestTurn(c.after))
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-turn")
			})
		}
	}
}

// TestLongestTurnOfAMillion: what a shard keeps of a million due timers is in pieces, so that no turn
// copies all of it. Others' timers would wait as long.
func TestLongestTurnOfAMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	longest := time.Hour
	for try := 0; try < 3 && longest > growth.MaxTurn; try++ {
		r := crowd(t, 1_000_000, nil)
		r.step(time.Minute)
		due := r.longestTurn(func(*timer.Topic) {})
		if n := r.queued(1); n < 1_000_000 {
			t.Fatalf("%d are ready", n)
		}
		longest = min(longest, max(due, r.longestTurn(func(t *timer.Topic) { t.Policy.Callback.URL = "http://elsewhere/" })))
	}
	if longest > growth.MaxTurn {
		t.Errorf("the longest turn takes %s", longest)
	}
}

// crowd makes a shard with the given number of timers of a paused topic, due in a minute.
func crowd(b testing.TB, timers int, change func(*timer.Topic)) *hostHarness {
	r := newHostHarness(b, func(c *Config) { c.MaxQueued = 200_000 })
	r.topic(1, func(t *timer.Topic) {
		if t.Paused = true; change != nil {
			change(t)
		}
	})
	r.topicsChanged()
	due := r.clock.wallMs + 60_000
	for i := range timers {
		if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: due}}); err != nil {
			b.Fatal(err)
		}
		if i%10_000 == 9_999 {
			r.runIdle()
		}
	}
	r.runIdle()
	return r
}

// longestTurn changes the topic, or drops it if change is nil, and runs the shard until it is idle.
func (h *hostHarness) longestTurn(change func(*timer.Topic)) (longest time.Duration) {
	h.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	settle := func() {
		for n := 0; h.busy(); n++ {
			begun := growth.ThreadTime(h.t)
			h.host.workers[0].turn()
			longest = max(longest, growth.ThreadTime(h.t)-begun)
			if _, h.failed = h.host.stream.Step(); h.failed != nil || n > 100_000 {
				h.t.Fatalf("the host does not come to rest: %v", h.failed)
			}
		}
	}
	if change != nil {
		h.topic(1, func(t *timer.Topic) { t.Paused = true; change(t) })
		h.host.TopicsChanged()
		settle()
		return longest
	}
	for from := timer.Handle(0); ; {
		p, err := h.submit(1, timer.Command{Kind: timer.CloseTopic, Topic: 1, Force: true, Work: 1 << 16, From: from})
		if err != nil {
			h.t.Fatal(err)
		}
		settle()
		if !p.answered() || p.op.err != nil {
			h.t.Fatalf("the drop was not answered: %v", p.op.err)
		}
		if from = p.op.result.Handle; from == 0 {
			return longest
		}
	}
}
