package route

import (
	"context"
	"time"

	"carillon/node/task"
)

const (
	firstPause = 10 * time.Millisecond // before the second try; doubling
	longPause  = 100 * time.Millisecond
)

// backoff paces the tries of one request.
type backoff struct {
	env      task.Env
	begin    time.Duration
	pause    time.Duration
	followed bool // a node named the leader, and was believed at once
}

func (r *Router) newBackoff(begin time.Duration) backoff { return backoff{env: r.tasks, begin: begin} }

// wait returns when it is time for another try; false when there is none. The first time that a
// leader was named, at once.
func (b *backoff) wait(ctx context.Context, hinted bool) bool {
	pause := max(b.pause, firstPause)
	if hinted && !b.followed {
		b.followed, pause = true, 0
	} else {
		b.pause = min(2*pause, longPause)
	}
	if b.env.Now()-b.begin+pause >= retryTime || ctx.Err() != nil {
		return false
	}
	return b.env.Sleep(ctx, pause)
}
