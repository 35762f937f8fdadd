package e2e

import (
	"fmt"
	"testing"
	"time"
)

var clockFaults = []fault{
	clockStep("1 s ahead", time.Second),
	clockStep("1 s behind", -time.Second),
	clockStep("5 min ahead", 5*time.Minute),
	clockStep("5 min behind", -5*time.Minute),
	{name: "clock 1 h ahead", fresh: true, try: clockStep("", time.Hour).try},
	clockStep("1 h behind", -time.Hour),
	clockStep("10 years ahead", 10*365*24*time.Hour),
	{name: "clock runs fast by a quarter", try: func(s *siege, t *testing.T) []time.Duration { return s.skewLeader(t, 0, 250_000) }},
	{name: "clock runs slow by a quarter", try: func(s *siege, t *testing.T) []time.Duration { return s.skewLeader(t, 0, -250_000) }},
}

func clockStep(name string, d time.Duration) fault {
	return fault{name: "clock " + name, try: func(s *siege, t *testing.T) []time.Duration { return s.skewLeader(t, d.Milliseconds(), 0) }}
}

const (
	clockLimit   = time.Second     // farther off than this, a node hands over
	offNoticed   = 5 * time.Second // the hand-over included; the machine may be busy
	offAfterward = time.Second     // that a clock is left wrong once others lead
)

// skewLeader sets the clock of the node that leads most, or lets it drift, and sets it right again.
func (s *siege) skewLeader(t *testing.T, ms, ppm int64) (took []time.Duration) {
	victim := s.busiest(t)
	off := skew{ms: ms, ppm: ppm}
	off.from = time.Now()
	s.clocks[victim].set(t, ms, ppm)
	limit := offNoticed
	if ppm != 0 {
		limit += clockLimit * 1_000_000 / time.Duration(max(ppm, -ppm))
	}
	step := time.Duration(max(ms, -ms)) * time.Millisecond
	if ppm != 0 || step > clockLimit {
		took = append(took, s.handedOver(t, victim, off.from, limit, "its clock is"))
		off.until = time.Now()
	}
	wait(offAfterward)
	right := s.clocks[victim].set(t, 0, 0)
	if off.until.IsZero() { // right at the limit: it may hand over, or go on
		off.until = right
	}
	s.v.skews = append(s.v.skews, off)
	s.leadsAgain(t, victim)
	return took
}

// TestClockOfOneNode: a node alone knows no better clock than its own. When that steps back, firing waits until it has
// caught up, also after a restart; when it jumps ahead, what is due by it is fired. Nothing is lost and nothing fires twice.
func TestClockOfOneNode(t *testing.T) {
	t.Parallel()
	needCluster(t)
	clock, env := newClock(t)
	rcv := newReceiver(t, nil)
	args := append([]string{wrongClockBinary(t)}, serveArgs(t.TempDir()+"/data", freeAddress(t))...)
	node := begin(t, args, env...)
	node.awaitReady(t)
	client := newClient(node)
	client.topic(t, "alone", rcv.url(), "")
	add := func(id string, in time.Duration) time.Time {
		due := time.Now().Add(in).Truncate(time.Millisecond)
		client.must(t, 201, "POST", "/v1/topics/alone/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":1}`, id, due.UnixMilli()))
		return due
	}
	fires := func(id string, due time.Time, off time.Duration) {
		t.Helper()
		poll(t, 10*time.Second, id+" fires", func() bool { return rcv.called("alone", id) > 0 })
		at := rcv.of("alone", id)[0].at
		if early := due.Sub(at.Add(off)); early > 0 {
			t.Errorf("%s: early by %v by the node's clock", id, early)
		}
		t.Logf("%s: %v after it was due by the node's clock", id, at.Add(off).Sub(due))
	}

	due := add("behind", 700*time.Millisecond)
	clock.set(t, -2000, 0)
	fires("behind", due, -2*time.Second)

	far := add("far-behind", 500*time.Millisecond)
	clock.set(t, -time.Hour.Milliseconds(), 0)
	now := time.Now()
	client.must(t, 201, "POST", "/v1/topics/alone/timers", `{"id":"in-a-while","delay":"300ms","payload":1}`)
	fires("in-a-while", now, 0) // what is asked for in so long comes in so long, whatever the clock says
	for _, id := range []string{"behind", "in-a-while"} {
		poll(t, 10*time.Second, id+" is done: a kill before that calls it again", func() bool {
			return client.read(t, "alone", id).State == "done"
		})
	}
	node.kill()
	node = begin(t, args, env...)
	node.awaitReady(t)
	wait(time.Second)
	if n := rcv.called("alone", "far-behind"); n != 0 {
		t.Errorf("it fired although its time is an hour off by the node's clock")
	}
	clock.set(t, 0, 0)
	fires("far-behind", far, 0)

	ahead := add("ahead", 30*time.Minute)
	clock.set(t, time.Hour.Milliseconds(), 0)
	fires("ahead", ahead, time.Hour)
	clock.set(t, 0, 0)
	fires("after-all", add("after-all", 300*time.Millisecond), 0)
	for _, a := range rcv.arrivals() {
		if n := rcv.called("alone", a.timer); n != 1 {
			t.Errorf("%s was called %d times", a.timer, n)
		}
	}
	node.stop(t)
}
