package shard

import (
	"testing"
	"time"

	"carillon/timer"
)

// TestPullOfSerialTopic: consumers get one lease per key, in order, through backoff and across a
// takeover (I21).
func TestPullOfSerialTopic(t *testing.T) {
	r := pullHarness(t, func(p *timer.Policy) { p.Serial = true })
	serial := func() { r.pulled(func(p *timer.Policy) { p.Serial = true }) }
	r.add("{k}a", 0)
	r.add("{k}b", 0)
	r.add("{m}c", 0)
	r.pass(time.Millisecond)
	got := r.wantPull(9, "{k}a {m}c")
	r.wantPull(9, "")
	r.wantClaim(timer.NackLease, got[0], timer.OK, nil)
	r.wantPull(9, "") // a blocks its key through its backoff
	r.pass(time.Second)
	got = r.wantPull(9, "{k}a")
	r.restart()
	serial()
	r.pass(100 * time.Millisecond)
	r.wantPull(9, "")
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil)
	r.wantPull(9, "{k}b")
	r.audit()
}

// TestPullWithinLimits: consumers' leases count toward the topic's limits, under any leader, until
// they are over.
func TestPullWithinLimits(t *testing.T) {
	limited := func(p *timer.Policy) { p.Concurrency = 2 }
	r := pullHarness(t, limited)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.add(id, 0)
	}
	r.pass(time.Millisecond)
	got := r.wantPull(9, "a b")
	r.pass(time.Second)
	r.wantPull(9, "")
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil)
	got = append(got, r.wantPull(9, "c")...)
	r.restart()
	r.pulled(limited)
	r.pass(200 * time.Millisecond)
	r.wantPull(9, "")
	r.wantClaim(timer.NackLease, got[1], timer.OK, func(c *timer.LeaseUpdate) { c.HasDelay, c.DelayMs = true, 3_600_000 })
	r.wantPull(9, "d")
	r.pass(31 * time.Second) // the leases of c and d expire
	r.wantPull(9, "c d")
	r.audit()
}

func TestPullAtARate(t *testing.T) {
	r := pullHarness(t, func(p *timer.Policy) { p.Rate = timer.Rate{PerSecond: 10, Burst: 2} })
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.add(id, 0)
	}
	r.pass(time.Millisecond)
	r.wantPull(9, "a b")
	r.pass(100 * time.Millisecond)
	r.wantPull(9, "c")
	r.pass(200 * time.Millisecond)
	r.wantPull(9, "d e")
}

// TestReportCounts: a timer that its receiver has accepted keeps its key and its concurrency slot
// until the receiver reports.
func TestReportCounts(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(topic *timer.Topic) {
		topic.Policy.Report, topic.Policy.Serial, topic.Policy.Concurrency = true, true, 1
	})
	r.topicsChanged()
	r.add("{k}a", 0)
	r.add("{k}b", 0)
	r.add("{m}c", 0)
	r.pass(time.Millisecond)
	c := r.one()
	c.answer(202)
	r.pass(time.Second)
	r.wantCalls("")
	r.wantClaim(timer.AckLease, timer.PulledTimer{Handle: c.Job.Handle, Timer: r.timer(c.Job.ID)}, timer.OK, nil)
	r.pass(200 * time.Millisecond)
	r.one().answer(200)
	r.pass(200 * time.Millisecond)
	r.one().answer(200)
	r.pass(time.Second)
	r.wantState("{k}b", "done 1")
	r.wantState("{m}c", "done 1")
}

// TestPullKeepsItsKeyUntilApplied: a response about a timer that has no logged lease yet does not
// free its key (I21). Found by the simulator.
func TestPullKeepsItsKeyUntilApplied(t *testing.T) {
	r := pullHarness(t, func(p *timer.Policy) { p.Serial = true })
	r.add("{k}a", 0)
	r.add("{k}b", 0)
	r.pass(time.Millisecond)
	r.freeze = true
	if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "{k}a", Content: 99, Spec: &timer.Spec{DueMs: 5}}); err != nil {
		t.Fatal(err)
	}
	r.turn()
	took := &pullRequest{shard: r.host.shard(1), topic: 1, most: 9, deadline: r.clock.mono + waitLimit, wait: fakeWaiter()}
	if err := r.host.workers[0].box.offer(took); err != nil {
		t.Fatal(err)
	}
	r.turn()
	r.freeze = false
	r.runIdle()
	if got := takenIDs(took.pulled); got != "{k}a" {
		t.Fatalf("pulled %q", got)
	}
	r.wantPull(9, "")
	r.audit()
}
