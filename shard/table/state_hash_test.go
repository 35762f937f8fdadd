package table

import (
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

// closeTopics closes count topics, starting at 2.
func closeTopics(t testing.TB, table *Table, count int) {
	t.Helper()
	for from := 0; from < count; from += 100 {
		var b Batch
		b.Reset(benchNow, 1, uint64(from))
		for i := range min(100, count-from) {
			b.Command(&timer.Command{Kind: timer.CloseTopic, Topic: timer.TopicID(2 + from + i)})
		}
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHashTakesTheSameTimeWhateverIsClosed: the hash, which is computed for every entry, does not
// visit the topics closed in the last hour.
func TestHashTakesTheSameTimeWhateverIsClosed(t *testing.T) {
	const closed, entries = 20_000, 5_000
	sum := uint64(0)
	apply := func(table *Table) time.Duration {
		var b Batch
		begin := testkit.CPUTime(t)
		for n := range entries {
			b.Reset(benchNow, 1, uint64(n))
			b.Tick()
			if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
				t.Fatal(err)
			}
			sum += table.Hash()
		}
		return testkit.CPUTime(t) - begin
	}
	none, some := New(1, benchNow), New(1, benchNow)
	closeTopics(t, some, closed)
	few, many := apply(none), apply(some)
	t.Logf("%d entries: %v with no topic closed, %v with %d", entries, few, many, closed)
	if sum == 0 || many > 2*few+20*time.Millisecond {
		t.Errorf("%d entries take %v with no topic closed, %v with %d", entries, few, many, closed)
	}
}

// TestClosedTopicsAreInTheHash: closing, reopening or forgetting a topic changes the hash,
// regardless of other closed topics.
func TestClosedTopicsAreInTheHash(t *testing.T) {
	table := New(1, benchNow)
	closeTopics(t, table, 3)
	one := func(nowMs int64, c *timer.Command) uint64 {
		var b Batch
		b.Reset(nowMs, 1, 1)
		if c != nil {
			b.Command(c)
		}
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := table.Audit(false); err != nil {
			t.Fatal(err)
		}
		return table.Hash()
	}
	three := one(benchNow, nil)
	if two := one(benchNow, &timer.Command{Kind: timer.OpenTopic, Topic: 3}); two == three {
		t.Error("a topic that is open again is still in the hash")
	}
	if again := one(benchNow, &timer.Command{Kind: timer.CloseTopic, Topic: 3}); again != three {
		t.Error("the same topics closed at the same time have another hash")
	}
	if later := one(benchNow+tombstoneKeepMs+1, nil); len(table.tombs) != 0 || table.closedTopics.sum != 0 || later == three {
		t.Errorf("%d topics are still closed after an hour, sum %x", len(table.tombs), table.closedTopics.sum)
	}
}
