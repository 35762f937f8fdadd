package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSystemDRMQ covers a message library over Redis and ZooKeeper: duplicates merge, keeping the
// first time or the later one; priorities; any fixed time; slots by a chosen key or by content; one
// consumer per key; two-phase consumption (prepare, commit, roll back on timeout); 16 attempts,
// then the dead queue.
func TestSystemDRMQ(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	c := newClient(serve(t, t.TempDir()))
	c.must(t, 201, "PUT", "/v1/topics/rmq", `{"delivery":"pull","lease":"2s","retry":{"min_backoff":"1ms","max_backoff":"1ms","jitter":0}}`)
	timers := "/v1/topics/rmq/timers"
	first := c.must(t, 201, "POST", timers, `{"id":"keep","delay":"1h","payload":1,"merge":"keep"}`).timer(t)
	if got := c.must(t, 200, "POST", timers, `{"id":"keep","delay":"2h","payload":2,"merge":"keep"}`).timer(t); got.DueMs != first.DueMs || string(got.Payload) != "1" {
		t.Errorf("keep: %+v", got)
	}
	c.must(t, 201, "POST", timers, `{"id":"later","delay":"1h","payload":1,"merge":"replace"}`)
	if got := c.must(t, 200, "POST", timers, `{"id":"later","at":"2031-02-03T04:05:06.789Z","payload":2,"merge":"replace"}`).timer(t); got.DueMs != 1927857906789 || string(got.Payload) != "2" {
		t.Errorf("replace: %+v", got)
	}

	// By content: equal adds are one timer.
	c.must(t, 201, "PUT", "/v1/topics/content", `{"delivery":"pull","dedup":"content","merge":"keep"}`)
	same := c.must(t, 201, "POST", "/v1/topics/content/timers", `{"delay":"1h","payload":{"a":1}}`).timer(t)
	if got := c.must(t, 200, "POST", "/v1/topics/content/timers", `{"delay":"2h","payload":{"a":1}}`).timer(t); got.ID != same.ID || got.DueMs != same.DueMs {
		t.Errorf("the same content: %+v", got)
	}
	c.must(t, 201, "POST", "/v1/topics/content/timers", `{"delay":"1h","payload":{"a":2}}`)

	// Priorities; prepare, commit and roll back.
	for i, p := range []int{1, 9, 5} {
		c.must(t, 201, "POST", timers, fmt.Sprintf(`{"id":"p%d","at_ms":%d,"priority":%d}`, i, 1_000_000_000_000+i, p))
	}
	got := c.pulls(t, "rmq", 3, `{"max":3,"wait":"2s"}`)
	if got[0].Priority != 9 || got[1].Priority != 5 || got[2].Priority != 1 {
		t.Errorf("by priority: %+v", got)
	}
	if s := claimed(t, c.must(t, 200, "POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q]}`, got[0].Receipt))); s[0] != 200 {
		t.Errorf("commit: %v", s)
	}
	if s := claimed(t, c.must(t, 200, "POST", "/v1/nack", fmt.Sprintf(`{"receipts":[%q],"delay":"0s"}`, got[1].Receipt))); s[0] != 200 {
		t.Errorf("roll back: %v", s)
	}
	// The timer that was rolled back, and the one whose lease ended.
	back := c.pulls(t, "rmq", 2, `{"max":1,"wait":"5s","lease":"1m"}`)
	slices.SortFunc(back, func(a, b pulledTimer) int { return b.Priority - a.Priority })
	if back[0].ID != "p2" || back[1].ID != "p0" || back[0].Attempt != 2 || back[1].Attempt != 2 || back[1].Fence <= got[2].Fence {
		t.Errorf("rolled back: %+v", back)
	}
	if s := claimed(t, c.must(t, 200, "POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q,%q]}`, back[0].Receipt, back[1].Receipt))); !slices.Equal(s, []int{200, 200}) {
		t.Errorf("commit: %v", s)
	}

	c.slotsByKey(t)
	c.poisonedAfterSixteen(t)
}

// slotsByKey: timers of a key are in one shard, and only one of them is leased at a time.
func (c *client) slotsByKey(t *testing.T) {
	t.Helper()
	c.must(t, 201, "PUT", "/v1/topics/slots", `{"delivery":"pull","serial":true}`)
	uids := map[string]string{}
	for _, id := range []string{"{u1}a", "{u1}b", "{u2}a"} {
		uids[id] = strings.Split(c.must(t, 201, "POST", "/v1/topics/slots/timers", fmt.Sprintf(`{"id":%q,"delay_ms":0}`, id)).timer(t).UID, "-")[0]
	}
	if uids["{u1}a"] != uids["{u1}b"] {
		t.Errorf("one key, two slots: %v", uids)
	}
	held := c.pulls(t, "slots", 2, `{"max":10,"wait":"2s"}`)
	if len(pulled(t, c.do("POST", "/v1/topics/slots/pull", `{"max":10,"wait":"50ms"}`))) != 0 {
		t.Error("two consumers of one key")
	}
	for _, h := range held {
		c.must(t, 200, "POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q]}`, h.Receipt))
	}
	if rest := c.pulls(t, "slots", 1, `{"max":10,"wait":"5s"}`); rest[0].ID != "{u1}b" {
		t.Errorf("then %+v", rest)
	}
}

// poisonedAfterSixteen: a timer has sixteen attempts, then it is a dead letter.
func (c *client) poisonedAfterSixteen(t *testing.T) {
	t.Helper()
	c.must(t, 201, "POST", "/v1/topics/rmq/timers", `{"id":"poison","delay_ms":0}`)
	for n := 1; n <= 16; n++ {
		p := c.pulls(t, "rmq", 1, `{"max":1,"wait":"5s","lease":"1m"}`)[0]
		if p.ID != "poison" || p.Attempt != n {
			t.Fatalf("attempt %d: %+v", n, p)
		}
		c.must(t, 200, "POST", "/v1/nack", fmt.Sprintf(`{"receipts":[%q],"reason":"poisoned"}`, p.Receipt))
	}
	if got := c.read(t, "rmq", "poison"); got.State != "dead" || got.Reason != "max_attempts" || got.Attempts != 16 || got.LastError != "poisoned" {
		t.Errorf("%+v", got)
	}
}

// pulls pulls exactly n timers, in as many requests as needed.
func (c *client) pulls(t testing.TB, topic string, n int, body string) (list []pulledTimer) {
	t.Helper()
	poll(t, patience, fmt.Sprintf("%d timers of %s are pulled", n, topic), func() bool {
		list = append(list, pulled(t, c.do("POST", "/v1/topics/"+topic+"/pull", body))...)
		return len(list) >= n
	})
	if len(list) != n {
		t.Fatalf("%d timers are pulled, want %d: %+v", len(list), n, list)
	}
	return list
}
