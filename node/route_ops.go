package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// Do has one command decided by its shard's leader.
func (r *router) Do(ctx context.Context, id shard.ID, cmd *shard.Command, brief bool) (shard.Result, error) {
	begin := time.Now()
	if !r.takes(id) {
		return r.doAnywhere(ctx, shard.Op{Shard: id, Command: cmd, Brief: brief}, begin, false)
	}
	result, err := r.host.Do(ctx, id, cmd, brief)
	if !refused(err) {
		return result, err
	}
	return r.doAnywhere(ctx, shard.Op{Shard: id, Command: cmd, Brief: brief, Err: err}, begin, true)
}

func (r *router) doAnywhere(ctx context.Context, o shard.Op, begin time.Time, tried bool) (shard.Result, error) {
	ops := []shard.Op{o}
	r.settle(ctx, ops, begin, tried)
	return ops[0].Result, ops[0].Err
}

// DoAll has many decided, those of one shard in order, and fills in every answer: what this node leads in one go, the rest in one
// call for each node, all at once.
func (r *router) DoAll(ctx context.Context, ops []shard.Op) {
	begin := time.Now()
	local := true
	for i := range ops {
		if !r.takes(ops[i].Shard) {
			local = false
			break
		}
	}
	if local {
		if r.host.DoAll(ctx, ops); !anyRefused(ops) {
			return
		}
	}
	r.settle(ctx, ops, begin, local)
}

func anyRefused(ops []shard.Op) bool {
	for i := range ops {
		if refused(ops[i].Err) {
			return true
		}
	}
	return false
}

// settle brings operations to an end. tried says that this node has been asked for all of them.
func (r *router) settle(ctx context.Context, ops []shard.Op, begin time.Time, tried bool) {
	e := errand{router: r, ops: ops, patience: patience{begin: begin}}
	if tried {
		for i := range ops {
			a := e.aim(ops[i].Shard)
			a.node, a.asked = r.self, true
		}
	} else {
		e.send(ctx, nil)
	}
	for {
		todo, told := e.sift()
		if len(todo) == 0 {
			return
		}
		if !e.wait(ctx, told) {
			for _, i := range todo {
				ops[i].Result, ops[i].Err = shard.Result{}, shard.ErrNoLeader
			}
			return
		}
		e.round++
		e.send(ctx, todo)
	}
}

// errand is one request's operations on their way.
type errand struct {
	*router
	patience
	ops   []shard.Op
	round int

	one   aim // the only one of most errands
	oneOf shard.ID
	more  map[shard.ID]*aim
}

// aim is where a shard's operations go. It is chosen once a round, so that they go together.
func (e *errand) aim(id shard.ID) *aim {
	if e.oneOf == 0 {
		e.oneOf, e.one.round = id, -1
	}
	if e.oneOf == id {
		return &e.one
	}
	a := e.more[id]
	if a == nil {
		if e.more == nil {
			e.more = make(map[shard.ID]*aim)
		}
		a = &aim{round: -1}
		e.more[id] = a
	}
	return a
}

// target is the node of a shard in this round.
func (e *errand) target(id shard.ID) uint64 {
	a := e.aim(id)
	if a.round != e.round {
		a.take(e.router, id)
		a.round = e.round
	}
	return a.node
}

// sift finds what is to be tried again, and whether all of that was sent elsewhere by who was asked.
// An operation that a later one of its shard has overtaken, or may have, was not done and is not tried again: it would be out of order.
func (e *errand) sift() (todo []int, told bool) {
	if !anyRefused(e.ops) {
		return nil, false
	}
	told = true
	overtaken := make(map[shard.ID]bool)
	for i := len(e.ops) - 1; i >= 0; i-- {
		o := &e.ops[i]
		switch {
		case !refused(o.Err):
			if !untouched(o.Err) {
				overtaken[o.Shard] = true
			}
		case overtaken[o.Shard]:
			o.Result, o.Err = shard.Result{}, shard.ErrNoLeader
		default:
			todo = append(todo, i)
			if a := e.aim(o.Shard); !a.heed(o.Err) && a.told == 0 {
				told = false
			}
		}
	}
	slices.Reverse(todo)
	return todo, told
}

// parcel is what one node gets of an errand in a round.
type parcel struct {
	node uint64
	ops  []shard.Op
	at   []int // where each is in the errand; nil: the parcel is the whole errand
}

// send has the operations at todo, nil for all, answered by the nodes they are aimed at.
func (e *errand) send(ctx context.Context, todo []int) {
	parcels := e.pack(todo)
	var others fan.Group
	for i := range parcels[1:] {
		p := &parcels[1+i]
		others.Go(func() { e.deliver(ctx, p.node, p.ops) })
	}
	e.deliver(ctx, parcels[0].node, parcels[0].ops)
	others.Wait()
	for i := range parcels {
		p := &parcels[i]
		for k, at := range p.at {
			e.ops[at].Result, e.ops[at].Err = p.ops[k].Result, p.ops[k].Err
		}
	}
}

// pack makes one parcel for each node, in the order of the operations.
func (e *errand) pack(todo []int) []parcel {
	if todo == nil {
		node, same := e.target(e.ops[0].Shard), true
		for i := range e.ops {
			same = same && e.target(e.ops[i].Shard) == node
		}
		if same {
			return []parcel{{node: node, ops: e.ops}}
		}
		todo = make([]int, len(e.ops))
		for i := range todo {
			todo[i] = i
		}
	}
	var parcels []parcel
	for _, i := range todo {
		o := &e.ops[i]
		node := e.target(o.Shard)
		k := slices.IndexFunc(parcels, func(p parcel) bool { return p.node == node })
		if k < 0 {
			k = len(parcels)
			parcels = append(parcels, parcel{node: node})
		}
		p := &parcels[k]
		p.ops = append(p.ops, shard.Op{Shard: o.Shard, Command: o.Command, Brief: o.Brief, Room: o.Room})
		p.at = append(p.at, i)
	}
	return parcels
}

// deliver has one node answer operations; 0 is nobody.
func (e *errand) deliver(ctx context.Context, node uint64, ops []shard.Op) {
	switch node {
	case 0:
		failAll(ops, shard.ErrNoLeader)
	case e.self:
		e.host.DoAll(ctx, ops)
	default:
		e.forward(ctx, node, ops)
	}
}

func failAll(ops []shard.Op, err error) {
	for i := range ops {
		ops[i].Result, ops[i].Err = shard.Result{}, err
	}
}

// forward has another node answer operations, once.
func (e *errand) forward(ctx context.Context, node uint64, ops []shard.Op) {
	ctx, cancel := context.WithDeadline(ctx, e.begin.Add(answerIn))
	defer cancel()
	answer, err := e.call(ctx, node, methodOps, shard.AppendOps(make([]byte, 0, sizeOf(ops)), ops))
	switch {
	case errors.Is(err, e.notSent):
		failAll(ops, shard.ErrNoLeader)
		return
	case err != nil:
		failAll(ops, shard.ErrUnknown)
		return
	}
	_ = shard.DecodeAnswers(answer, ops) // what cannot be read is in every operation's Err
	for i := range ops {
		o := &ops[i]
		o.Err = remotely(o.Err)
		if t := o.Result.Timer; t != nil && o.Room != nil && o.Result.Code != shard.Created && !o.Room.Take(t.Size()) {
			o.Result.Timer = nil
		}
	}
}

// sizeOf is about how many bytes operations take.
func sizeOf(ops []shard.Op) int {
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
