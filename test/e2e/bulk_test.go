package e2e

import (
	"fmt"
	"testing"
	"time"
)

// bulkSlack is how much a bulk change may add to the p99 lateness of other timers: 10 ms in a long
// run. A short run has few samples, so that a pause of a busy machine shows.
func bulkSlack(n int) time.Duration {
	if n >= 100_000 {
		return 10 * time.Millisecond
	}
	return 250 * time.Millisecond
}

// meter compares the lateness of other timers during operations and during the pauses between them.
// Load from outside should hit both alike.
type meter struct {
	rcv  *receiver
	busy [][2]time.Time
	calm [][2]time.Time
}

// calmMost is the longest pause after an operation.
const calmMost = 10 * time.Second

// while runs do, then pauses for as long: at least 500 ms, at most calmMost.
func (m *meter) while(do func()) {
	begin := time.Now()
	do()
	end := time.Now()
	m.busy = append(m.busy, [2]time.Time{begin, end})
	rest := min(max(end.Sub(begin), 500*time.Millisecond), calmMost)
	<-time.After(rest)
	m.calm = append(m.calm, [2]time.Time{end, end.Add(rest)})
}

func (m *meter) lateness(spans [][2]time.Time) (spread, int) {
	var late []time.Duration
	for _, a := range m.rcv.arrivals() {
		due := time.UnixMilli(a.dueMs)
		for _, span := range spans {
			if due.After(span[0]) && due.Before(span[1]) {
				late = append(late, a.lateness())
			}
		}
	}
	return spreadOf(late), len(late)
}

// TestBulkStallsNobody moves and cancels many timers by one request each while other timers come
// due. Those stay on time, the answers have the right counts, and a repeated request changes
// nothing.
func TestBulkStallsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := setting(t, "CARILLON_E2E_BULK", 20_000)
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.http.Timeout = 3 * time.Minute
	c.topic(t, "many", "http://127.0.0.1:9/", "")
	c.topic(t, "others", rcv.url(), "")
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"m%d","delay":"%ds","labels":["l%d"],"payload":%d}`, i, 36_000+i%3600, i%2, i)
	}
	c.batch(t, "many", ops)

	// The other timers are added beforehand: a hundred a second for as long as the changes may
	// take.
	const apart = 10 * time.Millisecond
	start := time.Now().Add(500 * time.Millisecond)
	ops = ops[:0]
	for i := range int((time.Minute + time.Duration(n)*time.Millisecond/2) / apart) {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"o%d","at_ms":%d}`, i, start.Add(time.Duration(i)*apart).UnixMilli()))
	}
	c.batch(t, "others", ops)
	added := len(ops)
	poll(t, patience, "the others come", func() bool { return rcv.count() >= 20 })

	type counts struct{ Matched, Changed, Skipped int }
	m := &meter{rcv: rcv}
	bulk := func(path, body string) (got counts, took time.Duration) {
		m.while(func() {
			begin := time.Now()
			c.must(t, 200, "POST", "/v1/topics/many/"+path, body).decode(t, &got)
			took = time.Since(begin)
		})
		return got, took
	}
	moved, moving := bulk("reschedule", `{"filter":{"id_prefix":"m"},"shift":"+1h"}`)
	half, cancelling := bulk("cancel", `{"filter":{"label":"l1"}}`)
	again, _ := bulk("cancel", `{"filter":{"label":"l1"}}`)
	later := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	putOff, _ := bulk("reschedule", fmt.Sprintf(`{"all":true,"not_before":%q}`, later))
	still, _ := bulk("reschedule", fmt.Sprintf(`{"all":true,"not_before":%q}`, later))
	slack := bulkSlack(n)
	judge := func() bool {
		poll(t, patience, "what was due meanwhile has come", func() bool {
			return rcv.count() >= min(added, int(time.Since(start)/apart)-100)
		})
		calm, calmN := m.lateness(m.calm)
		busy, busyN := m.lateness(m.busy)
		t.Logf("lateness of %d others meanwhile: %v; of %d in the pauses between: %v", busyN, busy, calmN, calm)
		return busy.p99 <= calm.p99+slack
	}
	// A disturbance of the machine passes; a bulk change that stalls others does so each time. The
	// long run gets no second try.
	onTime, tries := judge(), 3
	if n >= 100_000 {
		tries = 0
	}
	for ; tries > 0 && !onTime; tries-- {
		*m = meter{rcv: rcv}
		bulk("reschedule", `{"filter":{"id_prefix":"m"},"shift":"+1h"}`)
		onTime = judge()
	}
	if !onTime {
		t.Errorf("others were late by more than %v more while many were moved and cancelled", slack)
	}
	gone, going := bulk("cancel", `{"all":true}`)
	for what, ok := range map[string]bool{
		"moved": moved == counts{n, n, 0}, "cancelled": half == counts{n / 2, n / 2, 0}, "cancelled again": again == counts{},
		"put off": putOff.Changed == n-n/2, "put off again": still.Changed == 0, "cancelled all": gone == counts{n - n/2, n - n/2, 0},
	} {
		if !ok {
			t.Errorf("%s: %+v %+v %+v %+v %+v %+v", what, moved, half, again, putOff, still, gone)
		}
	}
	t.Logf("%d moved in %v, %d and %d cancelled in %v and %v", moved.Changed, moving, half.Changed, gone.Changed, cancelling, going)
}
