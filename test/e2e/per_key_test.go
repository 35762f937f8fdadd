package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Where keys take turns, one key's backlog costs the others nothing but their turn.
const (
	turnsCall  = 20 * time.Millisecond // a receiver's answer, on average
	turnsSlots = 16                    // destination_concurrency, which is the bottleneck
	turnsApart = 10 * time.Millisecond // between adds of the other key
	turnsAlone = 3 * time.Second       // how long the other key is alone
	turnsTries = 3                     // other programs on the machine may spoil one

	// As CARILLON_E2E_LONG promises, on a machine that does nothing else; see quietSlack.
	turnsSlack, turnsBusySlack = 10 * time.Millisecond, 200 * time.Millisecond
	turnsLeast, turnsBusyLeast = 0.95, 0.85
)

// turnsHerd is how many timers one key has due.
func turnsHerd(t testing.TB) int {
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		return setting(t, "CARILLON_E2E_KEY_BACKLOG", 100_000)
	}
	return setting(t, "CARILLON_E2E_KEY_BACKLOG", 3_000)
}

// turns is what a run has shown.
type turns struct {
	alone, beside spread  // lateness of the other key, without the backlog and with it
	perSecond     float64 // calls, while there was a backlog
}

// takeTurns has a key add a timer every turnsApart, at first alone, then beside another with n
// timers due. Both are in one shard. Answers take from half of turnsCall to half as much again:
// where all take equally long, all slots are soon free at one moment, and taken at one moment. Then
// a timer waits for as long as an answer takes, whosever turn it is.
func takeTurns(t *testing.T, n int, fair bool) turns {
	node := serve(t, t.TempDir())
	defer node.kill()
	c := newClient(node)
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { <-time.After(turnsCall/2 + rand.N(turnsCall)) })
	c.topic(t, "keys", rcv.url(), fmt.Sprintf(`,"destination_concurrency":%d,"per_key":{"fair":%t}`, turnsSlots, fair))

	shard := func(id string) string {
		var timer struct{ UID string }
		c.must(t, 201, "POST", "/v1/topics/keys/timers", fmt.Sprintf(`{"id":%q,"delay":"0s"}`, id)).decode(t, &timer)
		return strings.Split(timer.UID, "-")[0]
	}
	other := ""
	for i := 0; other == ""; i++ {
		if key := fmt.Sprintf("{b%d}", i); shard(key+"probe") == shard(fmt.Sprintf("{a}probe%d", i)) {
			other = key
		}
	}

	begun := time.Now()
	instant := time.UnixMilli(begun.Add(turnsAlone + time.Second + time.Duration(n)*100*time.Microsecond).UnixMilli())
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"{a}%d","at_ms":%d}`, i, instant.UnixMilli())
	}
	for i, status := range c.batch(t, "keys", ops) {
		if status != 201 {
			t.Fatalf("add %d of the backlog: %d", i, status)
		}
	}
	stop, stopped, failed := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(stopped)
		tick := time.NewTicker(turnsApart)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				if c.do("POST", "/v1/topics/keys/timers", fmt.Sprintf(`{"id":"%s%d","delay":"0s"}`, other, i)).status != 201 {
					failed++
				}
			case <-stop:
				return
			}
		}
	}()
	from := time.Now()
	if !instant.After(from.Add(turnsAlone)) {
		t.Fatal("it took too long to add the backlog")
	}
	drained := func() bool {
		left := n
		for _, a := range rcv.arrivals() {
			if strings.HasPrefix(a.timer, "{a}") && !strings.HasPrefix(a.timer, "{a}probe") {
				left--
			}
		}
		return left == 0
	}
	limit := instant.Sub(from) + time.Minute + 4*time.Duration(n)*turnsCall/turnsSlots
	if !holdsWithinBy(time.Second/4, limit, drained) {
		t.Fatal("the backlog is not called")
	}
	close(stop)
	<-stopped
	if failed > 0 {
		t.Errorf("%d adds failed", failed)
	}

	var alone, beside []time.Duration
	var last time.Time
	for _, a := range rcv.arrivals() {
		if strings.HasPrefix(a.timer, "{a}") && a.at.After(last) {
			last = a.at
		}
	}
	calls := 0
	for _, a := range rcv.arrivals() {
		switch due := time.UnixMilli(a.dueMs); {
		case a.at.Before(last) && !a.at.Before(instant):
			calls++
			fallthrough
		default:
			if !strings.HasPrefix(a.timer, other) {
				break
			}
			if due.After(from.Add(turnsAlone/10)) && due.Before(instant.Add(-turnsAlone/10)) {
				alone = append(alone, a.lateness())
			} else if !due.Before(instant) && due.Before(last) {
				beside = append(beside, a.lateness())
			}
		}
	}
	return turns{spreadOf(alone), spreadOf(beside), float64(calls) / last.Sub(instant).Seconds()}
}

// TestKeysTakeTurns: one key has a backlog, another adds a timer every ten milliseconds, and the
// receiver is the bottleneck. The other key is hardly later than alone, and the receiver has as
// many calls as without turns.
func TestKeysTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := turnsHerd(t)
	slack, least := turnsBusySlack, turnsBusyLeast
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		slack, least = turnsSlack, turnsLeast
	}
	for try := 1; ; try++ {
		without, with := takeTurns(t, n, false), takeTurns(t, n, true)
		t.Logf("backlog of %d; the other key alone: %v; beside it: %v, %.0f calls/s; without turns: %v, %.0f calls/s",
			n, with.alone, with.beside, with.perSecond, without.beside, without.perSecond)
		late, slow := with.beside.p99 > with.alone.p99+slack, with.perSecond < least*without.perSecond
		if !late && !slow || t.Failed() {
			return
		}
		if try == turnsTries {
			t.Errorf("late %t (want p99 at most %v more), slow %t (want %.2f of the calls)", late, slack, slow, least)
			return
		}
	}
}
