package route

import (
	"context"

	"carillon/shard/wire"
	"carillon/timer"
)

// Walk takes one step of a walk through a shard's timers, at its leader. A step that fails is taken
// again from where it began; the next may be another leader's: the way is the same on every
// replica. of is the number of shards that the step is right for: timer.ErrShards if there are more.
func (r *Router) Walk(ctx context.Context, id timer.ShardID, of int, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	err = r.read(ctx, &id, r.tasks.Now(), reading{
		of: of,
		here: func() error {
			marks, next, err = r.host.Walk(id, q, at)
			return err
		},
		method: methodWalk, within: scanCallIn,
		ask: func() []byte { return wire.AppendWalk(nil, id, q, at) },
		take: func(answer []byte) error {
			marks, next, err = wire.DecodeRefs(answer)
			return err
		},
	})
	if err != nil {
		return nil, at, err
	}
	return marks, next, nil
}

func (r *Router) serveWalk(_ context.Context, body []byte) []byte {
	id, q, at, err := wire.DecodeWalk(body)
	if err == nil {
		err = r.notLeader(id)
	}
	var marks []timer.Ref
	if err == nil {
		marks, at, err = r.host.Walk(id, q, at)
	}
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	return wire.AppendRefs(nil, marks, at)
}
