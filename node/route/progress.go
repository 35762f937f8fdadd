package route

import (
	"context"

	"carillon/shard/wire"
	"carillon/timer"
	"carillon/timer/encoding"
)

// progressTries is how many nodes are asked for progress: one, and the one that it names.
const progressTries = 2

// Progress asks a shard's leader why timers wait, and how their attempts went. It is extra
// information, so no read waits for it: where the leader is not found at once, or its release does
// not know the question, the answer is an error.
func (r *Router) Progress(ctx context.Context, id timer.ShardID, q *timer.ProgressQuery) (list []timer.Progress, err error) {
	ask := reading[[]timer.Progress]{
		of:     r.shards(),
		here:   func() ([]timer.Progress, error) { return r.progressHere(id, q) },
		method: methodProgress, within: timerCallIn,
		ask: func() []byte { return wire.AppendProgressRequest(nil, id, q) },
		take: func(answer []byte) ([]timer.Progress, error) {
			list, err := wire.DecodeProgress(answer)
			if err == nil && len(list) != len(q.IDs) {
				err = encoding.ErrFormat
			}
			return list, err
		},
	}
	var t target
	for range progressTries {
		t.choose(r, id)
		if list, err = readAt(ctx, r, t.node, &ask); err == nil || !t.takeLeaderHint(err) {
			break
		}
	}
	return list, err
}

// progressHere answers from this node's queues and its history.
func (r *Router) progressHere(id timer.ShardID, q *timer.ProgressQuery) ([]timer.Progress, error) {
	standings, err := r.host.Standings(id, q)
	if err != nil {
		return nil, err
	}
	list := make([]timer.Progress, len(standings))
	for i := range standings {
		s := &standings[i]
		list[i].Wait = s.Wait
		if q.Attempts && s.Attempts > 0 {
			log := r.cfg.History.Attempts(id, q.Topic, q.IDs[i], s)
			list[i].Attempts = log[max(0, len(log)-timer.AttemptLog):]
		}
	}
	return list, nil
}

func (r *Router) serveProgress(body []byte) ([]byte, error) {
	id, q, err := wire.DecodeProgressRequest(body)
	if err != nil {
		return nil, err
	}
	if err := r.notLeader(id); err != nil {
		return nil, err
	}
	list, err := r.progressHere(id, q)
	return wire.AppendProgress(nil, list), err
}
