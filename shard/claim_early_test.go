package shard

import (
	"encoding/binary"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// A receiver's report may arrive before the node has received, or logged, the 202 response: the
// receiver's worker is quick, or called another node.

// running returns a running call of a timer of topic 1, and its receipt.
func (h *hostHarness) running() (*fakeCall, timer.PulledTimer) {
	h.t.Helper()
	h.add("a", 0)
	h.pass(time.Millisecond)
	c := h.one()
	return c, timer.PulledTimer{Handle: c.Job.Handle, Timer: &timer.Timer{ID: "a", Seq: c.Job.Seq, Fence: c.Job.Fence}}
}

func TestAckBeforeTheAnswer(t *testing.T) {
	for _, status := range []int{200, 202, 500} {
		r := reportHarness(t)
		r.topic(1, func(topic *timer.Topic) {
			topic.Policy.Report, topic.Policy.Serial, topic.Policy.Concurrency = true, true, 1
		})
		r.topicsChanged()
		c, v := r.running()
		r.pass(time.Second)
		r.wantClaim(timer.AckLease, v, timer.OK, nil)
		r.wantState("a", "done 1")
		if got := r.timer("a"); got.FiredMs != c.wallMs || got.LatenessMs != 0 || got.LastStatus != 0 {
			t.Errorf("%+v", *got)
		}
		r.wantClaim(timer.AckLease, v, timer.OK, nil) // a repeated ack is acknowledged too
		r.wantClaim(timer.NackLease, v, timer.Skipped, nil)
		c.answer(status)
		r.pass(time.Minute)
		r.wantState("a", "done 1")
		r.wantClaim(timer.AckLease, v, timer.OK, nil)
		// The call that was acked before it ended blocks nothing.
		r.add("b", 0)
		r.pass(time.Millisecond)
		r.one().answer(200)
		r.runIdle()
		r.audit()
	}
}

// TestClaimWaitsForTheAnswer: a nack or an extension means something else before the response than
// after it, and so waits for the response.
func TestClaimWaitsForTheAnswer(t *testing.T) {
	for _, tc := range []struct {
		kind   timer.Kind
		status int
		want   timer.Code
		state  string
	}{
		{timer.NackLease, 202, timer.OK, "scheduled 1"}, {timer.NackLease, 200, timer.Skipped, "done 1"}, {timer.NackLease, 500, timer.Skipped, "scheduled 1"},
		{timer.ExtendLease, 202, timer.OK, "leased 1"}, {timer.ExtendLease, 200, timer.Skipped, "done 1"},
	} {
		r := reportHarness(t)
		c, v := r.running()
		said := r.mustSubmit(timer.Command{Kind: tc.kind, Topic: 1, Claim: &timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence, LeaseMs: 60_000, DelayMs: 5_000, HasDelay: true}})
		r.pass(100 * time.Millisecond)
		if said.answered() {
			t.Fatalf("claim %d is answered while the call runs", tc.kind)
		}
		c.answer(tc.status)
		r.runIdle()
		if !said.answered() || said.op.err != nil || said.op.result.Code != tc.want {
			t.Errorf("claim %d after %d: %v, %+v", tc.kind, tc.status, said.op.err, said.op.result)
		}
		r.wantState("a", tc.state)
		if tc.kind == timer.ExtendLease && tc.want == timer.OK {
			r.pass(59 * time.Second)
			r.wantState("a", "leased 1")
		}
		r.audit()
	}
}

// TestClaimBeforeTheCall: a lease acquired ahead of its timer's due time cannot be claimed by
// clients.
func TestClaimBeforeTheCall(t *testing.T) {
	r := reportHarness(t)
	r.add("a", 10*time.Millisecond)
	r.runIdle()
	h, _ := r.table().Lookup(1, "a")
	d := r.table().Due(h)
	if d.State != timer.Leased {
		t.Fatalf("not leased ahead of its time: %+v", d)
	}
	for _, kind := range []timer.Kind{timer.AckLease, timer.NackLease, timer.ExtendLease} {
		r.wantClaim(kind, timer.PulledTimer{Handle: h, Timer: &timer.Timer{Seq: d.Seq, Fence: d.Fence}}, timer.Skipped, nil)
	}
	r.pass(20 * time.Millisecond)
	r.one().answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
}

// TestClaimOfAFormerLeadersCall: the receiver may have answered a former leader. Its report still
// counts.
func TestClaimOfAFormerLeadersCall(t *testing.T) {
	for kind, state := range map[timer.Kind]string{timer.AckLease: "done 1", timer.NackLease: "scheduled 1", timer.ExtendLease: "leased 1"} {
		r := reportHarness(t)
		_, v := r.running()
		r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
		r.restart()
		r.topic(1, func(topic *timer.Topic) { topic.Policy.Report = true })
		r.topicsChanged()
		r.wantClaim(kind, v, timer.OK, func(c *timer.LeaseUpdate) { c.LeaseMs, c.DelayMs, c.HasDelay = 60_000, 90_000, true })
		r.pass(59 * time.Second) // the former leader's call can no longer run
		r.wantState("a", state)
		r.wantCalls("")
		if kind == timer.ExtendLease {
			r.wantClaim(timer.AckLease, v, timer.OK, nil)
			r.wantState("a", "done 1")
		}
		r.audit()
	}
}

// TestAnswerToldAfterTheExtension: a former leader reports the 202 response while the receiver's
// extension is being logged. The lease lasts as long as the receiver was promised. Found by the
// simulator.
func TestAnswerToldAfterTheExtension(t *testing.T) {
	r := reportHarness(t)
	_, v := r.running()
	former := r.host.cfg.Incarnation
	r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
	r.restart()
	r.topic(1, func(topic *timer.Topic) { topic.Policy.Report = true })
	r.topicsChanged()
	r.pass(100 * time.Millisecond)
	r.freeze = true
	said, err := r.submit(1, timer.Command{Kind: timer.ExtendLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence, LeaseMs: 90_000}})
	if err != nil {
		t.Fatal(err)
	}
	r.turn()
	f := &scheduler.Report{Owner: former, Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence, Attempt: delivery.Outcome{Status: 202, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs}}
	body := appendReport(nil, f)
	frame := binary.AppendUvarint([]byte{frameVersion, reportMessage}, 1)
	r.host.Deliver(9, append(binary.LittleEndian.AppendUint32(frame, uint32(len(body))), body...))
	r.turn()
	r.freeze = false
	r.pass(100 * time.Millisecond)
	if !said.answered() || said.op.err != nil || said.op.result.Code != timer.OK {
		t.Fatalf("%v, %+v", said.op.err, said.op.result)
	}
	r.pass(89 * time.Second) // the topic grants 30 s
	r.wantState("a", "leased 1")
	r.wantClaim(timer.AckLease, v, timer.OK, nil)
	r.audit()
}
