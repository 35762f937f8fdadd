package route

import (
	"context"
	"fmt"
	"slices"

	"carillon/shard/wire"
	"carillon/timer"
)

// answerRoom is how many bytes of timers the answer to operations from another node carries; no
// client gets more in any case.
const answerRoom = 8 << 20

// Serve answers the requests of another node's Router. Only this node's own shards are used:
// nothing is passed on, so a request goes one hop at most, and the caller decides the next try. An
// error is only for methods that are not a router's.
func (r *Router) Serve(ctx context.Context, from uint64, method uint8, body []byte) ([]byte, error) {
	if method == methodSized || slices.Contains(sized, method) {
		return r.serveSized(method, body, func(method uint8, body []byte) ([]byte, error) { return r.serve(ctx, from, method, body) })
	}
	return r.serve(ctx, from, method, body)
}

func (r *Router) serve(ctx context.Context, from uint64, method uint8, body []byte) ([]byte, error) {
	switch method {
	case methodOps:
		return r.serveOps(ctx, body), nil
	case methodTimer:
		return r.serveTimer(ctx, body), nil
	case methodList:
		return r.serveList(ctx, body), nil
	case methodCounts:
		return r.serveCounts(ctx, body), nil
	case methodWalk:
		return r.serveWalk(ctx, body), nil
	case methodProgress:
		return r.serveProgress(ctx, body), nil
	case methodState:
		return r.serveState(ctx, from, body), nil
	case methodHistory:
		return r.serveHistory(body), nil
	case methodCandidates:
		return r.serveCandidates(ctx, body), nil
	case methodPull:
		return r.servePull(ctx, body), nil
	case methodAwait:
		return r.serveAwait(ctx, from, body), nil
	}
	return nil, fmt.Errorf("route: method %d is not known here", method)
}

// notLeader refuses a shard that this node does not lead; nil when it does.
func (r *Router) notLeader(id timer.ShardID) error {
	if r.leads(id) {
		return nil
	}
	return timer.NotLeaderError{Leader: r.leader(id)}
}

// notTaken is notLeader for commands, which may wait here for a leader.
func (r *Router) notTaken(id timer.ShardID) error {
	if r.takes(id) {
		return nil
	}
	return r.notLeader(id)
}

func (r *Router) serveOps(_ context.Context, body []byte) []byte {
	ops, err := wire.DecodeOps(body)
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	room := timer.NewAllowance(answerRoom)
	for i := range ops {
		ops[i].Room = room
		r.place(&ops[i])
	}
	if len(ops) == 1 {
		o := &ops[0]
		if o.Err = r.notTaken(o.Shard); o.Err == nil {
			o.Result, o.Err = r.host.Do(o.Shard, o.Command, o.Brief)
		}
		return wire.AppendAnswers(nil, ops)
	}
	// A shard's leadership is looked at once, so that its operations are taken or refused together.
	refusal := make(map[timer.ShardID]error)
	led := make([]timer.Op, 0, len(ops))
	for i := range ops {
		o := &ops[i]
		err, known := refusal[o.Shard]
		if !known {
			err = r.notTaken(o.Shard)
			refusal[o.Shard] = err
		}
		if o.Err = err; err == nil {
			led = append(led, *o)
		}
	}
	if len(led) == len(ops) {
		r.host.DoAll(ops)
		return wire.AppendAnswers(nil, ops)
	}
	if len(led) > 0 {
		r.host.DoAll(led)
	}
	for i := range ops {
		if ops[i].Err == nil {
			ops[i], led = led[0], led[1:]
		}
	}
	return wire.AppendAnswers(nil, ops)
}

func (r *Router) serveTimer(_ context.Context, body []byte) []byte {
	id, topic, name, err := wire.DecodeTimerRequest(body)
	if err == nil {
		id = r.shardOf(id, topic, name)
		err = r.notLeader(id)
	}
	var found *timer.Timer
	if err == nil {
		found, err = r.timerHere(id, topic, name)
	}
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	return wire.AppendTimer(nil, found)
}

func (r *Router) serveCounts(_ context.Context, body []byte) []byte {
	topics, err := wire.DecodeCountsRequest(body)
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	led, counts, err := r.countHere(topics)
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	return wire.AppendCounts(nil, led, counts)
}
