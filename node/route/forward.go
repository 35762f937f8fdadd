package route

import (
	"context"
	"slices"
	"time"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

// Do has one command decided by its shard's leader.
func (r *Router) Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	begin := r.tasks.Now()
	if !r.takes(id) {
		return r.doAnywhere(ctx, timer.Op{Shard: id, Command: cmd, Brief: brief}, begin, false)
	}
	result, err := r.host.Do(id, cmd, brief)
	if !Refused(err) {
		return result, err
	}
	return r.doAnywhere(ctx, timer.Op{Shard: id, Command: cmd, Brief: brief, Err: err}, begin, true)
}

func (r *Router) doAnywhere(ctx context.Context, o timer.Op, begin time.Duration, tried bool) (timer.Result, error) {
	ops := []timer.Op{o}
	r.finish(ctx, ops, begin, tried)
	return ops[0].Result, ops[0].Err
}

// DoAll has many decided, those of one shard in order, and fills in every answer: those that this
// node leads in one go, the rest in one call for each node, all at once.
func (r *Router) DoAll(ctx context.Context, ops []timer.Op) {
	begin := r.tasks.Now()
	local := true
	for i := range ops {
		if !r.takes(ops[i].Shard) {
			local = false
			break
		}
	}
	if local {
		if r.host.DoAll(ops); !anyRefused(ops) {
			return
		}
	}
	r.finish(ctx, ops, begin, local)
}

func anyRefused(ops []timer.Op) bool {
	for i := range ops {
		if Refused(ops[i].Err) {
			return true
		}
	}
	return false
}

// finish brings operations to an end. tried: this node has been asked for all of them.
func (r *Router) finish(ctx context.Context, ops []timer.Op, begin time.Duration, tried bool) {
	q := opsRequest{Router: r, ops: ops, Backoff: task.NewBackoff(r.tasks, begin), targets: map[timer.ShardID]*target{}}
	if tried {
		for i := range ops {
			t := q.target(ops[i].Shard)
			t.node, t.asked = r.self, true
		}
	} else {
		all := make([]int, len(ops))
		for i := range all {
			all[i] = i
		}
		q.send(ctx, all)
	}
	for {
		todo, hinted := q.collectRetryable()
		if len(todo) == 0 {
			return
		}
		if !q.Wait(ctx, hinted) {
			for _, i := range todo {
				ops[i].Result, ops[i].Err = timer.Result{}, timer.ErrNoLeader
			}
			return
		}
		q.round++
		for _, i := range todo {
			q.place(&ops[i])
		}
		q.send(ctx, todo)
	}
}

// opsRequest is one request's operations on their way.
type opsRequest struct {
	*Router
	task.Backoff
	ops   []timer.Op
	round int

	targets map[timer.ShardID]*target
}

// target is where a shard's operations go. It is chosen once a round, so that they go together.
func (r *opsRequest) target(id timer.ShardID) *target {
	t := r.targets[id]
	if t == nil {
		t = &target{round: -1}
		r.targets[id] = t
	}
	return t
}

// node is where a shard's operations go in this round.
func (r *opsRequest) node(id timer.ShardID) uint64 {
	t := r.target(id)
	if t.round != r.round {
		t.choose(r.Router, id)
		t.round = r.round
	}
	return t.node
}

// collectRetryable finds the operations to be tried again, and whether the nodes that were asked
// have named another for all of it. An operation that a later one of its shard has overtaken, or
// may have, was not done and is not tried again: it would be out of order.
func (r *opsRequest) collectRetryable() (todo []int, hinted bool) {
	if !anyRefused(r.ops) {
		return nil, false
	}
	hinted = true
	overtaken := make(map[timer.ShardID]bool)
	for i := len(r.ops) - 1; i >= 0; i-- {
		o := &r.ops[i]
		switch {
		case !Refused(o.Err):
			if !untouched(o.Err) {
				overtaken[o.Shard] = true
			}
		case overtaken[o.Shard]:
			o.Result, o.Err = timer.Result{}, timer.ErrNoLeader
		default:
			todo = append(todo, i)
			if t := r.target(o.Shard); !t.takeLeaderHint(o.Err) && t.hint == 0 {
				hinted = false
			}
		}
	}
	slices.Reverse(todo)
	return todo, hinted
}

// nodeBatch is one node's part of a request in a round.
type nodeBatch struct {
	node uint64
	ops  []timer.Op
	at   []int // where each is in the request
}

// send has the operations at todo answered by their nodes.
func (r *opsRequest) send(ctx context.Context, todo []int) {
	batches := r.split(todo)
	if len(batches) == 1 {
		r.deliver(ctx, batches[0].node, batches[0].ops)
	} else {
		all := task.NewGroup(r.tasks)
		for i := range batches[1:] {
			b := &batches[1+i]
			all.Go(func() { r.deliver(ctx, b.node, b.ops) })
		}
		r.deliver(ctx, batches[0].node, batches[0].ops)
		all.Wait()
	}
	for i := range batches {
		b := &batches[i]
		for k, at := range b.at {
			r.ops[at].Result, r.ops[at].Err = b.ops[k].Result, b.ops[k].Err
		}
	}
}

// split makes one batch for each node, in the order of the operations.
func (r *opsRequest) split(todo []int) []nodeBatch {
	var batches []nodeBatch
	for _, i := range todo {
		o := &r.ops[i]
		node := r.node(o.Shard)
		k := slices.IndexFunc(batches, func(b nodeBatch) bool { return b.node == node })
		if k < 0 {
			k = len(batches)
			batches = append(batches, nodeBatch{node: node})
		}
		b := &batches[k]
		b.ops = append(b.ops, timer.Op{Shard: o.Shard, Command: o.Command, Brief: o.Brief, Room: o.Room, Place: o.Place})
		b.at = append(b.at, i)
	}
	return batches
}

// deliver has one node answer operations; 0 is nobody.
func (r *opsRequest) deliver(ctx context.Context, node uint64, ops []timer.Op) {
	switch node {
	case 0:
		failAll(ops, timer.ErrNoLeader)
	case r.self:
		r.host.DoAll(ops)
	default:
		r.forward(ctx, node, ops)
	}
}

func failAll(ops []timer.Op, err error) {
	for i := range ops {
		ops[i].Result, ops[i].Err = timer.Result{}, err
	}
}

// forward has another node answer operations, once.
func (r *opsRequest) forward(ctx context.Context, node uint64, ops []timer.Op) {
	within, body := r.Begin+answerIn-r.tasks.Now(), wire.AppendOps(make([]byte, 0, sizeOf(ops)), ops)
	answer, err := r.askLeader(ctx, within, node, newAwaitedOps(ops), methodOps, body)
	if err := r.cfg.unanswered(err); err != nil {
		failAll(ops, err)
		return
	}
	// An answer that cannot be read is in every operation's Err.
	_ = wire.DecodeAnswers(answer, ops)
	for i := range ops {
		o := &ops[i]
		o.Err = fromPeer(o.Err)
		r.storeDecider(o.Shard, node, o.Err)
		if t := o.Result.Timer; t != nil && o.Room != nil && o.Result.Code != timer.Created && !o.Room.Take(t.Size()) {
			o.Result.Timer = nil
		}
	}
}

// sizeOf is about how many bytes operations take.
func sizeOf(ops []timer.Op) int {
	n := 16
	for i := range ops {
		c := ops[i].Command
		n += 64 + len(c.ID)
		if c.Spec != nil {
			n += len(c.Spec.Payload) + len(c.Spec.Callback.URL) + 64
		}
	}
	return n
}
