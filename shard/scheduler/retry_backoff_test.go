package scheduler

import (
	"slices"
	"testing"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

func TestJudge(t *testing.T) {
	p := timer.DefaultPolicy()
	p.MaxAttempts, p.DeadRetentionMs, p.Jitter = 3, 1000, 0
	f := func(name string, own timer.Retry, attempts int, a delivery.Outcome, want table.Outcome) {
		t.Helper()
		a.StartedMs, a.EndedMs = 100, 200
		want.StartedMs, want.EndedMs, want.Status, want.Err = 100, 200, a.Status, a.Err
		if got := judge(&p, &own, attempts, &a, 0.5); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	f("200", timer.Retry{}, 1, delivery.Outcome{Status: 200}, table.Outcome{Kind: table.Ack})
	f("204 at the last attempt", timer.Retry{}, 3, delivery.Outcome{Status: 204}, table.Outcome{Kind: table.Ack})
	f("299", timer.Retry{}, 1, delivery.Outcome{Status: 299}, table.Outcome{Kind: table.Ack})
	f("199", timer.Retry{}, 1, delivery.Outcome{Status: 199}, table.Outcome{Kind: table.RetryLater, NextMs: 1200})
	f("redirect", timer.Retry{}, 1, delivery.Outcome{Status: 302}, table.Outcome{Kind: table.RetryLater, NextMs: 1200})
	f("200, then the body failed", timer.Retry{}, 1, delivery.Outcome{Status: 200, Err: "body"}, table.Outcome{Kind: table.RetryLater, NextMs: 1200})
	f("second failure", timer.Retry{}, 2, delivery.Outcome{Status: 500}, table.Outcome{Kind: table.RetryLater, NextMs: 2200})
	f("last failure", timer.Retry{}, 3, delivery.Outcome{Status: 500}, table.Outcome{Kind: table.Kill, Reason: timer.MaxAttempts, RetainUntilMs: 1200})
	f("no answer", timer.Retry{}, 1, delivery.Outcome{Err: "reset"}, table.Outcome{Kind: table.RetryLater, NextMs: 1200})
	f("stop", timer.Retry{}, 1, delivery.Outcome{Status: 410}, table.Outcome{Kind: table.Kill, Reason: timer.Stopped, RetainUntilMs: 1200})
	f("stop at the last attempt", timer.Retry{}, 3, delivery.Outcome{Status: 410}, table.Outcome{Kind: table.Kill, Reason: timer.Stopped, RetainUntilMs: 1200})
	f("not sent", timer.Retry{}, 3, delivery.Outcome{NotSent: true, Err: "late"}, table.Outcome{Kind: table.Release})
	f("refused", timer.Retry{}, 1, delivery.Outcome{Refused: true, Err: "no"}, table.Outcome{Kind: table.RetryLater, NextMs: 1200})
	f("refused to the end", timer.Retry{}, 3, delivery.Outcome{Refused: true, Err: "no"}, table.Outcome{Kind: table.Kill, Reason: timer.Refused, RetainUntilMs: 1200})
	f("Retry-After", timer.Retry{}, 1, delivery.Outcome{Status: 503, RetryAfterMs: 7000}, table.Outcome{Kind: table.RetryLater, NextMs: 7200})
	f("own attempts", timer.Retry{MaxAttempts: 1}, 1, delivery.Outcome{Status: 500}, table.Outcome{Kind: table.Kill, Reason: timer.MaxAttempts, RetainUntilMs: 1200})
	p.Report = true
	f("202 to a receipt", timer.Retry{}, 1, delivery.Outcome{Status: 202}, table.Outcome{Kind: table.Accepted, LeaseMs: p.LeaseFor()})
	f("202 without a receipt", timer.Retry{}, 1, delivery.Outcome{Status: 202, NoReceipt: true}, table.Outcome{Kind: table.Ack})
	f("more of its own", timer.Retry{MaxAttempts: 9}, 3, delivery.Outcome{Status: 500}, table.Outcome{Kind: table.RetryLater, NextMs: 4200})
}

func TestI17Backoff(t *testing.T) {
	p := timer.DefaultPolicy()
	f := func(own timer.Retry, attempts int, random float64, want int64) {
		t.Helper()
		if got := backoffMs(&p, &own, attempts, random); got != want {
			t.Errorf("%+v, attempt %d, random %g: %d ms, want %d", own, attempts, random, got, want)
		}
	}
	f(timer.Retry{}, 1, 0.5, 1000)
	f(timer.Retry{}, 2, 0.5, 2000)
	f(timer.Retry{}, 12, 0.5, 2_048_000)
	f(timer.Retry{}, 13, 0.5, 3_600_000)
	f(timer.Retry{}, 60_000, 0.5, 3_600_000) // the power is infinite: the limit holds
	f(timer.Retry{}, 1, 0, 800)
	f(timer.Retry{}, 1, 1, 1200)
	f(timer.Retry{MinBackoffMs: 10}, 1, 0.5, 10)
	f(timer.Retry{MaxBackoffMs: 1500}, 5, 0.5, 1500)
	f(timer.Retry{Multiplier: 1}, 9, 0.5, 1000)
	f(timer.Retry{Multiplier: 1.5}, 3, 0.5, 2250)
	f(timer.Retry{HasJitter: true}, 1, 0, 1000)
	f(timer.Retry{MinBackoffMs: 1, HasJitter: true, Jitter: 1}, 1, 0, 1) // never at once
}

// TestLatenessIsNotNegative: the clock was set back while the call ran. A negative lateness would
// have the sum of a histogram fall, which looks like a restart of the node.
func TestLatenessIsNotNegative(t *testing.T) {
	r := newReplica(t)
	a := r.add("a", 0)
	r.turn()
	r.want("a")
	r.now.WallMs -= 5000
	r.end(delivery.Outcome{Status: 204})
	r.state(a, timer.Done)
	if !slices.Equal(r.lateness, []int64{0}) {
		t.Errorf("lateness: %v", r.lateness)
	}
}

// TestAnswersThatAreNotKept: a topic can keep no answers, and a node whose memory is full keeps
// none either.
func TestAnswersThatAreNotKept(t *testing.T) {
	answer := &timer.Answer{Body: "card declined"}
	f := func(none, full bool, want *timer.Answer) {
		t.Helper()
		r := newReplica(t)
		r.full = full
		r.topic(1, func(p *timer.Policy) { p.NoAnswers = none })
		h := r.add("a", 0)
		d := r.table.Due(h)
		out := r.Scheduler.Outcomes.judge(h, &d, &delivery.Outcome{Status: 500, Err: "status 500", Answer: answer}, 0)
		if out.Kind != table.RetryLater || out.Answer != want {
			t.Errorf("none %v, full %v: %+v, answer %+v", none, full, out, out.Answer)
		}
	}
	f(false, false, answer)
	f(true, false, nil)
	f(false, true, nil)
}
