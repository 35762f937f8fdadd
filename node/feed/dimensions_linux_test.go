package feed

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/events"
	"carillon/test/testkit/growth"
	"carillon/transport/api/backend"
)

// TestManyListeners: events are reported on a shard's own goroutine. A thousand of them in one turn
// cost about the same, however many listen.
func TestManyListeners(t *testing.T) {
	const all = 64 + remoteSubscribers // of this node's and of others' clients
	growth.Check(t, growth.Dimension{Name: "event listeners", N: all / 8, Longest: func(t testing.TB, n int) time.Duration {
		f := newPair(t.(*testing.T)).there
		for i := range n {
			w := &backend.Watch{Topics: []string{"orders"}}
			if i%2 == 1 {
				w.Topics = []string{"none of these"}
			}
			f.add(f.open(w))
		}
		events := make([]*events.Event, 1000)
		for i := range events {
			events[i] = added(1, fmt.Sprint(i))
		}
		return growth.LongestStep(t, func() bool {
			for _, e := range events {
				emit(f, e)
			}
			return false
		}, func() {})
	}})
}
