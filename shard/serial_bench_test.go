package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/timer"
)

// BenchmarkInOrder fires timers that are due at the same instant, from the wheel to the applied
// outcome: unordered, each with its own key, and all with one key. The cost per timer must grow
// with their number by no more than a logarithm.
func BenchmarkInOrder(b *testing.B) {
	for _, timers := range []int{1_000, 10_000, 100_000} {
		for name, c := range map[string]struct {
			serial bool
			id     string
		}{"free": {false, "%d"}, "keys": {true, "%d"}, "key": {true, "{k}%d"}} {
			b.Run(fmt.Sprintf("%s/%d", name, timers), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					r := newHostHarness(b, func(c *Config) { c.MaxQueued = 200_000 })
					r.topic(1, func(p *timer.Topic) { p.Policy.Serial = c.serial })
					r.topicsChanged()
					due := r.clock.wallMs + 60_000
					for i := range timers {
						if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf(c.id, i), Spec: &timer.Spec{DueMs: due}}); err != nil {
							b.Fatal(err)
						}
						if i%1000 == 999 {
							r.runIdle()
						}
					}
					r.runIdle()
					r.calls.auto = 200
					r.step(60 * time.Second)
					b.StartTimer()
					for r.table().Counts(1).Done < int64(timers) {
						r.turn()
						if !r.busy() {
							r.step(time.Millisecond)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(timers), "ns/timer")
			})
		}
	}
}
