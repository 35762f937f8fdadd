package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Limits of catching up, generous for a busy machine; the test logs the measured figures.
const (
	catchUpLimit  = 20 * time.Second // until all timers are delivered
	newTimerLimit = time.Second      // p99 lateness of timers added meanwhile
	orderSlack    = 500 * time.Millisecond
)

// TestCatchUp lets timers come due while the node is down. They fire at once and roughly in the
// order of their due times. None fires twice, since none was in flight, and timers that are added
// meanwhile do not starve behind them.
func TestCatchUp(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	const n = 10_000 // with fewer timers their order cannot be told from chance
	rcv := newReceiver(t, nil)
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "outage", rcv.url(), "")
	book := newLedger()
	// Instead of waiting through an outage, the test pauses the topic, adds timers that are overdue
	// already, and kills the node before it resumes the topic.
	c.must(t, 200, "POST", "/v1/topics/outage/pause", "")
	first := time.Now().Add(-10 * time.Second).UnixMilli()
	ops := make([]string, n)
	for i := range ops {
		id, payload, due := fmt.Sprintf("o%d", i), strconv.Itoa(i), first+int64(i*7919%5000)
		ops[i] = fmt.Sprintf(`{"op":"add","id":%q,"at_ms":%d,"payload":%s}`, id, due, payload)
		book.wrote(book.add(id, 0), payload, due, answer{status: 201, sent: time.Now(), answered: time.Now()})
	}
	for i, status := range c.batch(t, "outage", ops) {
		if status != 201 {
			t.Fatalf("add %d: status %d", i, status)
		}
	}
	killed := crashNow(node, rcv)

	node = serve(t, dir)
	c.use(node)
	ready := time.Now()
	c.must(t, 200, "POST", "/v1/topics/outage/resume", "")
	addWhileCatchingUp(t, c, book)
	poll(t, catchUpLimit, "all overdue timers are delivered", func() bool { return rcv.answered() >= len(book.entries) })
	poll(t, readyLimit, "all are done", func() bool { return node.gauge(t, `carillon_timers{state="leased"}`) == "0" })

	v := &verdict{ledger: book, log: rcv.arrivals(), crashes: []crash{killed}}
	v.check(t)
	var last time.Time
	var fresh []time.Duration
	for _, a := range v.log {
		if a.timer[0] == 'n' {
			fresh = append(fresh, a.lateness())
		} else {
			last = a.at
		}
	}
	took, late := last.Sub(ready), spreadOf(fresh)
	overall, within := disorderOf(v.log, shardsOf(c.all(t, "outage")))
	t.Logf("%d overdue (%d duplicates): start to ready %v, the last %v after that, %.0f a second", n, v.duplicates,
		node.readyAfter, took, float64(n)/max(took, time.Millisecond).Seconds())
	t.Logf("%d added meanwhile: lateness %v; of pairs more than %v apart %.1f %% are out of order, within shards %.1f %%",
		len(fresh), late, orderSlack, 100*overall, 100*within)
	if late.p99 > newTimerLimit {
		t.Errorf("new timers starve behind the overdue ones: %v", late)
	}
	if within > 0.1 {
		t.Errorf("the overdue ones of a shard are out of order: %.1f %% of pairs", 100*within)
	}
}

// shardsOf maps timer ids to their shards, which are the first part of their uids.
func shardsOf(list []timer) map[string]string {
	out := map[string]string{}
	for _, tm := range list {
		shard, _, _ := strings.Cut(tm.UID, "-")
		out[tm.ID] = shard
	}
	return out
}

// addWhileCatchingUp adds two hundred timers due in 50 ms, one after the other.
func addWhileCatchingUp(t testing.TB, c *client, book *ledger) {
	t.Helper()
	for i := range 200 {
		id, payload := fmt.Sprintf("n%d", i), fmt.Sprintf(`"new %d"`, i)
		due := time.Now().UnixMilli() + 50
		e := book.add(id, 1)
		a := c.must(t, 201, "POST", "/v1/topics/outage/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, id, due, payload))
		book.wrote(e, payload, due, a)
	}
}

// disorderOf returns the share of pairs of overdue timers that arrived in the wrong order, among
// pairs that were due more than orderSlack apart: over all timers, and within shards. Shards work
// in parallel, so that only the order within a shard is checked.
func disorderOf(log []arrival, shardOf map[string]string) (overall, within float64) {
	var all []int64
	byShard := map[string][]int64{}
	for _, a := range log {
		if a.timer[0] == 'o' {
			all = append(all, a.dueMs)
			byShard[shardOf[a.timer]] = append(byShard[shardOf[a.timer]], a.dueMs)
		}
	}
	wrong, pairs := 0, 0
	for _, dues := range byShard {
		w, p := disordered(dues)
		wrong, pairs = wrong+w, pairs+p
	}
	w, p := disordered(all)
	return float64(w) / float64(max(p, 1)), float64(wrong) / float64(max(pairs, 1))
}

// disordered counts the pairs more than orderSlack apart, and those in the wrong order, at a spread
// of distances.
func disordered(dues []int64) (wrong, pairs int) {
	for i := range dues {
		j := (i + 1 + i*31%997) % len(dues)
		before, after := dues[min(i, j)], dues[max(i, j)]
		switch {
		case after > before+orderSlack.Milliseconds():
			pairs++
		case before > after+orderSlack.Milliseconds():
			pairs++
			wrong++
		}
	}
	return wrong, pairs
}
