package shard

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// pullHarness is a host with a pulled topic 1, with leases of 30 s and at most three attempts.
func pullHarness(t *testing.T, change func(*timer.Policy)) *hostHarness {
	t.Helper()
	r := newHostHarness(t, nil)
	r.pulled(change)
	return r
}

func (h *hostHarness) pulled(change func(*timer.Policy)) {
	h.topic(1, func(topic *timer.Topic) {
		topic.Policy.Pull, topic.Policy.MaxAttempts = true, 3
		if change != nil {
			change(&topic.Policy)
		}
	})
	h.topicsChanged()
}

// reportHarness is a host that calls the receivers of topic 1, which report the outcome.
func reportHarness(t *testing.T) *hostHarness {
	r := newHostHarness(t, nil)
	r.topic(1, func(topic *timer.Topic) { topic.Policy.Report, topic.Policy.MaxAttempts = true, 2 })
	r.topicsChanged()
	return r
}

// pull pulls timers of topic 1 from shard 1.
func (h *hostHarness) pull(most int) (out []timer.PulledTimer) {
	h.t.Helper()
	h.blocking(func() {
		var err error
		if out, err = h.host.PullFrom(h.t.Context(), 1, 0, []timer.Share{{Shard: 1, Timers: most}}); err != nil {
			h.t.Error(err)
		}
	})
	return out
}

// wantPull pulls timers and checks their IDs.
func (h *hostHarness) wantPull(most int, want string) []timer.PulledTimer {
	h.t.Helper()
	got := h.pull(most)
	if ids := takenIDs(got); ids != want {
		h.t.Fatalf("pulled %q, want %q", ids, want)
	}
	return got
}

func takenIDs(list []timer.PulledTimer) string {
	var ids []string
	for _, t := range list {
		ids = append(ids, t.Timer.ID)
	}
	return strings.Join(ids, " ")
}

// claim acks, nacks or extends a lease.
func (h *hostHarness) claim(kind timer.Kind, t timer.PulledTimer, change func(*timer.LeaseUpdate)) timer.Code {
	h.t.Helper()
	c := timer.LeaseUpdate{Handle: t.Handle, Seq: t.Timer.Seq, Fence: t.Timer.Fence}
	if change != nil {
		change(&c)
	}
	return h.do(timer.Command{Kind: kind, Claim: &c}).Code
}

func (h *hostHarness) wantClaim(kind timer.Kind, t timer.PulledTimer, want timer.Code, change func(*timer.LeaseUpdate)) {
	h.t.Helper()
	if got := h.claim(kind, t, change); got != want {
		h.t.Errorf("claim %d on %q is answered %d, want %d", kind, t.Timer.ID, got, want)
	}
}

// TestPullOrder: timers are pulled by priority, due time and arrival, and none before its due time.
func TestPullOrder(t *testing.T) {
	r := pullHarness(t, nil)
	for i, c := range []struct {
		id       string
		delay    time.Duration
		priority uint8
	}{{"c", 20, 0}, {"d", 20, 0}, {"b", 10, 0}, {"a", 30, 9}, {"later", 31, 200}} {
		r.add(c.id, c.delay*time.Millisecond, func(s *timer.Spec) { s.Priority = c.priority })
		if i == 0 {
			r.wantPull(5, "")
		}
	}
	r.pass(9 * time.Millisecond)
	r.wantPull(5, "")
	r.pass(21 * time.Millisecond)
	var offers []timer.Candidate
	r.blocking(func() { offers, _ = r.host.Candidates(t.Context(), 1, 3) })
	if len(offers) != 3 || offers[0].Priority != 9 || offers[1].DueMs != fakeEpochMs+10 || offers[2].DueMs != fakeEpochMs+20 {
		t.Errorf("offers %+v", offers)
	}
	got := r.wantPull(3, "a b c")
	if v := got[1]; v.UntilMs != r.clock.wallMs+30_000 || v.Timer.State != timer.Leased || v.Timer.Attempts != 1 || v.Timer.Fence == 0 ||
		v.Timer.LatenessMs != 20 || v.Timer.FiredMs != r.clock.wallMs || string(v.Timer.Payload) != `"b"` {
		t.Errorf("taken %+v %+v", v, *v.Timer)
	}
	r.wantPull(3, "d")
	r.pass(time.Millisecond)
	r.wantPull(3, "later")
	r.wantState("a", "leased 1")
	r.wantCalls("")
	r.audit()
}

// TestPullOffersWhatIsDueAlready: consumers are offered a timer that was due when its add was
// answered, in each shard, however many wait there and however little time a turn has.
func TestPullOffersWhatIsDueAlready(t *testing.T) {
	const shards = 3 * leastShards
	for _, each := range []int{1, 2 * clockCheckSteps} {
		r := newHostHarness(t, func(c *Config) {
			c.Shards, c.MaxQueued, c.Clock = shards, 1<<20, slowClock{c.Clock.(*fakeClock)}
		})
		r.pulled(nil)
		var adds []*pending
		for i := range shards * each {
			p, err := r.submit(timer.ShardID(1+i%shards), timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: r.clock.wallMs - 1}})
			if err != nil {
				t.Fatal(err)
			}
			adds = append(adds, p)
		}
		for slices.ContainsFunc(adds, func(p *pending) bool { return !p.answered() }) {
			r.turn()
		}
		offered := map[timer.ShardID]bool{}
		r.atOnce(func() {
			list, _ := r.host.Candidates(t.Context(), 1, shards*each)
			for _, c := range list {
				offered[c.Shard] = true
			}
		})
		if len(offered) != shards {
			t.Errorf("%d timers in each shard: those of %d of %d shards are offered", each, len(offered), shards)
		}
	}
}

// TestPullOffersWhatIsDueInThisMillisecond: times are rounded up, so a timer that was to be due at
// once may be due a little after its answer.
func TestPullOffersWhatIsDueInThisMillisecond(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", time.Millisecond)
	r.add("b", 2*time.Millisecond)
	asked := make(chan int)
	go func() {
		list, _ := r.host.Candidates(t.Context(), 1, 3)
		asked <- len(list)
	}()
	for r.host.workers[0].box.waiting() == 0 {
		runtime.Gosched()
	}
	r.runIdle()
	select {
	case n := <-asked:
		t.Errorf("%d offers before the next millisecond", n)
	default:
		r.pass(time.Millisecond)
		if n := <-asked; n != 1 {
			t.Errorf("%d offers, not one", n)
		}
	}
}

// TestLateCallLooksTwice: a call that waits for the next millisecond looks once before it and once
// after, however many turns there are between, and one that awaits nothing looks once.
func TestLateCallLooksTwice(t *testing.T) {
	r := pullHarness(t, nil)
	looks := 0
	ask := func(looked bool) (ended chan struct{}) {
		ended = make(chan struct{})
		looks = 0
		go func() {
			defer close(ended)
			callWorkers(r.host, call{late: func(_ *worker, last bool) bool { looks++; return last || looked }})
		}()
		for r.host.workers[0].box.waiting() == 0 {
			runtime.Gosched()
		}
		return ended
	}
	r.add("a", time.Millisecond)
	ended := ask(false)
	for range 10 {
		r.turn()
	}
	r.pass(time.Millisecond)
	<-ended
	if looks != 2 {
		t.Errorf("it looked %d times", looks)
	}
	ended = ask(false)
	r.runIdle()
	<-ended
	if looks != 1 {
		t.Errorf("it looked %d times, and nothing was to come", looks)
	}
	r.add("b", time.Millisecond)
	ended = ask(true)
	r.runIdle()
	<-ended
	if looks != 1 {
		t.Errorf("it looked %d times, and had all at once", looks)
	}
}

// atOnce is blocking for a call that asks all workers. No worker has a turn before it is asked.
func (h *hostHarness) atOnce(fn func()) {
	asked := make([]int, len(h.host.workers))
	for i, w := range h.host.workers {
		asked[i] = w.box.waiting() + 1
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	for i, w := range h.host.workers {
		for w.box.waiting() < asked[i] {
			runtime.Gosched()
		}
	}
	h.runIdle()
	<-done
}

func TestAckLease(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	got := r.wantPull(1, "a")[0]
	r.wantClaim(timer.AckLease, got, timer.Skipped, func(c *timer.LeaseUpdate) { c.Fence++ })
	r.wantClaim(timer.AckLease, got, timer.Skipped, func(c *timer.LeaseUpdate) { c.Seq++ })
	r.wantClaim(timer.AckLease, got, timer.Skipped, func(c *timer.LeaseUpdate) { c.Handle += 5 })
	r.wantState("a", "leased 1")
	r.pass(time.Second)
	r.wantClaim(timer.AckLease, got, timer.OK, nil)
	r.wantState("a", "done 1")
	r.wantClaim(timer.AckLease, got, timer.OK, nil) // the response may have been lost
	r.wantClaim(timer.NackLease, got, timer.Skipped, nil)
	r.wantClaim(timer.ExtendLease, got, timer.Skipped, nil)
	if v := r.timer("a"); v.FiredMs != fakeEpochMs+1 || v.EndedMs != fakeEpochMs+1001 || v.LastStatus != 0 || r.observer.outcomes != 1 {
		t.Errorf("%+v, %d outcomes", *v, r.observer.outcomes)
	}
	if n := r.scheduler().View.Inspect().ConsumerLeases; n != 0 {
		t.Errorf("%d leases are still counted", n)
	}
}

// TestAckTwiceAtOnce: two acks of one lease in one entry are one delivery, and both succeed.
func TestAckTwiceAtOnce(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	v := r.wantPull(1, "a")[0]
	var sent []*pending
	for range 2 {
		p, err := r.submit(1, timer.Command{Kind: timer.AckLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence}})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p)
	}
	r.runIdle()
	for i, p := range sent {
		if !p.answered() || p.op.err != nil || p.op.result.Code != timer.OK {
			t.Errorf("ack %d: %+v %v", i, p.op.result, p.op.err)
		}
	}
	if r.observer.outcomes != 1 {
		t.Errorf("%d deliveries are counted", r.observer.outcomes)
	}
}

func TestNackLease(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	first := r.wantPull(1, "a")[0]
	r.wantClaim(timer.NackLease, first, timer.OK, func(c *timer.LeaseUpdate) { c.Reason = "no stock" })
	if v := r.timer("a"); v.State != timer.Scheduled || v.LastError != "no stock" || v.NextMs != r.clock.wallMs+1000 {
		t.Errorf("%+v", *v)
	}
	r.wantClaim(timer.NackLease, first, timer.Skipped, nil)
	r.pass(999 * time.Millisecond)
	r.wantPull(1, "")
	r.pass(time.Millisecond)
	second := r.wantPull(1, "a")[0]
	if second.Timer.Fence <= first.Timer.Fence || second.Timer.Attempts != 2 {
		t.Errorf("second lease %+v", *second.Timer)
	}
	r.wantClaim(timer.AckLease, first, timer.Skipped, nil)
	r.wantClaim(timer.NackLease, second, timer.OK, func(c *timer.LeaseUpdate) { c.HasDelay, c.DelayMs = true, 7 })
	r.pass(7 * time.Millisecond)
	r.wantClaim(timer.NackLease, r.wantPull(1, "a")[0], timer.OK, nil)
	r.wantState("a", "dead max_attempts 3")
	if v := r.timer("a"); v.LastError != "nack" {
		t.Errorf("last error %q", v.LastError)
	}
}

// TestLeaseRunsOut: a lease expires by the monotonic clock, whatever the wall clock does. The timer
// is then ready at once, until its attempts are used up.
func TestLeaseRunsOut(t *testing.T) {
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			r := pullHarness(t, nil)
			r.add("a", 0)
			r.pass(time.Millisecond)
			r.wantPull(1, "a")
			r.clock.wallMs += step.Milliseconds()
			r.pass(29_999 * time.Millisecond)
			r.wantState("a", "leased 1")
			r.pass(2 * time.Millisecond)
			r.wantState("a", "scheduled 1")
			if step < 0 {
				r.wantPull(1, "") // it is not due by the current clock
				return
			}
			r.wantPull(1, "a")
			r.pass(31 * time.Second)
			if v := r.timer("a"); v.LastError != scheduler.LeaseExpired {
				t.Errorf("last error %q", v.LastError)
			}
			r.wantPull(1, "a")
			r.pass(31 * time.Second)
			r.wantState("a", "dead max_attempts 3")
			r.wantPull(1, "")
			r.audit()
		})
	}
}

func TestExtendLease(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	v := r.wantPull(1, "a")[0]
	for range 5 {
		r.pass(29 * time.Second)
		r.wantClaim(timer.ExtendLease, v, timer.OK, nil)
	}
	r.wantState("a", "leased 1")
	r.wantClaim(timer.ExtendLease, v, timer.OK, func(c *timer.LeaseUpdate) { c.LeaseMs = 60_000 })
	r.pass(59 * time.Second)
	// This lease is shorter.
	r.wantClaim(timer.ExtendLease, v, timer.OK, func(c *timer.LeaseUpdate) { c.LeaseMs = 1000 })
	r.pass(999 * time.Millisecond)
	r.wantState("a", "leased 1")
	r.pass(2 * time.Millisecond)
	r.wantState("a", "scheduled 1")
	r.wantClaim(timer.ExtendLease, v, timer.Skipped, nil)
}

// TestExtendIsNotOvertaken: a lease that would end while its extension is being logged continues.
func TestExtendIsNotOvertaken(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	v := r.wantPull(1, "a")[0]
	r.pass(29_999 * time.Millisecond)
	r.freeze = true
	p, err := r.submit(1, timer.Command{Kind: timer.ExtendLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence}})
	if err != nil {
		t.Fatal(err)
	}
	r.turn()
	r.step(100 * time.Millisecond)
	r.turn()
	r.freeze = false
	r.pass(time.Second)
	if !p.answered() || p.op.result.Code != timer.OK {
		t.Fatalf("%+v", p.op.result)
	}
	r.wantState("a", "leased 1")
	r.pass(30 * time.Second)
	r.wantState("a", "scheduled 1")
}

// TestTakenTooLate: a host that leased a timer and was then suspended for longer than the lease
// does not hand it out: another consumer may have had it since.
func TestTakenTooLate(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.add("b", 0)
	r.pass(time.Millisecond)
	for _, late := range []bool{false, true} {
		var got []timer.PulledTimer
		answered := false
		r.freeze = true
		r.host.SubmitPull(1, 1, 1, 1000, func(list []timer.PulledTimer, err error) {
			if got, answered = list, true; err != nil {
				t.Error(err)
			}
		})
		r.turn()
		r.step(900 * time.Millisecond)
		if late {
			r.step(200 * time.Millisecond)
		}
		r.freeze = false
		r.runIdle()
		if want := map[bool]int{false: 1}[late]; !answered || len(got) != want {
			t.Errorf("late: %v, answered: %v, %d timers, want %d", late, answered, len(got), want)
		}
	}
	r.pass(2 * time.Second)
	r.wantPull(2, "a b")
}

// TestTakenBeforeItStoodStill: a pull from several shards waits for the last of them. A timer is
// not handed out if the process was suspended for longer than its lease meanwhile.
func TestTakenBeforeItStoodStill(t *testing.T) {
	var r *hostHarness
	var still time.Duration
	r = newHostHarness(t, func(c *Config) {
		c.Block = func(register func(wake func())) {
			woken := false
			register(func() { woken = true })
			r.runIdle()
			if !woken {
				t.Fatal("the take is not over")
			}
			r.clock.mono += still
		}
	})
	r.pulled(nil)
	r.add("a", 0)
	r.add("b", 0)
	r.pass(time.Millisecond)
	for _, tt := range []struct {
		still time.Duration
		want  int
	}{{900 * time.Millisecond, 1}, {1000 * time.Millisecond, 0}} {
		still = tt.still
		list, err := r.host.PullFrom(t.Context(), 1, 1000, []timer.Share{{Shard: 1, Timers: 1}})
		if err != nil || len(list) != tt.want {
			t.Errorf("after %v: %d timers, want %d; %v", still, len(list), tt.want, err)
		}
	}
}

// TestConsumerLeaseOutlivesItsLeader: a consumer's lease survives a takeover, and lasts in full
// from then on.
func TestConsumerLeaseOutlivesItsLeader(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.add("b", 0)
	r.add("c", 0)
	r.pass(time.Millisecond)
	got := r.wantPull(3, "a b c")
	r.wantClaim(timer.ExtendLease, got[2], timer.OK, func(c *timer.LeaseUpdate) { c.LeaseMs = 90_000 })
	r.pass(25 * time.Second)
	r.restart()
	r.pulled(nil)
	r.wantState("a", "leased 1")
	r.pass(20 * time.Second)
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil)
	r.wantState("a", "done 1")
	r.pass(9 * time.Second)
	r.wantState("b", "leased 1")
	r.pass(2 * time.Second)
	r.wantState("b", "scheduled 1")
	r.pass(58 * time.Second)
	r.wantState("c", "leased 1")
	r.pass(2 * time.Second)
	r.wantState("c", "scheduled 1")
	r.wantPull(3, "b c")
	r.restart()
	r.pulled(nil)
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil) // a repeated ack, at another leader
	r.audit()
}

func TestCancelOfWhatAConsumerHas(t *testing.T) {
	for end, want := range map[string]string{"ack": "done 1", "nack": "cancelled 1", "silence": "cancelled 1"} {
		t.Run(end, func(t *testing.T) {
			r := pullHarness(t, nil)
			r.add("a", 0)
			r.pass(time.Millisecond)
			v := r.wantPull(1, "a")[0]
			if got := r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: &timer.Patch{Due: true}}); got.Code != timer.InFlight {
				t.Errorf("modify: %d", got.Code)
			}
			if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.CancelInFlight {
				t.Errorf("cancel: %d", got.Code)
			}
			r.wantClaim(timer.ExtendLease, v, timer.OK, nil)
			switch end {
			case "ack":
				r.wantClaim(timer.AckLease, v, timer.OK, nil)
			case "nack":
				r.wantClaim(timer.NackLease, v, timer.OK, nil)
			default:
				r.pass(31 * time.Second)
			}
			r.wantState("a", want)
			r.wantPull(1, "")
		})
	}
}

// TestPullOfWhatMayNotGo: nothing is pulled from a paused topic or a draining host, nor an expired
// or cancelled timer.
func TestPullOfWhatMayNotGo(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.add("short", 0, func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, 5 })
	r.pass(time.Millisecond)
	r.topics[1].Paused = true
	r.topicsChanged()
	r.wantPull(2, "")
	r.pass(time.Second)
	r.wantState("short", "dead expired 0")
	paused := *r.topics[1]
	paused.Paused = false
	r.topics[1] = &paused
	r.topicsChanged()
	r.add("b", 0)
	r.pass(time.Millisecond)
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "b"}); got.Code != timer.Prevented {
		t.Errorf("cancel: %d", got.Code)
	}
	r.host.draining.Store(true)
	r.wantPull(2, "")
	r.host.draining.Store(false)
	r.wantPull(2, "a")
	r.wantPull(2, "")
}

// TestDeliveryChanges: waiting timers follow a change of the delivery mode.
func TestDeliveryChanges(t *testing.T) {
	r := pullHarness(t, nil)
	r.add("a", 0)
	r.add("soon", 30*time.Millisecond)
	r.pass(20 * time.Millisecond)
	r.topic(1, nil)
	r.topicsChanged()
	r.pass(time.Millisecond)
	r.wantCalls("a")
	r.pass(10 * time.Millisecond)
	r.wantCalls("soon")
	r.calls.dest("http://receiver-1/").retryIn = time.Minute
	r.add("b", 0)
	r.pass(time.Millisecond)
	r.wantCalls("")
	r.pulled(nil)
	r.wantPull(2, "b")
	r.audit()
}

// TestReadyIsTold: the host notifies when a timer becomes ready, and repeatedly while it is.
func TestReadyIsTold(t *testing.T) {
	told := 0
	r := newHostHarness(t, func(c *Config) { c.Ready = func(timer.TopicID, int) { told++ } })
	r.pulled(nil)
	want := func(what string, least, most int) {
		t.Helper()
		if told < least || told > most {
			t.Errorf("%s: told %d times", what, told)
		}
		told = 0
	}
	r.add("a", 10*time.Millisecond)
	r.pass(9 * time.Millisecond)
	want("before its time", 0, 0)
	r.pass(time.Millisecond)
	want("in time", 1, 2)
	r.pass(time.Second)
	want("waiting", 15, 25)
	got := r.wantPull(1, "a")
	r.pass(time.Second)
	told = 0
	r.pass(10 * time.Second)
	want("leased", 0, 0)
	r.wantClaim(timer.NackLease, got[0], timer.OK, func(c *timer.LeaseUpdate) { c.HasDelay = true })
	r.runIdle()
	r.pass(time.Millisecond)
	want("given back", 1, 2)
}

// TestReport: a 202 response leaves the timer with the receiver.
func TestReport(t *testing.T) {
	r := reportHarness(t)
	r.add("a", 0)
	r.pass(time.Millisecond)
	c := r.one()
	c.answer(202)
	r.runIdle()
	r.wantState("a", "leased 1")
	v := timer.PulledTimer{Handle: c.Job.Handle, Timer: r.timer("a")}
	if v.Timer.Fence != c.Job.Fence || v.Timer.LastStatus != 202 {
		t.Errorf("%+v", *v.Timer)
	}
	r.pass(29 * time.Second)
	r.wantClaim(timer.ExtendLease, v, timer.OK, nil)
	r.pass(29 * time.Second)
	r.wantClaim(timer.AckLease, v, timer.OK, nil)
	r.wantState("a", "done 1")
	if v := r.timer("a"); v.LastStatus != 202 || v.FiredMs != c.wallMs || v.LatenessMs != 0 {
		t.Errorf("%+v", *v)
	}

	r.add("b", 0)
	r.pass(time.Millisecond)
	r.one().answer(200) // done at once
	r.runIdle()
	r.wantState("b", "done 1")
	r.audit()
}

func TestReportThatNeverComes(t *testing.T) {
	r := reportHarness(t)
	r.add("a", 0)
	r.pass(time.Millisecond)
	r.one().answer(202)
	r.pass(25 * time.Second)
	r.restart() // a receiver's lease outlives the host that called
	r.topic(1, func(topic *timer.Topic) { topic.Policy.Report, topic.Policy.MaxAttempts = true, 2 })
	r.topicsChanged()
	r.pass(29 * time.Second)
	r.wantState("a", "leased 1")
	r.pass(time.Second)
	r.wantState("a", "scheduled 1")
	r.wantCalls("") // it waits for its backoff
	r.pass(1010 * time.Millisecond)
	r.one().answer(202)
	r.pass(31 * time.Second)
	r.wantState("a", "dead max_attempts 2")
	r.audit()
}

func TestReportAfterCancel(t *testing.T) {
	r := reportHarness(t)
	r.add("a", 0)
	r.pass(time.Millisecond)
	c := r.one()
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.CancelInFlight {
		t.Errorf("cancel: %d", got.Code)
	}
	c.answer(202)
	r.runIdle()
	r.wantState("a", "leased 1")
	r.wantClaim(timer.NackLease, timer.PulledTimer{Handle: c.Job.Handle, Timer: r.timer("a")}, timer.OK, nil)
	r.wantState("a", "cancelled 1")
}

// TestClaimOfACall: a client without a receipt cannot end a call's lease with made-up numbers.
func TestClaimOfACall(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	r.pass(time.Millisecond)
	c := r.one()
	r.wantClaim(timer.AckLease, timer.PulledTimer{Handle: c.Job.Handle, Timer: r.timer("a")}, timer.Skipped, nil)
	c.answer(500)
	r.runIdle()
	r.wantState("a", "scheduled 1")
}

// TestPullersShare: of many concurrent pulls each gets different timers, in order of arrival.
func TestPullersShare(t *testing.T) {
	r := pullHarness(t, func(p *timer.Policy) { p.LeaseMs = 60_000 })
	for i := range 100 {
		r.add(fmt.Sprintf("t%02d", i), 0)
	}
	r.pass(time.Millisecond)
	var all []string
	var takes []*pullRequest
	for range 30 {
		takes = append(takes, &pullRequest{shard: r.host.shard(1), topic: 1, most: 4, deadline: r.clock.mono + waitLimit, wait: fakeWaiter()})
	}
	if err := r.host.workers[0].box.offer((*partOf[*pullRequest])(&takes)); err != nil {
		t.Fatal(err)
	}
	r.runIdle()
	for i, k := range takes {
		if want := min(4, 100-4*i); k.wait != nil || k.err != nil || len(k.pulled) != max(0, want) {
			t.Errorf("puller %d has %d timers: %v", i, len(k.pulled), k.err)
		}
		for _, v := range k.pulled {
			all = append(all, v.Timer.ID)
		}
	}
	if !slices.IsSorted(all) || len(slices.Compact(all)) != 100 {
		t.Errorf("%d timers: %v", len(all), all)
	}
	r.pass(2 * time.Minute)
	if n := r.scheduler().View.Inspect().ConsumerLeases; n != 0 {
		t.Errorf("%d leases are still counted", n)
	}
}

// TestEndedLeaseIsForgotten: a lease that ends early leaves nothing in memory until its expiry time.
func TestEndedLeaseIsForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	r := pullHarness(t, func(p *timer.Policy) { p.LeaseMs = 12 * 3_600_000 })
	for range 30 {
		for i := range 100 {
			r.add(fmt.Sprint("t", i), 0)
		}
		r.pass(time.Millisecond)
		for _, v := range r.pull(1000) {
			r.wantClaim(timer.AckLease, v, timer.OK, nil)
		}
	}
	if n := r.scheduler().View.Inspect().ConsumerLeases; n != 0 {
		t.Errorf("%d leases are still counted", n)
	}
}

// TestClaimOfALeaseNotSeenYet: a leader is suspended, and another leads meanwhile and grants a
// lease. The first must not report that lease as over until a majority has confirmed its
// leadership. Found by the simulator.
func TestClaimOfALeaseNotSeenYet(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	c.mute = true
	p, err := r.submit(1, timer.Command{Kind: timer.ExtendLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: 1, Seq: 1, Fence: r.table().LastFence() + 3}})
	if err != nil {
		t.Fatal(err)
	}
	r.runIdle()
	if p.answered() {
		t.Fatalf("answered %d, %v by one who may lead no more", p.op.result.Code, p.op.err)
	}
	c.mute = false
	r.pass(time.Second)
	if !p.answered() || p.op.err != nil || p.op.result.Code != timer.Skipped {
		t.Errorf("answered %v: %d, %v", p.answered(), p.op.result.Code, p.op.err)
	}
}

// SubmitPull leases ready timers of a topic in one shard to a consumer. then is called as by
// Submit.
func (d driver) SubmitPull(id timer.ShardID, topic timer.TopicID, most int, leaseMs int64, then func([]timer.PulledTimer, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	t := &pullRequest{shard: d.h.resolve(id).machine.(*timerShard), topic: topic, most: most, leaseMs: leaseMs, deadline: d.h.cfg.Clock.Mono() + waitLimit, wait: wait}
	wait.then = func() {
		if len(t.pulled) > 0 {
			t.err = nil
		}
		then(t.pulled, t.err)
	}
	if err := t.shard.g.w.box.offer(t); err != nil {
		then(nil, err)
	}
}
