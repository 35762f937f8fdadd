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
	var answer []byte
	var err error
	switch method {
	case methodOps:
		answer, err = r.serveOps(body)
	case methodTimer:
		answer, err = r.serveTimer(body)
	case methodList:
		answer, err = r.serveList(timer.SlotRange{}, body)
	case methodSlots:
		var slots timer.SlotRange
		if slots, body, err = wire.DecodeSlots(body); err == nil {
			answer, err = r.serveList(slots, body)
		}
	case methodCounts:
		answer, err = r.serveCounts(body)
	case methodWalk:
		answer, err = r.serveWalk(body)
	case methodProgress:
		answer, err = r.serveProgress(body)
	case methodState:
		answer, err = r.serveState(from, body)
	case methodHistory:
		answer, err = r.serveHistory(body)
	case methodCandidates:
		answer, err = r.serveCandidates(ctx, body)
	case methodPull:
		answer, err = r.servePull(ctx, body)
	case methodAwait:
		answer, err = r.serveAwait(ctx, from, body)
	default:
		return nil, fmt.Errorf("route: method %d is not known here", method)
	}
	if err != nil {
		return wire.AppendFailure(nil, err), nil
	}
	return answer, nil
}

// notLeader refuses a shard that this node does not lead; nil when it does.
func (r *Router) notLeader(id timer.ShardID) error {
	if r.leads(id) {
		return nil
	}
	return timer.NotLeaderError{Leader: r.leader(id)}
}

// notAccepting is notLeader for commands, which may wait here for a leader.
func (r *Router) notAccepting(id timer.ShardID) error {
	if r.takes(id) {
		return nil
	}
	return r.notLeader(id)
}

func (r *Router) serveOps(body []byte) ([]byte, error) {
	ops, err := wire.DecodeOps(body)
	if err != nil {
		return nil, err
	}
	room := timer.NewAllowance(answerRoom)
	for i := range ops {
		ops[i].Room = room
		r.place(&ops[i])
	}
	if len(ops) == 1 {
		o := &ops[0]
		if o.Err = r.notAccepting(o.Shard); o.Err == nil {
			o.Result, o.Err = r.host.Do(o.Shard, o.Command, o.Brief)
		}
		return wire.AppendAnswers(nil, ops), nil
	}
	// A shard's leadership is looked at once, so that its operations are taken or refused together.
	refusal := make(map[timer.ShardID]error)
	led := make([]timer.Op, 0, len(ops))
	for i := range ops {
		o := &ops[i]
		err, known := refusal[o.Shard]
		if !known {
			err = r.notAccepting(o.Shard)
			refusal[o.Shard] = err
		}
		if o.Err = err; err == nil {
			led = append(led, *o)
		}
	}
	if len(led) == len(ops) {
		r.host.DoAll(ops)
		return wire.AppendAnswers(nil, ops), nil
	}
	if len(led) > 0 {
		r.host.DoAll(led)
	}
	for i := range ops {
		if ops[i].Err == nil {
			ops[i], led = led[0], led[1:]
		}
	}
	return wire.AppendAnswers(nil, ops), nil
}

func (r *Router) serveTimer(body []byte) ([]byte, error) {
	id, topic, name, err := wire.DecodeTimerRequest(body)
	if err != nil {
		return nil, err
	}
	id = r.shardOf(id, topic, name)
	if err := r.notLeader(id); err != nil {
		return nil, err
	}
	found, err := r.timerHere(id, topic, name)
	return wire.AppendTimer(nil, found), err
}

func (r *Router) serveCounts(body []byte) ([]byte, error) {
	topics, err := wire.DecodeCountsRequest(body)
	if err != nil {
		return nil, err
	}
	n, err := r.countHere(topics)
	return wire.AppendCounts(nil, n.led, n.counts), err
}
