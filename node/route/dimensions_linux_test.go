package route

import (
	"testing"
	"time"

	"carillon/node/task"
	"carillon/test/testkit/growth"
)

// TestManyPullers: a timer that becomes ready, a consumer that comes and one that goes cost about
// the same, however many wait.
func TestManyPullers(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "pullers", N: maxWaiters / 8, Longest: func(t testing.TB, n int) time.Duration {
		begin := time.Now()
		p := newPullWaiters(task.NewGoroutines(func() time.Duration { return time.Since(begin) }))
		var waiting []*waiter
		for i := range n - 1 {
			waiting = append(waiting, p.join(1, 1, time.Duration(i), 0))
		}
		var came *waiter
		steps := []func(){
			func() { p.notify(1, 1, false) },
			func() { came = p.join(1, 1, time.Hour, 0) },
			func() { p.leave(waiting[n/2]) },
			func() { p.leave(came) },
			func() { p.those(func(t *topicWaiters) bool { return t.wanted > 0 }) },
		}
		return growth.LongestStep(t, func() bool {
			steps[0]()
			steps = steps[1:]
			return len(steps) > 0
		}, func() {})
	}})
}
