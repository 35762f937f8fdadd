package metrics

import (
	"fmt"
	"testing"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// BenchmarkBusiestOf60000: a scrape while timers of 60,000 topics wait.
func BenchmarkBusiestOf60000(b *testing.B) {
	state := ring.NewState(nil, nil)
	p := timer.DefaultPolicy()
	activity := shard.Activity{Topics: map[timer.TopicID]*shard.TopicActivity{}}
	for i := range 60_000 {
		c := ring.Command{Verb: ring.Ensure, Name: fmt.Sprint("topic-", i), Policy: &p}
		if _, err := state.Apply(1, c.Encode()); err != nil {
			b.Fatal(err)
		}
		activity.Topics[timer.TopicID(i+1)] = &shard.TopicActivity{Overdue: int64(i % 100)}
	}
	topics := NewTopics(Sources{}, ShownTopics)
	for b.Loop() {
		if shown := topics.choose(state, &activity, time.Now()); len(shown) != ShownTopics {
			b.Fatal(len(shown))
		}
	}
}
