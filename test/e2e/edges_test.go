package e2e

import (
	"fmt"
	"testing"
	"time"
)

const horizonMs = int64(3653 * 24 * time.Hour / time.Millisecond) // ten years with their leap days

func TestReadyWithinASecondOnAnEmptyDirectory(t *testing.T) {
	best := time.Hour
	for range 5 { // the best of five: the machine may be busy
		p := serve(t, t.TempDir())
		best = min(best, p.readyAfter)
		p.stop(t)
		if best < time.Second {
			break
		}
	}
	t.Logf("start to ready on an empty directory: %v", best)
	if best >= time.Second {
		t.Errorf("ready after %v, promised under a second", best)
	}
}

func TestTimesAtTheEdges(t *testing.T) {
	t.Parallel()
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.topic(t, "edges", rcv.url(), "")
	add := func(status int, body string) answer {
		return c.must(t, status, "POST", "/v1/topics/edges/timers", body)
	}

	year := time.Now().Add(365 * 24 * time.Hour).UnixMilli()
	add(201, fmt.Sprintf(`{"id":"year","at_ms":%d}`, year))
	if got := c.read(t, "edges", "year"); got.DueMs != year || got.State != "scheduled" {
		t.Errorf("a year ahead: %+v", got)
	}
	add(201, fmt.Sprintf(`{"id":"horizon","delay_ms":%d}`, horizonMs))
	if a := add(422, fmt.Sprintf(`{"id":"beyond","delay_ms":%d}`, horizonMs+1)); a.code() != "beyond_horizon" {
		t.Errorf("a millisecond beyond the horizon: %s", a.body)
	}
	c.must(t, 404, "GET", timerPath("edges", "beyond"), "")

	past := time.Now().Add(-time.Hour).UnixMilli()
	add(201, fmt.Sprintf(`{"id":"past","at_ms":%d,"payload":1}`, past))
	add(201, `{"id":"epoch","at":"1970-01-01T00:00:00Z","payload":2}`)
	add(201, `{"id":"zero","delay":"0s","payload":3}`)
	poll(t, patience, "past timers and those without delay fire at once", func() bool { return rcv.answered() >= 3 })
	for id, due := range map[string]int64{"past": past, "epoch": 0, "zero": c.read(t, "edges", "zero").DueMs} {
		calls := rcv.of("edges", id)
		if len(calls) != 1 || calls[0].dueMs != due || calls[0].attempt != 1 || calls[0].early() {
			t.Errorf("%s: due %d, arrived %+v", id, due, calls)
		}
		poll(t, patience, id+" is done", func() bool { return c.read(t, "edges", id).State == "done" })
		if got := c.read(t, "edges", id); got.LatenessMs == nil || *got.LatenessMs > 5000 {
			t.Errorf("%s: lateness of a timer is counted from its creation: %+v", id, got)
		}
	}
}

// TestHerd has many timers come due in one instant; none is lost, early or called twice.
func TestHerd(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := setting(t, "CARILLON_E2E_HERD", 3500)
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.topic(t, "herd", rcv.url(), "")
	due := time.Now().Add(2*time.Second + time.Duration(n)*100*time.Microsecond).UnixMilli()
	book := newLedger()
	ops := make([]string, n)
	for i := range ops {
		id, payload := fmt.Sprintf("h%d", i), fmt.Sprintf(`{"n":%d}`, i)
		ops[i] = fmt.Sprintf(`{"op":"add","id":%q,"at_ms":%d,"payload":%s}`, id, due, payload)
		book.wrote(book.add(id, 0), payload, due, answer{status: 201, sent: time.Now(), answered: time.Now()})
	}
	for i, status := range c.batch(t, "herd", ops) {
		if status != 201 {
			t.Fatalf("add %d: status %d", i, status)
		}
	}
	if time.Now().UnixMilli() > due {
		t.Log("the adds took longer than planned: the lateness below is theirs")
	}
	poll(t, 60*time.Second, "all have arrived", func() bool { return rcv.answered() >= n })
	v := &verdict{ledger: book, final: map[string]timer{}}
	poll(t, patience, "all are done", func() bool {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/herd/timers?limit=1", "").decode(t, &page)
		return len(page.Timers) == 0
	})
	for _, tm := range c.all(t, "herd") {
		v.final[tm.ID] = tm
	}
	v.log = rcv.arrivals()
	v.check(t)
	late := make([]time.Duration, 0, n)
	for _, a := range v.log {
		late = append(late, a.lateness())
	}
	s := spreadOf(late)
	t.Logf("%d in one instant: lateness %v, %.0f a second to a net/http receiver in the tester", n, s, float64(n)/s.max.Seconds())
}
