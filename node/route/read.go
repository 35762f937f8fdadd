package route

import (
	"context"
	"time"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

// Timer reads one timer, linearizably, from its shard's leader; nil when there is none.
func (r *Router) Timer(ctx context.Context, id timer.ShardID, topic timer.TopicID, name string) (*timer.Timer, error) {
	begin := r.tasks.Now()
	if id = r.shardOf(id, topic, name); r.leads(id) {
		if found, err := r.timerHere(id, topic, name); !readAgain(err) {
			return found, err
		}
	}
	b := task.NewBackoff(r.tasks, begin)
	var t target
	for { // a failed request is tried again, elsewhere if need be
		id = r.shardOf(id, topic, name)
		t.choose(r, id)
		found, err := readAt(ctx, r, t.node, &reading[*timer.Timer]{
			here:   func() (*timer.Timer, error) { return r.timerHere(id, topic, name) },
			method: methodTimer, shard: id, within: timerCallIn,
			ask:  func() []byte { return wire.AppendTimerRequest(nil, id, topic, name) },
			take: wire.DecodeTimer,
		})
		if t.node != r.self {
			r.storeDecider(id, t.node, err)
		}
		if !readAgain(err) {
			return found, err
		}
		if !b.Wait(ctx, t.takeLeaderHint(err)) {
			return nil, timer.ErrNoLeader
		}
	}
}

// timerHere reads a timer of a shard that this node leads.
func (r *Router) timerHere(id timer.ShardID, topic timer.TopicID, timer string) (found *timer.Timer, err error) {
	err = r.counting(r.shards(), func() (err error) {
		found, err = r.host.Timer(id, topic, timer)
		return err
	})
	return found, err
}

// reading is how shards are read, here or elsewhere.
type reading[T any] struct {
	of     int // the number of shards that it is right for; 0: any, see counting
	here   func() (T, error)
	method uint8
	shard  timer.ShardID // shard.Meta: all that the node leads
	within time.Duration // one try elsewhere
	ask    func() []byte
	take   func(answer []byte) (T, error)
}

// readAt has one node answer, once. After an error the answer is empty.
func readAt[T any](ctx context.Context, r *Router, node uint64, rd *reading[T]) (found T, err error) {
	switch node {
	case 0:
		err = timer.ErrNoLeader
	case r.self:
		here := func() (err error) {
			found, err = rd.here()
			return err
		}
		if rd.of == 0 {
			err = here()
		} else {
			err = r.counting(rd.of, here)
		}
	default:
		method, body := r.sizedRequest(rd.of, rd.method, rd.ask())
		var answer []byte
		answer, err = r.askLeader(ctx, rd.within, node, newAwaitedCall(rd.shard), method, body)
		if err = r.cfg.unanswered(err); err == nil {
			found, err = rd.take(answer)
			err = fromPeer(err)
		}
	}
	if err != nil {
		return *new(T), err
	}
	return found, nil
}
