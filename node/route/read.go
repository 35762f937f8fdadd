package route

import (
	"context"
	"errors"
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

// List answers a query on one shard from its leader: at most q.Limit timers, in order. A page too
// large for one answer between nodes is asked for in parts, each as of its own moment.
func (r *Router) List(ctx context.Context, id timer.ShardID, q *timer.Query) ([]*timer.Timer, error) {
	var out []*timer.Timer
	rest := *q
	if rest.Of == 0 {
		rest.Of = r.shards()
	}
	for {
		page, cut, err := r.page(ctx, id, &rest)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = page
		} else {
			out = append(out, page...)
		}
		if !cut || len(page) == 0 || len(out) >= q.Limit {
			return out, nil
		}
		last := q.SortKey(page[len(page)-1])
		rest.After, rest.Limit = &last, q.Limit-len(out)
	}
}

func (r *Router) page(ctx context.Context, id timer.ShardID, q *timer.Query) (page []*timer.Timer, cut bool, err error) {
	err = r.read(ctx, &id, r.tasks.Now(), reading{
		of: q.Of,
		here: func() error {
			cut = false
			page, err = r.host.List(id, q)
			return err
		},
		method: methodList, within: scanCallIn,
		ask: func() []byte { return wire.AppendQuery(nil, id, q) },
		take: func(answer []byte) error {
			page, cut, err = wire.DecodeTimers(answer)
			shorten(page, q.Room)
			return err
		},
	})
	return page, cut, err
}

// shorten leaves out of a page from elsewhere the timers for which there is no room here.
func shorten(page []*timer.Timer, room timer.Room) {
	for _, t := range page {
		if room != nil && !t.Short && !room.Take(t.Size()) {
			t.Shorten()
		}
	}
}

// reading is how one shard is read, here or elsewhere.
type reading struct {
	of     int    // the number of shards that it is right for; 0: any, see counting
	place  func() // finds the shard, which may have become another; nil: it may not
	here   func() error
	method uint8
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
		if rd.of != 0 && rd.of != r.shards() {
			return timer.ErrShards
		}
		t.choose(r, id)
		err := r.readAt(ctx, t.node, &rd)
		if t.node != r.self {
			r.noteDecider(id, t.node, err)
		}
		if !readAgain(err) {
			return err
		}
		if !b.wait(ctx, t.noteLeaderHint(err)) {
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
	ctx, cancel := r.tasks.WithTimeout(ctx, rd.within)
	defer cancel()
	method, body := r.sizedRequest(rd.of, rd.method, rd.ask())
	answer, err := r.cfg.Peers.Call(ctx, node, method, body)
	switch {
	case errors.Is(err, r.cfg.NotSent):
		return timer.ErrNoLeader
	case err != nil:
		return timer.ErrUnknown
	}
	return fromPeer(rd.take(answer))
}
