package member

import (
	"context"

	"carillon/internal/feature"
	"carillon/ring"
)

// Finalize ends an upgrade: the feature level rises to the highest that any member understands, if
// all do. It returns the level that the cluster has then; without an upgrade that is the present
// one.
func (m *Member) Finalize(ctx context.Context) (feature.Level, error) {
	if err := m.CatchUp(ctx); err != nil { // this copy may lack a node's registration
		return 0, err
	}
	next := m.State.Upgrade().Next
	if next == m.State.Level() {
		return next, nil
	}
	if _, err := m.Propose(ctx, ring.Command{Verb: ring.Finalize, Level: next}); err != nil {
		return 0, err
	}
	for m.State.Level() < next { // the next request here is to see it
		if !m.tasks.Sleep(ctx, ownCopyPoll) {
			break
		}
	}
	return next, nil
}
