package sim

import (
	"context"
	"errors"
	"time"

	"carillon/timer"
)

// topic finds a topic as the API does for a request that does not create it.
func (n *node) topic(ctx context.Context, name string) (*timer.Topic, error) {
	if id, _, _ := n.state.Cluster(); id == "" {
		return nil, timer.ErrRecovering
	}
	return n.topics.Named(ctx, name)
}

// handle serves an operation as a node's API does.
func (n *node) handle(o *operation) (timer.Result, *timer.Timer, error) {
	ctx, w := n.tasks.ctx, n.w
	made := int(o.topic) <= w.laid
	if o.claim() {
		if _, err := n.topics.ByID(ctx, o.topic); err != nil {
			n.mustKnow(w.topics[o.topic-1], made, err)
			return timer.Result{}, nil, err
		}
		ops := []timer.Op{n.claimOf(o.topic, o.id, o.command())}
		n.router.DoAll(ctx, ops)
		return ops[0].Result, nil, ops[0].Err
	}
	name := w.topics[o.topic-1]
	t, err := n.topic(ctx, name)
	if err != nil {
		n.mustKnow(name, made, err)
		return timer.Result{}, nil, err
	}
	if at := timer.ShardOf(t, o.id, w.swarm.shards); at != o.shard || t.ID != o.topic {
		w.violate("topic", "node %d has topic %s as number %d and timer %s in shard %d, expected number %d and shard %d", n.id, name, t.ID, o.id, at, o.topic, o.shard)
	}
	if o.cmd == nil {
		found, err := n.router.Timer(ctx, n.shardOf(t, o.id), t.ID, o.id)
		return timer.Result{}, found, err
	}
	r, err := n.router.Do(ctx, n.shardOf(t, o.id), o.command(), false)
	return r, r.Timer, err
}

// mustKnow checks the answer that a topic does not exist. It is wrong if the topic was created
// before the request: a node that cannot ask the meta group must not guess (P5).
func (n *node) mustKnow(name string, made bool, err error) {
	if made && errors.Is(err, timer.ErrNoTopic) {
		n.w.violate("P5", "node %d says that there is no topic %s, which was created before the request", n.id, name)
	}
}

// command returns a copy each time, because an earlier try may still be on its way.
func (o *operation) command() *timer.Command {
	c := *o.cmd
	return &c
}

// handOut records timers that a host leased to consumers.
func (n *node) handOut(asked, lasts time.Duration, list []timer.PulledTimer) {
	w, b := n.w, n.w.checker
	for i := range list {
		t := &list[i]
		k := keyOf(t.Shard, t.Timer)
		w.counts.Taken++
		w.note(n, "hand out", uint64(t.Shard), t.Timer.Fence, t.Timer.ID)
		l := b.leases.lease(k)
		l.asked, l.topic = asked, pullTopic
		b.features.fetched(n, t)
		// it was leased some time between asked and now
		b.leases.handed(n, k, t.Timer.Fence, t.Timer.ID, asked+lasts)
		b.order.handed(n, t)
		b.limits.handed(n)
	}
}
