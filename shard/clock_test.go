package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/timer"
)

const tenYears = 10 * 365 * 24 * time.Hour

// set moves the wall clock by d. The clock stays trusted.
func (c *fakeClock) set(d time.Duration) { c.wallMs += d.Milliseconds() }

// TestNothingIsDoneByAClockInDoubt: while the wall clock is in doubt, nothing is started, expired
// or forgotten. Everything else continues.
func TestNothingIsDoneByAClockInDoubt(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.topic(2, func(t *timer.Topic) { t.Policy.DeadRetentionMs = 1000; t.Policy.MaxAttempts = 1 })
	r.topic(3, func(t *timer.Topic) { t.Policy.Pull = true })
	r.topicsChanged()
	r.calls.auto = 410
	r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: "dead", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	r.pass(500 * time.Millisecond)
	r.calls.auto = 200
	r.add("due", time.Second)
	r.add("expires", time.Second, func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, 500 })
	r.do(timer.Command{Kind: timer.Add, Topic: 3, ID: "pulled", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	r.add("held", 100*time.Millisecond)
	r.pass(90 * time.Millisecond) // it is leased, and not yet due
	before := len(r.calls.started)
	r.clock.trust = clocks.Held
	r.pass(10 * time.Second)
	if n := len(r.calls.started) - before; n != 0 {
		t.Fatalf("%d calls were started", n)
	}
	if got := shardOf(r.host.group(1)).table.Totals(); got.Dead != 1 || got.Scheduled+got.Leased != 4 {
		t.Errorf("something was expired or forgotten: %+v", got)
	}
	if got := r.pullOf(3); len(got) != 0 {
		t.Errorf("%d timers were given to a consumer", len(got))
	}
	r.add("more", time.Minute)
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "more"}); got.Code != timer.Prevented {
		t.Errorf("cancel: %d", got.Code)
	}
	r.clock.trust = clocks.Sure
	r.pass(time.Second)
	if got := fmt.Sprint(r.state("due"), ", ", r.state("expires"), ", ", r.state("held")); got != "done 1, dead expired 0, done 1" {
		t.Errorf("after it: %s", got)
	}
	if got := r.pullOf(3); len(got) != 1 {
		t.Errorf("%d timers were given to a consumer after it", len(got))
	}
	r.pass(time.Second)
	if got := shardOf(r.host.group(1)).table.Totals(); got.Dead != 1 {
		t.Errorf("after it the dead letter is still there: %+v", got)
	}
	r.audit()
}

// pullOf pulls one timer of a topic from shard 1.
func (h *hostHarness) pullOf(topic timer.TopicID) (out []timer.PulledTimer) {
	h.t.Helper()
	h.host.SubmitPull(1, topic, 1, 0, func(list []timer.PulledTimer, err error) {
		if out = list; err != nil {
			h.t.Error(err)
		}
	})
	h.runIdle()
	return out
}

// count returns how many calls of a timer were started since the last take.
func (d *fakeDispatcher) count(id string) (n int) {
	for _, c := range d.started {
		if c.Job.ID == id {
			n++
		}
	}
	return n
}

// TestCommandsWaitForTheTime: while the time is unknown, no entry carries a time, and commands
// wait.
func TestCommandsWaitForTheTime(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Minute)
	r.kill()
	right := r.clock.wallMs
	r.clock.set(tenYears)
	r.clock.trust = clocks.Unknown
	r.mustOpen()
	if got := shardOf(r.host.group(1)).table.ClockMs(); got > right {
		t.Errorf("the shard's clock is %d ms ahead", got-right)
	}
	p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "b", Spec: &timer.Spec{DueMs: right + 60_000}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	if p.answered() {
		t.Errorf("an add is answered with %v before the time is known", p.op.err)
	}
	r.clock.wallMs = right + 1000
	r.clock.trust = clocks.Sure
	r.pass(100 * time.Millisecond)
	if !p.answered() || p.op.err != nil || p.op.result.Code != timer.Created {
		t.Errorf("an add is not answered when the time is known: %v", p.op.err)
	}
	r.wantCalls("")
}

// TestLeadershipIsConfirmedAfterWaking: a leader that was suspended confirms its leadership with a
// majority before it starts the timers it has leased. Either of its clocks can reveal the pause.
func TestLeadershipIsConfirmedAfterWaking(t *testing.T) {
	stops := map[string]func(c *fakeClock){
		"a stopped process": func(c *fakeClock) { c.mono, c.wallMs = c.mono+3*time.Second, c.wallMs+3000 },
		"a stopped machine": func(c *fakeClock) { c.jumped, c.wallMs = c.jumped+3*time.Second, c.wallMs+3000 },
	}
	for name, stop := range stops {
		for _, deposed := range []bool{false, true} {
			r, c := withFakePeers(t, false, nil)
			c.leads()
			r.calls.auto = 200
			r.add("a", 2*time.Second)
			r.pass(1990 * time.Millisecond)
			c.mute = true
			stop(r.clock)
			r.runIdle()
			if len(r.calls.started) != 0 {
				t.Fatalf("%s: a call was started before a majority has confirmed the leader", name)
			}
			c.mute = false
			if deposed {
				c.send(1, heartbeat(r.host.group(1).term+1))
			}
			r.pass(300 * time.Millisecond)
			if n := len(r.calls.started); deposed && n != 0 || !deposed && n != 1 {
				t.Errorf("%s, deposed %v: %d calls", name, deposed, n)
			}
			r.abort()
		}
	}
}

// TestLeaseIsOverAfterAStop: the holder of a lease treats it as expired as soon as it may have
// expired for others.
func TestLeaseIsOverAfterAStop(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", 2*time.Second)
	r.pass(1990 * time.Millisecond)
	r.clock.jumped += time.Hour // the wall clock jumped, and was set back before the host read it
	r.pass(time.Second)
	for _, call := range r.calls.started {
		if call.Job.ID == "a" && !call.unsent && call.Job.Fence == r.calls.started[0].Job.Fence && call != r.calls.started[0] {
			t.Errorf("called under the lease of before")
		}
	}
	if len(r.calls.started) == 0 || !r.calls.started[0].unsent {
		t.Errorf("the lease of before was used")
	}
	r.abort()
}

// clockHarness has a clock that is wrong by an offset for a while, and records of every kind that
// were stamped in that time.
func clockHarness(t *testing.T, off time.Duration) *hostHarness {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.topic(2, func(t *timer.Topic) { t.Policy.DeadRetentionMs = 60_000; t.Policy.MaxAttempts = 1 })
	r.topic(3, nil)
	r.topic(4, func(t *timer.Topic) { t.Policy.MinBackoffMs = 30_000 })
	r.topicsChanged()
	r.pass(time.Second)
	r.clock.set(off)
	r.pass(time.Second)
	r.add("done", 0)
	r.debounce("often")
	r.do(timer.Command{Kind: timer.CloseTopic, Topic: 3})
	r.calls.auto = 503
	r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: "dead", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	r.do(timer.Command{Kind: timer.Add, Topic: 4, ID: "retried", Spec: &timer.Spec{DueMs: r.clock.wallMs - off.Milliseconds() + 1000}})
	r.pass(time.Second)
	r.calls.auto = 200
	r.clock.set(-off)
	r.pass(2 * time.Second)
	return r
}

// debounce postpones a timer by a minute from now, to at most ten minutes after the first add.
func (h *hostHarness) debounce(id string) {
	h.do(timer.Command{Kind: timer.Add, ID: id, Merge: timer.MergeDebounce, MaxWaitMs: 600_000, Spec: &timer.Spec{DueMs: h.clock.wallMs + 60_000}})
}

// TestShardClockIsSetBack: a shard's clock that ran ahead is corrected by the first leader with a
// better clock, and so is all that depends on it.
func TestShardClockIsSetBack(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, off := range []time.Duration{time.Hour, tenYears} {
		r := clockHarness(t, off)
		table := shardOf(r.host.group(1)).table
		if ahead := table.ClockMs() - r.clock.wallMs; ahead > 0 {
			t.Fatalf("by %s: the shard's clock is still %d ms ahead", off, ahead)
		}
		if table.Restamping() || table.AwaitsSeries() {
			t.Fatalf("by %s: not all stamps were seen to", off)
		}
		for range 12 * 3 { // beyond the longest wait
			r.debounce("often")
			r.pass(20 * time.Second)
		}
		if n := r.calls.count("often"); n != 1 {
			t.Errorf("by %s: a debounced timer was called %d times within its longest wait", off, n)
		}
		if n := r.calls.count("retried"); n != 2 {
			t.Errorf("by %s: the attempt after a failed one was not made: %d calls", off, n)
		}
		if got := table.Totals().Dead; got != 0 {
			t.Errorf("by %s: %d dead letters were kept beyond their time", off, got)
		}
		if got := r.state("done"); got != "none" {
			t.Errorf("by %s: a finished timer is kept beyond its time: %s", off, got)
		}
		if got := r.do(timer.Command{Kind: timer.Add, ID: "done", Absolute: true, Spec: &timer.Spec{DueMs: r.clock.wallMs}}); got.Code != timer.Created {
			t.Errorf("by %s: an add long after the timer's end: code %d", off, got.Code)
		}
		r.pass(50 * time.Minute)
		r.add("last", time.Minute)
		if table.Closed(3) {
			t.Errorf("by %s: the closed topic is remembered for ever", off)
		}
		r.audit()
		r.abort()
	}
}

// TestIdempotenceAcrossAClockSetBack: records of the time when the clock was wrong are not
// forgotten when it is set back. Their retention starts then.
func TestIdempotenceAcrossAClockSetBack(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.clock.set(time.Hour)
	add := timer.Command{Kind: timer.Add, ID: "a", Absolute: true, Content: 1, Spec: &timer.Spec{DueMs: r.clock.wallMs}}
	r.do(add)
	r.pass(time.Minute)
	r.clock.set(-time.Hour)
	for range 8 {
		r.pass(time.Minute)
		if got := r.do(add); got.Code != timer.Same {
			t.Fatalf("a repeated add: code %d", got.Code)
		}
	}
	r.pass(4 * time.Minute)
	if got := r.do(add); got.Code != timer.Created {
		t.Errorf("after ten minutes: code %d", got.Code)
	}
}

// TestShardClockIsLeftAlone: a shard's clock is not set back if it is ahead by no more than the
// clocks of two leaders may differ, or if the leader doubts its own clock.
func TestShardClockIsLeftAlone(t *testing.T) {
	r := newHostHarness(t, nil)
	r.clock.set(1900 * time.Millisecond)
	r.add("a", time.Minute)
	ahead := shardOf(r.host.group(1)).table.ClockMs()
	r.clock.set(-1900 * time.Millisecond)
	r.add("b", time.Minute)
	if shardOf(r.host.group(1)).table.ClockMs() != ahead {
		t.Error("set back by less than two seconds")
	}
	r.clock.set(-time.Hour)
	r.clock.trust = clocks.Held
	r.add("c", time.Minute)
	r.pass(3 * time.Second)
	if shardOf(r.host.group(1)).table.ClockMs() != ahead {
		t.Error("set back by a clock that is in doubt")
	}
	r.clock.trust = clocks.Sure
	r.pass(time.Second)
	if shardOf(r.host.group(1)).table.ClockMs() >= ahead {
		t.Error("not set back by a clock that is believed")
	}
}

// TestSeriesAcrossAClockSetBack: a series that was scheduled while the clock was ahead continues
// with its next occurrence once the clock is set back.
func TestSeriesAcrossAClockSetBack(t *testing.T) {
	for _, catchUp := range []timer.CatchUp{timer.CatchUpOne, timer.CatchUpSkip} {
		r := newHostHarness(t, nil)
		r.calls.auto = 200
		at := r.clock.wallMs
		repeat := func(id string, change func(*timer.Spec)) {
			s := &timer.Spec{DueMs: at + 1000, Payload: []byte(`1`), PayloadKind: timer.JSONPayload, Repeat: &timer.Repeat{EveryMs: 60_000, CatchUp: catchUp}}
			change(s)
			r.do(timer.Command{Kind: timer.Add, ID: id, Spec: s})
		}
		repeat("span", func(*timer.Spec) {})
		repeat("cron", func(s *timer.Spec) { s.Repeat.EveryMs, s.Repeat.Cron = 0, "* * * * *" })
		repeat("moved", func(*timer.Spec) {})
		repeat("patched", func(*timer.Spec) {})
		r.do(timer.Command{Kind: timer.Modify, ID: "patched", Patch: &timer.Patch{Priority: true}})
		r.pass(90 * time.Second)
		later := at + (20 * 365 * 24 * time.Hour).Milliseconds()
		r.do(timer.Command{Kind: timer.Modify, ID: "moved", Patch: &timer.Patch{Spec: timer.Spec{DueMs: later}, Due: true}})
		before := r.calls.count("span")
		r.clock.set(tenYears)
		r.pass(3 * time.Minute)
		r.clock.set(-tenYears)
		r.pass(time.Second)
		r.calls.take()
		r.pass(5 * time.Minute)
		for _, id := range []string{"span", "cron", "patched"} {
			if n := r.calls.count(id); n != 5 {
				t.Errorf("catch-up %d: %s was called %d times in five minutes (%d before)", catchUp, id, n, before)
			}
		}
		if v := r.timer("moved"); v.DueMs != later || r.calls.count("moved") != 0 {
			t.Errorf("what its owner had put off is due at %d, not %d", v.DueMs, later)
		}
		r.audit()
		r.abort()
	}
}

// TestFiredSeriesAcrossAClockSetBack: so does a series whose occurrence was fired by hand while it
// was in backoff, and ends after the clock is set back.
func TestFiredSeriesAcrossAClockSetBack(t *testing.T) {
	for _, catchUp := range []timer.CatchUp{timer.CatchUpOne, timer.CatchUpSkip} {
		r := newHostHarness(t, nil)
		r.calls.auto = 200
		r.clock.set(tenYears)
		r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: r.clock.wallMs + 1000, Repeat: &timer.Repeat{EveryMs: 60_000, CatchUp: catchUp}}})
		r.pass(30 * time.Second)
		r.calls.auto = 500
		r.pass(40 * time.Second) // the second occurrence fails
		r.do(timer.Command{Kind: timer.Fire, Topic: 1, ID: "a", DueMs: r.clock.wallMs})
		r.pass(time.Second)
		if v := r.timer("a"); v.State != timer.Scheduled || v.AskedMs == 0 || v.Attempts < 2 {
			t.Fatalf("it is not in backoff: %+v", v)
		}
		r.clock.set(-tenYears)
		r.pass(time.Second)
		r.calls.auto = 200
		r.pass(10 * time.Minute)
		if v := r.timer("a"); v.State != timer.Scheduled || v.NextMs > r.clock.wallMs+60_000 {
			t.Errorf("catch-up %d: the next occurrence is %d ms from now", catchUp, v.NextMs-r.clock.wallMs)
		}
		r.audit()
		r.abort()
	}
}

// TestSeriesInFlightAcrossAClockSetBack: so does a series with a call in flight when the clock is
// set back.
func TestSeriesInFlightAcrossAClockSetBack(t *testing.T) {
	for _, catchUp := range []timer.CatchUp{timer.CatchUpOne, timer.CatchUpSkip} {
		r := newHostHarness(t, nil)
		r.clock.set(time.Hour)
		r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: r.clock.wallMs + 1000, Repeat: &timer.Repeat{EveryMs: 60_000, CatchUp: catchUp}}})
		r.pass(3 * time.Second)
		call := r.one()
		r.clock.set(-time.Hour)
		r.pass(5 * time.Second)
		call.end(delivery.Outcome{Status: 200, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs})
		r.pass(time.Second)
		if v := r.timer("a"); v.State != timer.Scheduled || v.NextMs > r.clock.wallMs+60_000 {
			t.Errorf("catch-up %d: the next occurrence is %d ms from now", catchUp, v.NextMs-r.clock.wallMs)
		}
		r.audit()
		r.abort()
	}
}

// TestSeriesIsNotSetBackInDoubt: a clock in doubt sets back no series, as it sets back no shard's
// clock.
func TestSeriesIsNotSetBackInDoubt(t *testing.T) {
	r := newHostHarness(t, nil)
	due := r.clock.wallMs + 1000
	r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: due, Repeat: &timer.Repeat{EveryMs: 60_000}}})
	r.pass(3 * time.Second)
	call := r.one()
	r.clock.set(-time.Hour)
	r.clock.trust = clocks.Held
	call.end(delivery.Outcome{Status: 200, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs})
	r.pass(time.Second)
	if v := r.timer("a"); v.State != timer.Scheduled || v.NextMs <= due {
		t.Errorf("state %d, the next occurrence is %d ms from the first one", v.State, v.NextMs-due)
	}
	r.clock.set(time.Hour)
	r.clock.trust = clocks.Sure
	r.pass(time.Minute)
	r.one()
	r.wantCalls("")
	r.audit()
}

// TestSeriesRetriedAcrossAClockSetBack: so does a series if its call in flight fails then. It is
// not retried at a time that the wrong clock had set.
func TestSeriesRetriedAcrossAClockSetBack(t *testing.T) {
	r := newHostHarness(t, nil)
	r.clock.set(time.Hour)
	r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: r.clock.wallMs + 1000, Repeat: &timer.Repeat{EveryMs: 60_000}}})
	r.pass(3 * time.Second)
	first := r.one()
	first.end(delivery.Outcome{Status: 200, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs})
	r.pass(time.Minute)
	second := r.one()
	r.clock.set(-time.Hour)
	r.pass(5 * time.Second)
	if !r.host.Table(1).AwaitsSeries() {
		t.Error("all series were seen to, and one has an open call")
	}
	second.end(delivery.Outcome{Status: 503, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs})
	r.pass(5 * time.Second)
	if v := r.timer("a"); v.State != timer.Scheduled || v.NextMs > r.clock.wallMs+60_000 {
		t.Errorf("it is tried again in %d ms", v.NextMs-r.clock.wallMs)
	}
	if table := r.host.Table(1); table.Restamping() || table.AwaitsSeries() {
		t.Error("not all series were seen to")
	}
	r.audit()
}

// TestOverlapAcrossAClockSetBack: the first occurrence of a series is due when its client says. If
// it was called before that, by a clock that was ahead, and is to be called again, the second one,
// which has not waited for its end, comes after it: there are not two for one time.
func TestOverlapAcrossAClockSetBack(t *testing.T) {
	r := newHostHarness(t, nil)
	at := r.clock.wallMs + 10_000
	r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: at, Repeat: &timer.Repeat{EveryMs: 60_000, Overlap: true}}})
	r.clock.set(time.Hour)
	r.pass(time.Second)
	first := r.one()
	r.clock.set(-time.Hour)
	r.pass(time.Second)
	first.answer(503)
	r.calls.auto = 200
	r.pass(80 * time.Second)
	var got []int64
	for _, c := range r.calls.take() {
		got = append(got, c.Job.DueMs-at)
	}
	if want := []int64{0, 60_000}; !slices.Equal(got, want) {
		t.Errorf("called for %v, want %v", got, want)
	}
	r.audit()
}

// TestOutcomesAcrossAClockSetBack: an outcome that was decided while the clock was ahead, and is in
// the pipeline when it is set back, counts from the time of the correction.
func TestOutcomesAcrossAClockSetBack(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(t *timer.Topic) { t.Policy.MinBackoffMs = 10_000 })
	r.topicsChanged()
	r.clock.set(time.Hour)
	r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: r.clock.wallMs - time.Hour.Milliseconds()}})
	r.pass(time.Second)
	call := r.one()
	r.clock.set(-time.Hour)
	call.end(delivery.Outcome{Status: 503, StartedMs: r.clock.wallMs + time.Hour.Milliseconds(), EndedMs: r.clock.wallMs + time.Hour.Milliseconds() + 5})
	r.pass(9 * time.Second)
	r.wantCalls("")
	r.pass(2 * time.Second)
	if second := r.one(); second.Job.ID != "a" || second.Job.Attempts != 2 {
		t.Errorf("%+v", second.Job)
	}
	if v := r.timer("a"); v.FiredMs > r.clock.wallMs {
		t.Errorf("it says that it was called %d ms from now", v.FiredMs-r.clock.wallMs)
	}
	r.audit()
}

// TestSeriesReportedInDoubt: a new leader whose clock is in doubt, and ten years ahead, receives
// the report of its predecessor's call. Once its clock is right, the series continues at the right
// time. Nothing would correct it later: the shard's own clock was never ahead. Found by the
// simulator.
func TestSeriesReportedInDoubt(t *testing.T) {
	for _, test := range []struct {
		catchUp timer.CatchUp
		untilMs int64 // after the first occurrence
	}{{timer.CatchUpOne, 0}, {timer.CatchUpSkip, 0}, {timer.CatchUpOne, 600_000}, {timer.CatchUpSkip, 600_000}} {
		r := newHostHarness(t, nil)
		due := r.clock.wallMs + 1000
		repeat := timer.Repeat{EveryMs: 60_000, CatchUp: test.catchUp}
		if test.untilMs > 0 {
			repeat.UntilMs = due + test.untilMs
		}
		r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: due, Repeat: &repeat}})
		r.pass(3 * time.Second)
		j, former := &r.one().Job, r.host.cfg.Incarnation
		ended := delivery.Outcome{Status: 200, StartedMs: due, EndedMs: r.clock.wallMs}
		r.kill()
		r.clock.set(tenYears)
		r.clock.trust = clocks.Unknown
		r.mustOpen()
		r.peerMessageOf(8, reportMessage, appendReport(nil, &scheduler.Report{Owner: former, Handle: j.Handle, Seq: j.Seq, Fence: j.Fence, Attempt: ended}))
		r.pass(time.Second)
		r.clock.set(-tenYears)
		r.clock.trust = clocks.Sure
		r.pass(time.Second)
		if v := r.timer("a"); v.State != timer.Scheduled || v.NextMs != due+60_000 {
			t.Errorf("%+v: state %d, the next occurrence is %d ms after the first", test, v.State, v.NextMs-due)
		}
		r.audit()
		r.abort()
	}
}
