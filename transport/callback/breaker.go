package callback

import (
	"errors"
	"sync/atomic"
	"time"

	"carillon/internal/delivery"

	"github.com/sony/gobreaker/v2"
)

// Breaker is a breaker policy. A zero field takes the default named next to it.
type Breaker struct {
	Failures int           // consecutive failures that open it: 5
	Window   time.Duration // within which they must fall: 10s
	Open     time.Duration // how long it stays open: 5s
	Probes   int           // calls that decide afterwards: 1
}

// maxBreakerFailures bounds the memory of failure times.
const maxBreakerFailures = 10_000

func (b Breaker) withDefaults() Breaker {
	if b.Failures <= 0 {
		b.Failures = 5
	}
	b.Failures = min(b.Failures, maxBreakerFailures)
	if b.Window <= 0 {
		b.Window = 10 * time.Second
	}
	if b.Open <= 0 {
		b.Open = 5 * time.Second
	}
	if b.Probes <= 0 {
		b.Probes = 1
	}
	return b
}

// The reports of a call to its breaker. nil is the answer of a live receiver.
var (
	errReceiverFailed = errors.New("receiver failed")
	errNotJudged      = errors.New("not judged") // cancelled, refused or not sent
)

// breaker is one three-state breaker in two steps: allow before the lease, the
// returned function after the call.
//
// The library's own window (Settings.Interval) is not used: it drops the result of
// every call that began before the window turned, so a receiver that hangs for as
// long as the window lasts would never open it. The window is kept here instead, by
// the times of the last failures.
type breaker struct {
	policy Breaker
	config *Config
	steps  *gobreaker.TwoStepCircuitBreaker[struct{}]

	// Written by the library's callbacks, which it calls under its own lock.
	failedAt  []time.Time // ring of the last policy.Failures failures
	failures  int
	last      atomic.Int64 // when the newest of them was, Unix ns
	openUntil atomic.Pointer[time.Time]
	changedAt atomic.Pointer[time.Time] // nil: it has been closed from the start

	report func(open bool) // called when it opens and when it closes, under that lock; must not block
}

func newBreaker(config *Config, policy Breaker, report func(open bool)) *breaker {
	c := &breaker{policy: policy, config: config, failedAt: make([]time.Time, policy.Failures), report: report}
	open := policy.Open
	if config.TestClock != nil {
		open = 1 // the library would use the machine's clock: see stays
	}
	c.steps = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   uint32(policy.Probes),
		Timeout:       open,
		ReadyToTrip:   c.readyToTrip,
		OnStateChange: c.stateChanged,
		IsExcluded:    func(err error) bool { return err == errNotJudged },
	})
	return c
}

// readyToTrip is called once for each failure while closed.
func (b *breaker) readyToTrip(counts gobreaker.Counts) bool {
	n := len(b.failedAt)
	now := b.config.timers()
	b.failedAt[b.failures%n] = now
	b.last.Store(now.UnixNano())
	b.failures++
	oldest := b.failedAt[b.failures%n]
	return int(counts.ConsecutiveFailures) >= n && now.Sub(oldest) <= b.policy.Window
}

func (b *breaker) stateChanged(_ string, _, to gobreaker.State) {
	now := b.config.timers()
	b.changedAt.Store(&now)
	if to == gobreaker.StateOpen {
		// The library opens strictly after its expiry: one tick more.
		until := now.Add(b.policy.Open + time.Millisecond)
		b.openUntil.Store(&until)
	}
	if to != gobreaker.StateHalfOpen { // then it is not decided
		b.report(to == gobreaker.StateOpen)
	}
}

// allow asks for one call. When it refuses, retryAt is when to ask again.
func (b *breaker) allow() (done func(error), retryAt time.Time) {
	if b.stays() {
		return nil, b.retryAt(true)
	}
	done, err := b.steps.Allow()
	if err == nil {
		return done, time.Time{}
	}
	return nil, b.retryAt(errors.Is(err, gobreaker.ErrOpenState))
}

// retryAt for a half-open breaker is a guess: its probes end when they end.
func (b *breaker) retryAt(open bool) time.Time {
	now := b.config.timers()
	if open {
		if until := b.openUntil.Load(); until != nil && until.After(now) {
			return *until
		}
		return now.Add(time.Millisecond)
	}
	return now.Add(min(max(b.policy.Open/8, 20*time.Millisecond), time.Second))
}

// blocked reports an open breaker without asking for a call.
func (b *breaker) blocked() (retryAt time.Time, blocked bool) {
	if b.changedAt.Load() == nil { // which spares the library's lock and clock
		return time.Time{}, false
	}
	if !b.stays() && b.steps.State() != gobreaker.StateOpen {
		return time.Time{}, false
	}
	return b.retryAt(true), true
}

// fresh reports that it has nothing that would be forgotten with it: it is closed, and no failure
// counts any more.
func (b *breaker) fresh() bool {
	return b.state() == delivery.BreakerClosed &&
		(b.steps.Counts().ConsecutiveFailures == 0 || b.config.timers().UnixNano()-b.last.Load() > int64(b.policy.Window))
}

// stays reports that it is open by the test clock.
func (b *breaker) stays() bool {
	if b.config.TestClock == nil {
		return false
	}
	until := b.openUntil.Load()
	return until != nil && b.config.TestClock().Before(*until)
}

func (b *breaker) state() delivery.BreakerState {
	if b.stays() {
		return delivery.BreakerOpen
	}
	switch b.steps.State() {
	case gobreaker.StateOpen:
		return delivery.BreakerOpen
	case gobreaker.StateHalfOpen:
		return delivery.BreakerHalfOpen
	}
	return delivery.BreakerClosed
}
