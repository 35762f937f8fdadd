package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/test/freeport"
)

const (
	clockLimit  = time.Second            // clocks that are no farther apart are taken to agree
	clockSlew   = 250 * time.Millisecond // a step of the clock that is tolerated
	clockSteady = 10 * time.Second       // a lone node trusts a clock that was steady this long
	tenYears    = 10 * 365 * 24 * time.Hour
)

// dependents are timers that a wrong clock would fire, expire, forget or misdate.
type dependents struct {
	*testing.T
	client *client
	rcv    *receiver
	far    int
	doneAt int64
}

// newDependents creates the timers at a node whose clock is right.
func newDependents(t *testing.T, c *client, rcv *receiver) *dependents {
	d := &dependents{T: t, client: c, rcv: rcv, far: 60, doneAt: time.Now().UnixMilli()}
	c.topic(t, "far", rcv.url(), "")
	c.topic(t, "brief", rcv.url(), "")
	c.topic(t, "done", rcv.url(), "")
	c.topic(t, "often", rcv.url(), "")
	c.topic(t, "dead", "http://127.0.0.1:9/", `,"retry":{"max_attempts":1},"breaker":{"failures":1000}`)
	var far, brief []string
	for i := range d.far {
		far = append(far, fmt.Sprintf(`{"op":"add","id":"f%d","at_ms":%d,"payload":1}`, i, d.doneAt+int64(1+i*100)*3_600_000))
		brief = append(brief, fmt.Sprintf(`{"op":"add","id":"b%d","at_ms":%d,"expires_after":"1m","payload":1}`, i, d.doneAt+3_600_000))
	}
	c.batch(t, "far", far)
	c.batch(t, "brief", brief)
	for i := range 10 {
		c.must(t, 201, "POST", "/v1/topics/done/timers", d.done(i))
		c.must(t, 201, "POST", "/v1/topics/dead/timers", fmt.Sprintf(`{"id":"d%d","delay":"0s","payload":1}`, i))
	}
	poll(t, patience, "what is due is over", func() bool {
		over := true
		for i := range 10 {
			over = over && c.read(t, "done", fmt.Sprint("d", i)).State == "done" && c.read(t, "dead", fmt.Sprint("d", i)).State == "dead"
		}
		return over
	})
	return d
}

// done is the add of a timer that is due at doneAt.
func (d *dependents) done(i int) string {
	return fmt.Sprintf(`{"id":"d%d","at_ms":%d,"payload":1}`, i, d.doneAt)
}

// untouched checks that no timer was called, has expired or was forgotten.
func (d *dependents) untouched(when string) {
	d.Helper()
	for _, a := range d.rcv.arrivals() {
		if a.topic == "far" || a.topic == "brief" {
			d.Errorf("%s: %s of %s was called %v before it is due", when, a.timer, a.topic, -a.lateness())
		}
	}
	count := func(topic, state string, want int) {
		d.Helper()
		n := 0
		for _, v := range d.client.all(d.T, topic) {
			if v.State == state {
				n++
			}
		}
		if n != want {
			d.Errorf("%s: %d timers of %s are %s, not %d", when, n, topic, state, want)
		}
	}
	count("far", "scheduled", d.far)
	count("brief", "scheduled", d.far)
	count("dead", "dead", 10)
	count("done", "done", 10)
	for i := range 10 { // the original add, repeated, is still recognized
		d.client.must(d.T, 200, "POST", "/v1/topics/done/timers", d.done(i))
	}
	if list, _ := d.client.history(d.T, "done", ""); len(list) != 10 {
		d.Errorf("%s: the history has %d of 10 timers", when, len(list))
	}
}

// right checks the behaviour that depends on the time: max_wait ends a debounce, a new timer has
// the right creation time, and a due timer is called and not early.
func (d *dependents) right(when string) {
	d.Helper()
	id := fmt.Sprint("often", time.Now().UnixNano())
	begin := time.Now()
	for d.rcv.called("often", id) == 0 {
		if time.Since(begin) > patience {
			d.Fatalf("%s: what is put off again and again is not called after its longest wait", when)
		}
		a := d.client.do("POST", "/v1/topics/often/timers", fmt.Sprintf(`{"id":%q,"delay":"1s","merge":"debounce","max_wait":"2s","payload":1}`, id))
		if a.status != 200 && a.status != 201 && a.status != 503 {
			d.Fatalf("%s: %d %s", when, a.status, a.body)
		}
		wait(100 * time.Millisecond)
	}
	due := time.Now().Add(300 * time.Millisecond).Truncate(time.Millisecond)
	next := fmt.Sprint("next", due.UnixNano())
	made := d.client.must(d.T, 201, "POST", "/v1/topics/often/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":1}`, next, due.UnixMilli())).timer(d.T)
	if off := time.Duration(made.CreatedMs-time.Now().UnixMilli()) * time.Millisecond; off.Abs() > 5*time.Second {
		d.Errorf("%s: a timer that was made now says that this was %v off", when, off)
	}
	poll(d.T, patience, when+": what is due is called", func() bool { return d.rcv.called("often", next) > 0 })
	for _, a := range d.rcv.arrivals() {
		if a.timer == next && a.at.Before(due.Add(-clockLimit)) {
			d.Errorf("%s: called %v early", when, due.Sub(a.at))
		}
	}
}

// TestClockTenYearsAhead: the clock of the busiest leader jumps ten years ahead, in clusters of
// one, two and three nodes. No timer fires, expires or is forgotten because of it, and other nodes,
// if any, take over. Once the clock is right again so is all behaviour that depends on it.
func TestClockTenYearsAhead(t *testing.T) {
	needCluster(t)
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel()
			members, clocks := loopbackMembers(t, n), map[*member]clock{}
			for _, m := range members {
				m.binary = testBinary(t)
				clocks[m], m.env = newClock(t)
			}
			c := foundWith(t, n, members)
			victim := c.busiest(t)
			rcv := newReceiver(t, nil)
			d := newDependents(t, victim.client, rcv)
			d.right("before")
			clocks[victim].set(t, tenYears.Milliseconds(), 0)
			poll(t, 2*time.Second, "it says what is wrong", func() bool {
				a := victim.client.do("GET", "/readyz", "")
				v, err := victim.view()
				return a.status == 503 && strings.Contains(string(a.body), "its clock") && err == nil && strings.Contains(v.unfit(victim.name), "its clock")
			})
			if a := victim.client.must(t, 503, "POST", "/v1/topics/far/timers", `{"delay":"1h","payload":1}`); a.code() != "unavailable" || a.header.Get("Retry-After") == "" {
				t.Errorf("an add by a delay: %s", a.body)
			}
			lasts := 4 * time.Second // < clockSteady, else a lone node trusts its clock
			if n > 1 {
				lasts = clockSteady + 5*time.Second
				poll(t, patience, "others lead", func() bool { return len(c.view(t).ledBy(victim.name)) == 0 })
				for _, m := range members {
					if m != victim {
						d.client = m.client
						break
					}
				}
				d.right("while one clock is wrong")
			}
			wait(lasts)
			d.untouched("while the clock is wrong")
			clocks[victim].set(t, 0, 0)
			c.awaitHealthy(t)
			d.client = victim.client
			d.untouched("when it is right again")
			d.right("when it is right again")
		})
	}
}

// TestClockOfOneNode: a node alone has no peers to compare its clock with. After a step of its
// clock it does nothing that depends on the time until the clock was steady for ten seconds. That
// holds across a restart. Once the clock is right again new timers have the right times.
func TestClockOfOneNode(t *testing.T) {
	t.Parallel()
	needCluster(t)
	clock, env := newClock(t)
	rcv := newReceiver(t, nil)
	args := append([]string{testBinary(t)}, serveArgs(t.TempDir()+"/data", freeport.Address(t))...)
	node := begin(t, args, env...)
	node.awaitReady(t)
	client := newClient(node)
	ready := func(want bool) bool { return (client.do("GET", "/readyz", "").status == 200) == want }
	d := newDependents(t, client, rcv)
	wait(2 * time.Second) // the node persists the state of its clocks meanwhile

	clock.set(t, tenYears.Milliseconds(), 0)
	poll(t, 2*time.Second, "it is not ready", func() bool { return ready(false) })
	node.kill()
	node = begin(t, args, env...) // it starts with the wrong clock
	poll(t, patience, "the next process is not ready either, and says why", func() bool {
		return strings.Contains(string(client.do("GET", "/readyz", "").body), "its clock")
	})
	clock.set(t, 0, 0)
	node.awaitReady(t)
	d.untouched("when the clock is right again")
	d.right("when the clock is right again")

	set := clock.set(t, time.Hour.Milliseconds()/2, 0)
	poll(t, 30*time.Second, "the clock is believed", func() bool { return time.Since(set) > time.Second && ready(true) })
	if after := time.Since(set); after < clockSteady-time.Second {
		t.Errorf("it was believed after %v", after)
	}
	made := client.must(t, 201, "POST", "/v1/topics/far/timers", `{"id":"wrong","delay":"1s","payload":1}`).timer(t)
	if off := time.Duration(made.CreatedMs-time.Now().UnixMilli()) * time.Millisecond; (off - time.Hour/2).Abs() > 5*time.Second {
		t.Errorf("it goes by a clock that is %v off", off)
	}
	poll(t, patience, "it calls by what it believes", func() bool { return rcv.called("far", "wrong") > 0 })
	set = clock.set(t, 0, 0)
	poll(t, 30*time.Second, "the clock is believed again", func() bool { return time.Since(set) > time.Second && ready(true) })
	d.right("when it is believed again")
	for _, v := range client.all(t, "done") {
		if v.State != "done" {
			t.Errorf("%s is %s", v.ID, v.State)
		}
	}
	if v := client.read(t, "far", "wrong"); v.CreatedMs > time.Now().UnixMilli()+1000 {
		t.Errorf("a timer says that it is made %d ms from now", v.CreatedMs-time.Now().UnixMilli())
	}
	node.stop(t)
}
