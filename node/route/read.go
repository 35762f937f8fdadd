package route

import (
	"context"
	"time"

	"carillon/shard/wire"
	"carillon/timer"
)

// Timer reads one timer, linearizably, from its shard's leader; nil when there is none.
func (r *Router) Timer(ctx context.Context, id timer.ShardID, topic timer.TopicID, timer string) (*timer.Timer, error) {
	begin := r.tasks.Now()
	if id = r.shardOf(id, topic, timer); r.leads(id) {
		if found, err := r.timerHere(id, topic, timer); !readAgain(err) {
			return found, err
		}
	}
	return r.timerAnywhere(ctx, id, topic, timer, begin)
}

// timerHere reads a timer of a shard that this node leads.
func (r *Router) timerHere(id timer.ShardID, topic timer.TopicID, timer string) (found *timer.Timer, err error) {
	err = r.counting(r.shards(), func() (err error) {
		found, err = r.host.Timer(id, topic, timer)
		return err
	})
	return found, err
}

func (r *Router) timerAnywhere(ctx context.Context, id timer.ShardID, topic timer.TopicID, timer string, begin time.Duration) (found *timer.Timer, err error) {
	err = r.read(ctx, &id, begin, reading{
		place: func() { id = r.shardOf(id, topic, timer) },
		here: func() error {
			found, err = r.timerHere(id, topic, timer)
			return err
		},
		method: methodTimer, within: timerCallIn,
		ask: func() []byte { return wire.AppendTimerRequest(nil, id, topic, timer) },
		take: func(answer []byte) error {
			found, err = wire.DecodeTimer(answer)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// reading is how shards are read, here or elsewhere.
type reading struct {
	of     int    // the number of shards that it is right for; 0: any, see counting
	place  func() // finds the shard, which may have become another; nil: it may not
	here   func() error
	method uint8
	shard  timer.ShardID // set by read; shard.Meta: all that the node leads
	within time.Duration // one try elsewhere
	ask    func() []byte
	take   func(answer []byte) error
}

// read has a shard's leader answer; a failed request is tried again, elsewhere if need be.
func (r *Router) read(ctx context.Context, shard *timer.ShardID, begin time.Duration, rd reading) error {
	b := r.newBackoff(begin)
	var t target
	for {
		if rd.place != nil {
			rd.place()
		}
		id := *shard
		rd.shard = id
		t.choose(r, id)
		err := r.readAt(ctx, t.node, &rd)
		if t.node != r.self {
			r.storeDecider(id, t.node, err)
		}
		if !readAgain(err) {
			return err
		}
		if !b.wait(ctx, t.takeLeaderHint(err)) {
			return timer.ErrNoLeader
		}
	}
}

func (r *Router) readAt(ctx context.Context, node uint64, rd *reading) error {
	switch node {
	case 0:
		return timer.ErrNoLeader
	case r.self:
		if rd.of == 0 {
			return rd.here()
		}
		return r.counting(rd.of, rd.here)
	}
	method, body := r.sizedRequest(rd.of, rd.method, rd.ask())
	answer, err := r.askLeader(ctx, rd.within, node, newAwaitedCall(rd.shard), method, body)
	if err := r.cfg.unanswered(err); err != nil {
		return err
	}
	return fromPeer(rd.take(answer))
}
