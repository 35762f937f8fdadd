package e2e

import (
	"fmt"
	"testing"
	"time"
)

// bulkSlack is what a bulk change may add to the lateness of others. 10 ms are the aim on a machine of one's own; a busy one has
// pauses that are longer.
const bulkSlack = 250 * time.Millisecond

// TestBulkStallsNobody moves and cancels many timers by one request each, while others come due all the time. They stay on time, the answer
// says what was done, and to ask again does nothing again.
func TestBulkStallsNobody(t *testing.T) {
	n := setting(t, "CARILLON_E2E_BULK", 20_000)
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.http.Timeout = 2 * time.Minute
	c.topic(t, "many", "http://127.0.0.1:9/", "")
	c.topic(t, "others", rcv.url(), "")
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"m%d","delay":"%ds","labels":["l%d"],"payload":%d}`, i, 36_000+i%3600, i%2, i)
	}
	c.batch(t, "many", ops)

	// What comes due meanwhile was added before: 50 a second for as long as it may take.
	var added int
	others := func(from time.Time, seconds int) {
		var ops []string
		for i := range 50 * seconds {
			added++
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"o%d","at_ms":%d}`, added, from.Add(time.Duration(i)*20*time.Millisecond).UnixMilli()))
		}
		c.batch(t, "others", ops)
	}
	lateness := func(from, to time.Time) spread {
		var late []time.Duration
		for _, a := range rcv.arrivals() {
			if due := time.UnixMilli(a.dueMs); due.After(from) && due.Before(to) {
				late = append(late, a.lateness())
			}
		}
		return spreadOf(late)
	}
	start := time.Now().Add(500 * time.Millisecond)
	others(start, 60)
	poll(t, systemLimit, "a second of others has come", func() bool { return rcv.count() >= 60 })
	calm := lateness(start, time.Now().Add(-100*time.Millisecond))

	type counts struct{ Matched, Changed, Skipped int }
	bulk := func(path, body string) (got counts, took time.Duration) {
		begin := time.Now()
		c.must(t, 200, "POST", "/v1/topics/many/"+path, body).decode(t, &got)
		return got, time.Since(begin)
	}
	began := time.Now()
	moved, moving := bulk("reschedule", `{"filter":{"id_prefix":"m"},"shift":"+1h"}`)
	half, cancelling := bulk("cancel", `{"filter":{"label":"l1"}}`)
	again, _ := bulk("cancel", `{"filter":{"label":"l1"}}`)
	later := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	apart, _ := bulk("reschedule", fmt.Sprintf(`{"all":true,"not_before":%q}`, later))
	still, _ := bulk("reschedule", fmt.Sprintf(`{"all":true,"not_before":%q}`, later))
	ended := time.Now()
	for what, ok := range map[string]bool{
		"moved": moved == counts{n, n, 0}, "cancelled": half == counts{n / 2, n / 2, 0}, "cancelled again": again == counts{},
		"put off": apart.Changed == n-n/2, "put off again": still.Changed == 0,
	} {
		if !ok {
			t.Errorf("%s: %+v %+v %+v %+v %+v", what, moved, half, again, apart, still)
		}
	}
	poll(t, systemLimit, "what was due meanwhile has come", func() bool {
		return rcv.count() >= min(added, int(ended.Sub(start)/(20*time.Millisecond)))
	})
	busy := lateness(began, ended)
	t.Logf("%d moved in %v, %d cancelled in %v; lateness of others %v before, %v meanwhile", moved.Changed, moving, half.Changed, cancelling, calm, busy)
	if busy.p99 > calm.p99+bulkSlack {
		t.Errorf("others were late by %v while many were moved and cancelled, %v before", busy, calm)
	}
}
