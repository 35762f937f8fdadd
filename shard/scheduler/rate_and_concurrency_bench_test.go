package scheduler

import (
	"testing"
	"time"

	"carillon/timer"
)

func BenchmarkLimit(b *testing.B) {
	l := NewLimits(nil)
	p := l.join(1, func() {})
	topic := &timer.Topic{Policy: timer.Policy{Concurrency: 10, Rate: timer.Rate{PerSecond: 1e9, Burst: 1000}}}
	now := time.Duration(0)
	for b.Loop() {
		now += time.Microsecond
		if ok, _ := p.acquire(topic, 0, 1, now); ok {
			p.limit.end(now, 0, true)
		}
	}
}
