package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/timer"
)

// serially makes a topic serial.
func serially(p *timer.Topic) { p.Policy.Serial = true }

func newSerialHarness(t testing.TB, change func(*timer.Topic)) *hostHarness {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) {
		serially(p)
		if change != nil {
			change(p)
		}
	})
	r.topicsChanged()
	return r
}

// checkLine checks I21: when a call of a serial topic starts, no other timer of its key is leased
// or comes earlier.
func (s *script) checkLine(c *fakeCall) {
	p := &s.topics[c.Job.Topic].Policy
	if !p.Serial {
		return
	}
	t := shardOf(s.host.group(c.Shard)).table
	mine := t.AttemptDueMs(c.Job.Handle) // the due time, unless it was fired or redriven
	for h := timer.Handle(1); h <= t.LastHandle(); h++ {
		d := t.Due(h)
		if h == c.Job.Handle || d.Topic != c.Job.Topic || t.KeyHash(h) != t.KeyHash(c.Job.Handle) {
			continue
		}
		other := t.Copy(h).ID
		switch always := c.Job.Topic < 3; { // the third topic is not serial all the time
		case d.State == timer.Leased && always:
			s.t.Fatalf("I21: %s starts while %s of its key is leased", c.Job.ID, other)
		case d.State == timer.Leased:
			for _, r := range s.calls.running {
				if r.Shard == c.Shard && r.Job.Handle == h && r.Job.Fence > c.Job.Fence {
					s.t.Fatalf("I21: %s starts while %s, which was leased later, runs", c.Job.ID, other)
				}
			}
		case !always || d.State != timer.Scheduled || c.Job.Attempts > 1 || d.ExpiresMs != 0 && s.clock.wallMs > d.ExpiresMs:
		case d.Attempts > 0 && d.NextMs != d.FirstMs:
			s.t.Fatalf("I21: %s starts while %s is in backoff", c.Job.ID, other)
		case d.Attempts == 0 && (d.NextMs < mine || d.NextMs == mine && d.Seq < c.Job.Seq):
			s.t.Fatalf("I21: %s, to start at %d, starts before %s, to start at %d", c.Job.ID, mine, other, d.NextMs)
		}
	}
}

// TestI21Interleavings is TestI5Interleavings with serial topics.
func TestI21Interleavings(t *testing.T) { runScripts(t, true) }

func TestI21OneAtATime(t *testing.T) {
	r := newSerialHarness(t, nil)
	high := func(s *timer.Spec) { s.Priority = 200 }
	r.add("{a}1", 2*time.Millisecond)
	r.add("{a}2", time.Millisecond)
	r.add("{a}3", 2*time.Millisecond, high)
	r.add("{b}1", 2*time.Millisecond)
	r.add("a", 2*time.Millisecond) // the key of an ID without braces is the whole ID
	r.pass(3 * time.Millisecond)
	calls := r.calls.take()
	var ids []string
	for _, c := range calls {
		ids = append(ids, c.Job.ID)
	}
	// "a" is serial with the timers of key a.
	if got := fmt.Sprint(ids); got != "[{a}2 {b}1]" {
		t.Fatal(got)
	}
	for _, next := range []string{"{a}1", "{a}3", "a"} {
		i := slices.IndexFunc(r.calls.running, func(c *fakeCall) bool { return c.Job.ID != "{b}1" })
		r.calls.running[i].answer(200)
		r.runIdle()
		r.wantCalls(next)
	}
	r.audit()
}

// TestI21HeadBlocksThroughBackoff: the head blocks its key until it is done, dead or cancelled.
func TestI21HeadBlocksThroughBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *hostHarness)
		want string
	}{
		"done":      {func(r *hostHarness) { r.pass(time.Second); r.one().answer(200); r.runIdle() }, "{a}2"},
		"dead":      {func(r *hostHarness) { r.pass(time.Second); r.one().answer(410); r.runIdle() }, "{a}2"},
		"cancelled": {func(r *hostHarness) { r.do(timer.Command{Kind: timer.Cancel, ID: "{a}1"}) }, "{a}2"},
		"replaced": {func(r *hostHarness) {
			r.do(timer.Command{Kind: timer.Put, ID: "{a}1", Spec: &timer.Spec{DueMs: r.clock.wallMs + 5000}})
		}, "{a}2"},
		"moved": {func(r *hostHarness) {
			r.do(timer.Command{Kind: timer.Modify, ID: "{a}1", Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: r.clock.wallMs + 5000}}})
		}, "{a}2"},
		"fired": {func(r *hostHarness) { r.do(timer.Command{Kind: timer.Fire, ID: "{a}1"}) }, "{a}1"},
		"patched": {func(r *hostHarness) {
			r.do(timer.Command{Kind: timer.Modify, ID: "{a}1", Patch: &timer.Patch{Priority: true}})
		}, ""},
		"nothing": {func(r *hostHarness) {}, ""},
		"dropped": {func(r *hostHarness) {
			r.do(timer.Command{Kind: timer.CloseTopic, Force: true})
			r.do(timer.Command{Kind: timer.OpenTopic})
			r.add("{a}3", 0)
		}, "{a}3"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSerialHarness(t, nil)
			r.add("{a}1", 0)
			r.one().answer(500)
			r.add("{a}2", -time.Second) // earlier, but the first has been called already
			r.pass(500 * time.Millisecond)
			r.wantCalls("")
			c.end(r)
			r.wantCalls(c.want)
			r.audit()
		})
	}
}

// TestI21EarlierOvertakesHeld: a lease acquired ahead of its due time is released when an earlier
// timer of its key arrives.
func TestI21EarlierOvertakesHeld(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{a}1", time.Second)
	r.pass(985 * time.Millisecond)
	if r.scheduler().View.Inspect().Held != 1 {
		t.Fatal("no lease is held")
	}
	r.add("{a}2", 5*time.Millisecond)
	r.pass(5 * time.Millisecond)
	r.one().answer(200)
	r.pass(10 * time.Millisecond)
	if c := r.one(); c.Job.ID != "{a}1" || c.Job.Attempts != 1 {
		t.Errorf("%s, attempt %d", c.Job.ID, c.Job.Attempts)
	}
	r.audit()
}

// TestI21AcrossRestart: the next leader knows the timers in backoff and the unexpired leases.
func TestI21AcrossRestart(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{a}1", 0)
	r.one().answer(500)
	r.add("{a}2", 0)
	r.add("{b}1", 0)
	r.one()
	r.add("{b}2", 0)
	r.pass(100 * time.Millisecond)
	r.restart()
	r.runIdle()
	r.wantCalls("{b}1") // interrupted, so called again at once
	r.pass(899 * time.Millisecond)
	r.wantCalls("")
	r.pass(time.Millisecond)
	r.wantCalls("{a}1")
	r.audit()
}

// TestBecomesSerial: timers that are running, or wait for a retry, count from the moment the policy
// becomes serial.
func TestBecomesSerial(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.dest("http://own/").retryIn = time.Hour
	r.add("{a}1", 0)
	r.add("{a}2", 0)
	r.add("{a}5", 0, url("http://own/"))
	calls := r.calls.take()
	calls[0].answer(500)
	r.topic(1, serially)
	r.topicsChanged()
	r.add("{a}3", 0)
	r.add("{b}1", 0)
	r.wantCalls("{b}1")
	r.pass(time.Second)
	r.wantCalls("") // the second is still running
	calls[1].answer(200)
	r.runIdle()
	r.one().answer(200) // the first again
	r.runIdle()
	r.wantCalls("") // the receiver of an earlier timer is down
	r.do(timer.Command{Kind: timer.Cancel, ID: "{a}5"})
	r.wantCalls("{a}3")
	r.add("{a}4", 0)
	r.wantCalls("")
	r.topic(1, nil)
	r.topicsChanged()
	r.wantCalls("{a}4")
	r.audit()
}

// TestLinesAreFreed: a key without timers costs no memory (I15).
func TestLinesAreFreed(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.calls.auto = 200
	for i := range 200 {
		r.add(fmt.Sprintf("{k%d}%d", i%50, i), time.Duration(i%7)*time.Millisecond)
	}
	r.pass(time.Second)
	if n := len(r.calls.take()); n != 200 {
		t.Fatal(n)
	}
	if n := r.scheduler().View.Inspect().KeyRefs; n != 0 {
		t.Errorf("%d claims", n)
	}
	r.pass(time.Minute)
	if q, ok := r.scheduler().View.Inspect().Topics[1]; ok {
		t.Errorf("the topic's queue is still there: %+v", q)
	}
}

// TestLinesArePruned: a timer that waits for its key and is changed repeatedly leaves a bounded
// number of stale entries behind.
func TestLinesArePruned(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{a}1", 0)
	r.add("{a}2", 0)
	for range 2000 {
		r.do(timer.Command{Kind: timer.Fire, ID: "{a}2"})
	}
	r.pass(20 * time.Second)
	if n := r.scheduler().View.Inspect().Topics[1].InLine; n > 1000 {
		t.Errorf("%d entries for one timer", n)
	}
	r.one().answer(200)
	r.runIdle()
	r.wantCalls("{a}2")
}

// TestI21HeadBlocksThoughItsClockWasAhead: a timer that was called by a leader whose clock was
// ahead blocks its key until its call is over. Found by the simulator.
func TestI21HeadBlocksThoughItsClockWasAhead(t *testing.T) {
	r := newHostHarness(t, nil)
	serial := func() {
		r.topic(1, func(topic *timer.Topic) {
			topic.Policy.Serial, topic.Policy.MinBackoffMs, topic.Policy.Jitter = true, 10, 0
		})
		r.topicsChanged()
	}
	serial()
	r.add("{k}a", 10*time.Second)
	r.clock.wallMs += 10_000
	r.pass(50 * time.Millisecond)
	r.wantCalls("{k}a")
	r.clock.wallMs -= 10_000
	r.restart()
	serial()
	r.pass(time.Second)
	r.add("{k}b", time.Second)
	r.pass(3 * time.Second)
	r.wantCalls("")
	r.pass(7 * time.Second)
	r.wantCalls("{k}a")
}
