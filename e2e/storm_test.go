package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// change is one request of the storm: to a timer that is due this very moment.
type change struct {
	verb string
	do   func(c *client, book *ledger, e *entry, v int)
}

var changes = []change{
	{"patch", func(c *client, book *ledger, e *entry, v int) {
		payload, due := payloadOf(e.id, v), time.Now().UnixMilli()+5
		body := fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, due, payload)
		book.wrote(e, payload, due, c.do("PATCH", timerPath("storm", e.id), body))
	}},
	{"put", func(c *client, book *ledger, e *entry, v int) {
		payload, due := payloadOf(e.id, v), time.Now().UnixMilli()+5
		body := fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, due, payload)
		book.wrote(e, payload, due, c.do("PUT", timerPath("storm", e.id), body, "If-Match", fmt.Sprintf(`"%d"`, v-1)))
	}},
	{"cancel", func(c *client, book *ledger, e *entry, _ int) {
		book.cancelled(e, c.do("DELETE", timerPath("storm", e.id), ""))
	}},
	{"fire", func(c *client, book *ledger, e *entry, _ int) {
		book.fired(e, c.do("POST", timerPath("storm", e.id)+"/fire", ""))
	}},
}

func payloadOf(id string, version int) string { return fmt.Sprintf(`{"id": %q,"v":%d}`, id, version) }

// TestStormAtTheMomentOfFiring changes, replaces, cancels and fires timers in the milliseconds around their due time.
// What was prevented never arrives, what arrives was written, and every refusal is one of those that are documented.
func TestStormAtTheMomentOfFiring(t *testing.T) {
	t.Parallel()
	n := setting(t, "CARILLON_E2E_STORM", 1500)
	random := seeded(t)
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.topic(t, "storm", rcv.url(), "")
	book := newLedger()
	answers := &tallies{count: map[string]int{}}
	var wg sync.WaitGroup
	for worker := range 8 {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(worker)))
		wg.Go(func() {
			for i := worker; i < n; i += 8 {
				stormOne(c, book, answers, own, fmt.Sprintf("s%d", i))
			}
		})
	}
	wg.Wait()
	poll(t, 30*time.Second, "all have ended", func() bool {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/storm/timers?limit=1", "").decode(t, &page)
		return len(page.Timers) == 0
	})
	v := &verdict{ledger: book, log: rcv.arrivals(), final: map[string]timer{}}
	for _, tm := range c.all(t, "storm") {
		v.final[tm.ID] = tm
	}
	v.check(t)
	answers.check(t)
	t.Logf("%d timers, %d arrivals; answers: %v", n, len(v.log), answers.count)
	for _, want := range []string{"cancel 200 prevented", "patch 200", "patch 410"} {
		if answers.count[want] == 0 {
			t.Errorf("no %q: the storm missed the moment", want)
		}
	}
}

// stormOne adds a timer that is due in a few milliseconds and sends one or two changes around that time.
func stormOne(c *client, book *ledger, answers *tallies, random *rand.Rand, id string) {
	e := book.add(id, 0)
	due := time.Now().UnixMilli() + 1 + random.Int64N(30)
	body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, id, due, payloadOf(id, 1))
	book.wrote(e, payloadOf(id, 1), due, c.do("POST", "/v1/topics/storm/timers", body))
	version := 1
	for range 1 + random.IntN(2) {
		moment := time.UnixMilli(due).Add(time.Duration(random.IntN(4000)-2500) * time.Microsecond)
		wait(max(0, time.Until(moment)))
		ch := changes[random.IntN(len(changes))]
		version++
		ch.do(c, book, e, version)
		answers.note(ch.verb, book.last)
		if book.lastOf(e).status != 200 {
			version--
		}
	}
}
