package member

import (
	"context"
	"slices"
	"sync"

	"carillon/node/task"
	"carillon/ring"
	"carillon/timer"
)

// maxSettled bounds the moves that wait to be reported. The host reports those beyond it again.
const maxSettled = 4096

// settledMoves are the moves of this node's groups that are done, until the meta group knows.
type settledMoves struct {
	*local
	meta *metaClient

	mu    sync.Mutex
	list  []ring.Command
	added task.Signal
}

// Settled implements shard.Placement.
func (s *settledMoves) Settled(group timer.ShardID, epoch uint32) {
	s.mu.Lock()
	if len(s.list) < maxSettled {
		s.list = append(s.list, ring.Command{Verb: ring.Reconciled, Group: group, Epoch: epoch})
	}
	s.mu.Unlock()
	s.added.Set()
}

func (s *settledMoves) reportSettled(ctx context.Context) {
	for s.added.Wait(ctx, task.Forever) {
		for ctx.Err() == nil {
			s.mu.Lock()
			if len(s.list) == 0 {
				s.mu.Unlock()
				break
			}
			list := s.list
			s.list = nil
			s.mu.Unlock()
			list = slices.DeleteFunc(list, func(cmd ring.Command) bool {
				row, ok := s.State.Row(cmd.Group)
				return ok && (row.Settled || row.Epoch != cmd.Epoch)
			})
			s.meta.proposeAll(ctx, list, func(cmd *ring.Command, err error) bool {
				if err != nil {
					s.log.Debug("a finished move could not be reported; the host reports it again", "shard", uint32(cmd.Group), "error", err)
				}
				return true
			})
		}
	}
}
