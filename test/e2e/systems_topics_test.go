package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pulledTimer has the fields of a pulled timer that tests read.
type pulledTimer struct {
	ID       string `json:"id"`
	Receipt  string `json:"receipt"`
	Fence    uint64 `json:"fence"`
	Attempt  int    `json:"attempt"`
	Priority int    `json:"priority"`
}

func pulled(t testing.TB, a answer) (list []pulledTimer) {
	t.Helper()
	var page struct{ Timers []pulledTimer }
	if a.status != 200 {
		t.Fatalf("pull: %d %s %v", a.status, a.body, a.err)
	}
	a.decode(t, &page)
	return page.Timers
}

// TestSystemBTopicDelayService covers an HTTP service with a queue per topic: pull (v1) and
// callback (v2); topics that appear on first use and go when idle; three days of history; unique
// ids; one consumer per range at a time; a breaker with three states; wheels for each topic on at
// least two machines, one of them the leader; 3,500 tasks in one instant.
func TestSystemBTopicDelayService(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	rcv := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.Header.Get("Carillon-Topic") == "breaker" && sick.Load() {
			w.WriteHeader(500)
		}
	})
	c := found(t, loopbackMembers(t, 3), "--topic-idle", "1s")
	one := c.all()[0].client
	// v2, on first use of the topic.
	a := c.ok(t, "POST", "/v1/topics/fresh/timers", fmt.Sprintf(`{"delay":"10ms","callback":{"url":%q}}`, rcv.url()))
	made := a.timer(t)
	rcv.arrived(t, "fresh", made.ID, 1)
	topic := func(name string) string { return string(one.must(t, 200, "GET", "/v1/topics/"+name, "").body) }
	if got := topic("fresh"); !strings.Contains(got, `"auto_created":true`) || !strings.Contains(got, `"history":"72h"`) {
		t.Errorf("a topic by first use: %s", got)
	}
	poll(t, patience, "what was consumed is in the history", func() bool {
		return strings.Contains(string(one.must(t, 200, "GET", "/v1/topics/fresh/history?id="+made.ID, "").body), `"state":"done"`)
	})
	again := c.ok(t, "POST", "/v1/topics/fresh/timers", fmt.Sprintf(`{"delay":"1h","callback":{"url":%q}}`, rcv.url())).timer(t)
	if made.ID == "" || made.ID == again.ID {
		t.Errorf("ids %q and %q", made.ID, again.ID)
	}
	one.must(t, 404, "POST", "/v1/topics/idle/pull", "") // a pull makes no topic

	// v1: one consumer per range at a time.
	c.ok(t, "PUT", "/v1/topics/pulled", `{"delivery":"pull","serial":true}`)
	for _, id := range []string{"{range-1}a", "{range-1}b", "{range-2}c"} {
		c.ok(t, "POST", "/v1/topics/pulled/timers", fmt.Sprintf(`{"id":%q,"at_ms":1000000000000}`, id))
	}
	var got []pulledTimer
	poll(t, patience, "the first of each range", func() bool {
		got = append(got, pulled(t, one.do("POST", "/v1/topics/pulled/pull", `{"max":10,"wait":"1s"}`))...)
		return len(got) >= 2
	})
	slices.SortFunc(got, func(a, b pulledTimer) int { return strings.Compare(a.ID, b.ID) })
	if len(got) != 2 || got[0].ID != "{range-1}a" || got[1].ID != "{range-2}c" {
		t.Fatalf("pulled %+v", got)
	}
	if rest := pulled(t, c.all()[1].client.do("POST", "/v1/topics/pulled/pull", `{"max":10,"wait":"100ms"}`)); len(rest) != 0 {
		t.Errorf("a second consumer got %+v", rest)
	}
	if s := claimed(t, c.ok(t, "POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q,%q]}`, got[0].Receipt, got[1].Receipt))); !slices.Equal(s, []int{200, 200}) {
		t.Errorf("acked: %v", s)
	}
	if next := pulled(t, one.do("POST", "/v1/topics/pulled/pull", `{"max":10,"wait":"10s"}`)); len(next) != 1 || next[0].ID != "{range-1}b" {
		t.Errorf("then %+v", next)
	}

	c.breakerOfThreeStates(t, rcv, &sick)

	// At least two machines hold each topic, and one of them leads.
	for _, s := range c.view(t).Shards {
		if len(s.Replicas) < 2 || !slices.Contains(s.Replicas, s.Leader) {
			t.Errorf("shard %d: %+v", s.Shard, s)
		}
	}
	c.instant(t, rcv, 3500)
	topic("fresh") // it has timers and history
}

// breakerOfThreeStates: the breaker opens, and due timers wait without losing attempts. Half-open,
// it probes the receiver. Then it closes.
func (c *cluster) breakerOfThreeStates(t *testing.T, rcv *receiver, sick *atomic.Bool) {
	t.Helper()
	sick.Store(true)
	c.ok(t, "PUT", "/v1/topics/breaker", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":2,"window":"10s","open":"1s","probes":2},
		"retry":{"min_backoff":"10ms","max_backoff":"10ms","jitter":0}}`, rcv.url()))
	c.ok(t, "POST", "/v1/topics/breaker/timers", `{"id":"{k}opens","delay_ms":0}`)
	series := fmt.Sprintf("carillon_breaker_state{destination=%q}", rcv.server.URL)
	state := func() string {
		worst := ""
		for _, m := range c.running() {
			worst = max(worst, m.process().gauge(t, series))
		}
		return worst
	}
	poll(t, patience, "the breaker is open", func() bool { return state() == "2" })
	c.ok(t, "POST", "/v1/topics/breaker/timers", `{"id":"{k}waits","delay_ms":0}`)
	sick.Store(false)
	one := c.running()[0].client
	settledAs(t, one, "breaker", "{k}opens", "done")
	if got := settledAs(t, one, "breaker", "{k}waits", "done"); got.Attempts > 2 {
		t.Errorf("behind the open breaker: %+v", got)
	}
	poll(t, patience, "the breaker is closed", func() bool { return state() == "0" })
}

// instant adds n timers that are due in one instant and bounds their lateness.
func (c *cluster) instant(t *testing.T, rcv *receiver, n int) {
	t.Helper()
	c.ok(t, "PUT", "/v1/topics/instant", fmt.Sprintf(`{"callback":{"url":%q}}`, rcv.url()))
	due := time.Now().Add(3 * time.Second).UnixMilli()
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"i%d","at_ms":%d}`, i, due)
	}
	for _, s := range c.running()[0].client.batch(t, "instant", ops) {
		if s != 201 {
			t.Fatalf("add: %d", s)
		}
	}
	told := max(time.Now().UnixMilli(), due)
	arrivals := func() (list []arrival) {
		return slices.DeleteFunc(rcv.arrivals(), func(a arrival) bool { return a.topic != "instant" })
	}
	poll(t, patience, "all of one instant have arrived", func() bool { return len(arrivals()) >= n })
	var late []time.Duration
	for _, a := range arrivals() {
		if a.early() {
			t.Errorf("%s came early", a.timer)
		}
		late = append(late, a.at.Sub(time.UnixMilli(told)))
	}
	s := spreadOf(late)
	direct := rcv.alone(t, n)
	t.Logf("%d in one instant, on three nodes of one machine: lateness %v; the tester alone makes as many calls in %v", n, s, direct)
	// Two seconds is the lateness of the replaced system; the rest is for a busy machine.
	if limit := 2*time.Second + 10*direct; s.p99 > limit {
		t.Errorf("%d in one instant are late by %v, more than %v", n, s, limit)
	}
}

// alone measures how long n calls of the tester itself take, 64 at a time: the machine's capacity
// at the moment.
func (r *receiver) alone(t *testing.T, n int) time.Duration {
	t.Helper()
	client := clientAt(r.server.URL, patience)
	defer client.http.CloseIdleConnections()
	begin := time.Now()
	var calls sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 64 {
		calls.Go(func() {
			for left.Add(-1) >= 0 {
				if a := client.do("POST", "/alone", `{}`); a.status != 200 {
					t.Errorf("a call of the tester's own: %d %v", a.status, a.err)
					return
				}
			}
		})
	}
	calls.Wait()
	return time.Since(begin)
}
