package shard

import (
	"testing"
)

func TestJudge(t *testing.T) {
	p := DefaultPolicy()
	p.MaxAttempts, p.DeadRetentionMs, p.Jitter = 3, 1000, 0
	f := func(name string, own Retry, attempts int, a Attempt, want Outcome) {
		t.Helper()
		a.StartedMs, a.EndedMs = 100, 200
		want.StartedMs, want.EndedMs, want.Status, want.Err = 100, 200, a.Status, a.Err
		if got := judge(&p, &own, attempts, &a, 0.5); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	f("200", Retry{}, 1, Attempt{Status: 200}, Outcome{Kind: Ack})
	f("204 at the last attempt", Retry{}, 3, Attempt{Status: 204}, Outcome{Kind: Ack})
	f("299", Retry{}, 1, Attempt{Status: 299}, Outcome{Kind: Ack})
	f("199", Retry{}, 1, Attempt{Status: 199}, Outcome{Kind: RetryLater, NextMs: 1200})
	f("redirect", Retry{}, 1, Attempt{Status: 302}, Outcome{Kind: RetryLater, NextMs: 1200})
	f("200, then the body failed", Retry{}, 1, Attempt{Status: 200, Err: "body"}, Outcome{Kind: RetryLater, NextMs: 1200})
	f("second failure", Retry{}, 2, Attempt{Status: 500}, Outcome{Kind: RetryLater, NextMs: 2200})
	f("last failure", Retry{}, 3, Attempt{Status: 500}, Outcome{Kind: Kill, Reason: MaxAttempts, RetainUntilMs: 1200})
	f("no answer", Retry{}, 1, Attempt{Err: "reset"}, Outcome{Kind: RetryLater, NextMs: 1200})
	f("stop", Retry{}, 1, Attempt{Status: 410}, Outcome{Kind: Kill, Reason: Stopped, RetainUntilMs: 1200})
	f("stop at the last attempt", Retry{}, 3, Attempt{Status: 410}, Outcome{Kind: Kill, Reason: Stopped, RetainUntilMs: 1200})
	f("not sent", Retry{}, 3, Attempt{NotSent: true, Err: "late"}, Outcome{Kind: Release})
	f("refused", Retry{}, 1, Attempt{Refused: true, Err: "no"}, Outcome{Kind: RetryLater, NextMs: 1200})
	f("refused to the end", Retry{}, 3, Attempt{Refused: true, Err: "no"}, Outcome{Kind: Kill, Reason: Refused, RetainUntilMs: 1200})
	f("Retry-After", Retry{}, 1, Attempt{Status: 503, RetryAfterMs: 7000}, Outcome{Kind: RetryLater, NextMs: 7200})
	f("own attempts", Retry{MaxAttempts: 1}, 1, Attempt{Status: 500}, Outcome{Kind: Kill, Reason: MaxAttempts, RetainUntilMs: 1200})
	f("more of its own", Retry{MaxAttempts: 9}, 3, Attempt{Status: 500}, Outcome{Kind: RetryLater, NextMs: 4200})
}

func TestI17Backoff(t *testing.T) {
	p := DefaultPolicy()
	f := func(own Retry, attempts int, random float64, want int64) {
		t.Helper()
		if got := backoffMs(&p, &own, attempts, random); got != want {
			t.Errorf("%+v, attempt %d, random %g: %d ms, want %d", own, attempts, random, got, want)
		}
	}
	f(Retry{}, 1, 0.5, 1000)
	f(Retry{}, 2, 0.5, 2000)
	f(Retry{}, 12, 0.5, 2_048_000)
	f(Retry{}, 13, 0.5, 3_600_000)
	f(Retry{}, 60_000, 0.5, 3_600_000) // the power is infinite: the limit holds
	f(Retry{}, 1, 0, 800)
	f(Retry{}, 1, 1, 1200)
	f(Retry{MinBackoffMs: 10}, 1, 0.5, 10)
	f(Retry{MaxBackoffMs: 1500}, 5, 0.5, 1500)
	f(Retry{Multiplier: 1}, 9, 0.5, 1000)
	f(Retry{Multiplier: 1.5}, 3, 0.5, 2250)
	f(Retry{HasJitter: true}, 1, 0, 1000)
	f(Retry{MinBackoffMs: 1, HasJitter: true, Jitter: 1}, 1, 0, 1) // never at once
}
