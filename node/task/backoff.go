package task

import (
	"context"
	"time"
)

const (
	// RetryTime is how long a request that surely was not carried out is tried again.
	RetryTime  = 1500 * time.Millisecond
	FirstPause = 10 * time.Millisecond // before the second try; doubling
	longPause  = 100 * time.Millisecond
)

// Backoff paces the tries of one request.
type Backoff struct {
	env      Env
	Begin    time.Duration
	pause    time.Duration
	followed bool // a node named the leader, and was believed at once
}

// NewBackoff is of a request that began at a time of env.
func NewBackoff(env Env, begin time.Duration) Backoff { return Backoff{env: env, Begin: begin} }

// Wait returns when it is time for another try; false when there is none. The first time that a
// leader was named, at once.
func (b *Backoff) Wait(ctx context.Context, hinted bool) bool {
	pause := max(b.pause, FirstPause)
	if hinted && !b.followed {
		b.followed, pause = true, 0
	} else {
		b.pause = min(2*pause, longPause)
	}
	if b.env.Now()-b.Begin+pause >= RetryTime || ctx.Err() != nil {
		return false
	}
	return b.env.Sleep(ctx, pause)
}
