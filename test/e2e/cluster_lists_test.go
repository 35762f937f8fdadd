package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestListsOfManyShardsOutliveANode: in a cluster of 64 shards, pages of a listing, counts and a
// bulk change that is tried show every timer once, at any node, also while a node dies: until others
// lead its shards they are refused, and never less than whole.
func TestListsOfManyShardsOutliveANode(t *testing.T) {
	t.Parallel()
	const timers = 1000
	c := foundOf(t, 64, 3, loopbackMembers(t, 3))
	asked := c.all()[0]
	asked.client.topic(t, "listed", "http://127.0.0.1:9/", "")
	var ops []string
	due := time.Now().Add(24 * time.Hour).UnixMilli()
	for i := range timers {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%04d","at_ms":%d,"payload":%d}`, i, due+int64(i/7), i))
	}
	if !asked.client.insist("listed", ops) {
		t.Fatal("the adds were not acknowledged")
	}
	whole := func(m *member) bool {
		t.Helper()
		met, cursor, pages := 0, "", 0
		for ; ; pages++ {
			a := m.client.do("GET", "/v1/topics/listed/timers?limit=100"+cursor, "")
			if a.status == 503 {
				return false
			}
			var page struct {
				Timers []timer `json:"timers"`
				Next   string  `json:"next_cursor"`
			}
			if a.decode(t, &page); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			for _, x := range page.Timers {
				if want := fmt.Sprintf("t%04d", met); x.ID != want || string(x.Payload) != fmt.Sprint(met) {
					t.Fatalf("page %d has %s, want %s", pages, x.ID, want)
				}
				met++
			}
			if page.Next == "" {
				break
			}
			cursor = "&cursor=" + page.Next
		}
		if met != timers || pages > timers/100 {
			t.Fatalf("%d timers of %d in %d pages", met, timers, pages+1)
		}
		a := m.client.do("POST", "/v1/topics/listed/cancel?dry_run=true", `{"filter":{"id_prefix":"t"}}`)
		var tried struct{ Matched, Changed int }
		if a.decode(t, &tried); a.status == 200 && (tried.Matched != timers || tried.Changed != timers) {
			t.Fatalf("a bulk change meets %d timers, and would change %d of %d", tried.Matched, tried.Changed, timers)
		}
		b := m.client.do("GET", "/v1/topics/listed", "")
		var topic struct{ Counts struct{ Scheduled int } }
		if b.decode(t, &topic); b.status == 200 && topic.Counts.Scheduled != timers {
			t.Fatalf("%d timers are counted", topic.Counts.Scheduled)
		}
		return a.status == 200 && b.status == 200
	}
	for _, m := range c.all() {
		if !holdsWithin(formLimit, func() bool { return whole(m) }) {
			t.Fatalf("%s has no listing", m.name)
		}
	}
	victim := c.all()[1]
	victim.process().kill()
	killed := time.Now()
	for _, m := range c.running() {
		if !holdsWithin(formLimit, func() bool { return whole(m) }) {
			t.Fatalf("%s has no listing after %v", m.name, time.Since(killed))
		}
	}
	t.Logf("listings are whole again %v after a node was killed", time.Since(killed))
	c.start(t, victim)
	c.awaitHealthy(t)
	if !holdsWithin(formLimit, func() bool { return whole(victim) }) {
		t.Fatal("the node that is back has no listing")
	}
}
