package e2e

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// ended is an entry of a topic's history.
type ended struct {
	timer
	Log []struct{ Attempt int } `json:"attempt_log"`
}

// history reads all pages of a topic's history. It returns the entries by id, and their number.
func (c *client) history(t testing.TB, topic, query string) (list map[string]ended, entries int) {
	t.Helper()
	list = map[string]ended{}
	for cursor := ""; ; {
		var page struct {
			Entries []ended
			Next    string `json:"next_cursor"`
		}
		c.must(t, 200, "GET", "/v1/topics/"+topic+"/history?limit=40"+query+cursor, "").decode(t, &page)
		for _, e := range page.Entries {
			list[e.ID] = e
		}
		if entries += len(page.Entries); page.Next == "" {
			return list, entries
		}
		cursor = "&cursor=" + page.Next
	}
}

// TestClusterHistoryOfAWipedNode: a wiped node receives snapshots, which contain no history. When
// it leads, all nodes still return each entry once, also after another node is lost.
func TestClusterHistoryOfAWipedNode(t *testing.T) {
	t.Parallel()
	needTime(t)
	const n = 100
	rcv := newReceiver(t, failFirst)
	c := newCluster(t, 3)
	c.eventually(t, "PUT", "/v1/topics/past", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":10000},
		"retry":{"min_backoff":"10ms","max_backoff":"10ms","jitter":0}}`, rcv.url()))
	for i := range n {
		c.eventually(t, "POST", "/v1/topics/past/timers", fmt.Sprintf(`{"id":"t%d","at_ms":1000000000000}`, i))
	}
	check := func(when string) {
		t.Helper()
		for _, m := range c.running() {
			var list map[string]ended
			var entries int
			// A shard may be without a leader: that is an error, not a gap.
			if !holdsWithinBy(lookEvery, patience, func() bool {
				if m.client.do("GET", "/v1/topics/past/history?limit=1", "").status != 200 {
					return false
				}
				list, entries = m.client.history(t, "past", "")
				return len(list) == n
			}) || entries != n {
				t.Errorf("%s, %s: %d entries of %d timers, want %d", when, m.name, entries, len(list), n)
			}
			short := 0
			for _, e := range list {
				if e.State != "done" || len(e.Log) != 2 || e.Log[0].Attempt != 1 {
					short++
				}
			}
			if short > 0 {
				t.Errorf("%s, %s: %d entries without all their attempts", when, m.name, short)
			}
		}
	}
	check("before")
	// The other nodes' histories are on disk and survive the loss.
	lost, other := c.all()[2], c.all()[1]
	lost.process().kill()
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	c.start(t, lost)
	c.awaitHealthy(t)
	c.awaitView(t, settleLimit, "the wiped node leads shards", func(v view) bool { return v.Healthy && len(v.ledBy(lost.name)) > 0 })
	check("the wiped node leads some")
	c.awaitSettled(t, c.all(), 3) // before that the wiped node has no vote
	other.process().kill()
	for i := range n { // until each shard has a leader
		c.eventually(t, "POST", "/v1/topics/after/timers", farTimer(fmt.Sprint("t", i), time.Now()))
	}
	check("one of those that have it is gone")
	if got, _ := lost.client.history(t, "past", "&id=t7&state=done"); len(got) != 1 || got["t7"].Attempts != 2 {
		t.Errorf("by id and state: %+v", got)
	}
}

// failFirst fails the first call of each timer.
func failFirst(w http.ResponseWriter, _ *http.Request, n int) {
	if n == 1 {
		w.WriteHeader(500)
	}
}
