package client

import (
	"context"
	"net/http"
)

// Timers pauses and resumes timers of a topic. Timer.Paused shows it.
type Timers struct {
	c     *Client
	topic string
}

// Timers are the timers of a topic.
func (c *Client) Timers(topic string) Timers { return Timers{c, topic} }

// Pause holds a timer: no attempt starts until it is resumed, not even by Fire. It may be held
// already. Occurrences of a series that come due meanwhile are missed and follow its CatchUp.
func (t Timers) Pause(ctx context.Context, id string, cond Cond) (*Timer, error) {
	return t.one(ctx, id, "pause", cond)
}

// Resume undoes Pause. If its time has passed, it is called now.
func (t Timers) Resume(ctx context.Context, id string, cond Cond) (*Timer, error) {
	return t.one(ctx, id, "resume", cond)
}

// PauseAll holds the timers that are selected. It may take long, and is safe to repeat.
func (t Timers) PauseAll(ctx context.Context, s Selector) (Counts, error) {
	return t.c.changeMany(ctx, Path("topics", t.topic, "pause-timers"), s, s.DryRun)
}

// ResumeAll resumes the timers that are selected. It may take long, and is safe to repeat.
func (t Timers) ResumeAll(ctx context.Context, s Selector) (Counts, error) {
	return t.c.changeMany(ctx, Path("topics", t.topic, "resume-timers"), s, s.DryRun)
}

// one makes a change that is safe to repeat.
func (t Timers) one(ctx context.Context, id, verb string, cond Cond) (*Timer, error) {
	return one[Timer](ctx, t.c, Request{Method: http.MethodPost, Path: timerPath(t.topic, id, verb), Topic: t.topic, Timer: id, IfMatch: cond.Version, Repeatable: true}, nil)
}
