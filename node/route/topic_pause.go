package route

import (
	"context"

	"carillon/ring"
	"carillon/timer"
)

// SetPaused stops a topic's calls, or starts them again.
func (t *Topics) SetPaused(ctx context.Context, name string, paused bool) (*timer.Topic, error) {
	verb := ring.Resume
	if paused {
		verb = ring.Pause
	}
	r, err := t.meta.Propose(ctx, ring.Command{Verb: verb, Name: name})
	return r.Topic, err
}
