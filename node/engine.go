package node

import (
	"context"
	"errors"

	"carillon/ring"
	"carillon/shard"
)

// engine is the node as its HTTP API sees it. Before the node is of a cluster and has read its log it answers ErrRecovering.
type engine struct{ p *process }

// core is the node's cluster, once its log is read.
func (e *engine) core() (*core, error) {
	c := e.p.core.Load()
	if c == nil {
		return nil, shard.ErrRecovering
	}
	select {
	case <-c.host.Started():
		return c, nil
	default:
		return nil, shard.ErrRecovering
	}
}

// Shards is 1 before it is known: nothing can be asked of a shard then.
func (e *engine) Shards() int { return max(1, e.p.identity().Shards) }

func (e *engine) Do(ctx context.Context, id shard.ID, cmd *shard.Command, brief bool) (shard.Result, error) {
	c, err := e.core()
	if err != nil {
		return shard.Result{}, err
	}
	return c.router.Do(ctx, id, cmd, brief)
}

func (e *engine) DoAll(ctx context.Context, ops []shard.Op) {
	c, err := e.core()
	if err != nil {
		for i := range ops {
			ops[i].Err = err
		}
		return
	}
	c.router.DoAll(ctx, ops)
}

func (e *engine) Timer(ctx context.Context, id shard.ID, topic shard.TopicID, timer string) (*shard.Timer, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.Timer(ctx, id, topic, timer)
}

func (e *engine) List(ctx context.Context, id shard.ID, q *shard.Query) ([]*shard.Timer, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.List(ctx, id, q)
}

func (e *engine) History(ctx context.Context, q *shard.HistoryQuery) ([]*shard.HistoryEntry, bool, error) {
	c, err := e.core()
	if err != nil {
		return nil, false, err
	}
	return c.router.History(ctx, q)
}

func (e *engine) Counts(ctx context.Context, topic shard.TopicID) (shard.Counts, error) {
	c, err := e.core()
	if err != nil {
		return shard.Counts{}, err
	}
	return c.router.Counts(ctx, topic)
}

func (e *engine) Walk(ctx context.Context, id shard.ID, q *shard.Query, at shard.Waypoint) ([]shard.Mark, shard.Waypoint, error) {
	c, err := e.core()
	if err != nil {
		return nil, shard.Waypoint{}, err
	}
	return c.router.Walk(ctx, id, q, at)
}

func (e *engine) Topic(name string) (*shard.Topic, bool) {
	c, err := e.core()
	if err != nil {
		return nil, false
	}
	return c.state.Named(name)
}

func (e *engine) Topics(after string, limit int) []*shard.Topic {
	c, err := e.core()
	if err != nil {
		return nil
	}
	return c.state.List(after, limit)
}

// Ready says what is missing; nil when the node serves.
func (e *engine) Ready() error {
	if text := e.p.waiting.Load(); text != nil && e.p.core.Load() == nil {
		return errors.New(*text)
	}
	c, err := e.core()
	if err != nil {
		return err
	}
	if err := c.host.NotReady(); err != nil {
		return err
	}
	if id, _, _ := c.state.Cluster(); id == "" {
		return errors.New("the cluster is being founded")
	}
	for _, row := range c.state.Rows() {
		if _, led := c.host.Leader(row.Group); !led && row.Names(c.self) {
			return &shard.NoLeaderError{Group: row.Group}
		}
	}
	return c.host.NotReady() // once more: the shards are all there now, and are to have fired
}

// propose has the meta group decide one change to one topic.
func (e *engine) propose(ctx context.Context, c ring.Command) (ring.Reply, error) {
	core, err := e.core()
	if err != nil {
		return ring.Reply{}, err
	}
	return core.propose(ctx, c)
}

func (e *engine) EnsureTopic(ctx context.Context, name string) (*shard.Topic, error) {
	if t, ok := e.Topic(name); ok {
		return t, nil
	}
	r, err := e.propose(ctx, ring.Command{Verb: ring.Ensure, Name: name})
	return r.Topic, err
}

func (e *engine) PutTopic(ctx context.Context, name string, p *shard.Policy) (*shard.Topic, bool, error) {
	r, err := e.propose(ctx, ring.Command{Verb: ring.Put, Name: name, Policy: p})
	return r.Topic, r.Created, err
}

func (e *engine) SetPaused(ctx context.Context, name string, paused bool) (*shard.Topic, error) {
	verb := ring.Resume
	if paused {
		verb = ring.Pause
	}
	r, err := e.propose(ctx, ring.Command{Verb: verb, Name: name})
	return r.Topic, err
}

// DeleteTopic closes the topic everywhere, so that no add can slip in, and only then deletes it; it opens it again when it is
// not empty. A node that dies in between leaves a closed topic: the janitor finishes what was begun.
func (e *engine) DeleteTopic(ctx context.Context, name string, force bool) (int, error) {
	t, ok := e.Topic(name)
	if !ok {
		if _, err := e.core(); err != nil {
			return 0, err
		}
		return 0, shard.ErrNoTopic
	}
	if _, err := e.propose(ctx, ring.Command{Verb: ring.Close, Name: name, ID: t.ID, Force: force}); err != nil {
		return 0, err
	}
	removed, err := e.closeShards(ctx, t.ID, force)
	if err != nil {
		e.reopen(ctx, t)
		return 0, err
	}
	_, err = e.propose(ctx, ring.Command{Verb: ring.Delete, Name: name, ID: t.ID})
	return removed, err
}

func (e *engine) closeShards(ctx context.Context, id shard.TopicID, force bool) (removed int, err error) {
	for _, o := range e.everywhere(ctx, shard.Command{Kind: shard.CloseTopic, Topic: id, Force: force}) {
		switch {
		case o.Err != nil:
			err = o.Err
		case o.Result.Code == shard.NotEmpty:
			return 0, shard.ErrNotEmpty
		}
		removed += o.Result.Removed
	}
	return removed, err
}

// reopen undoes a close as far as it can; what it cannot reach the janitor tries again.
func (e *engine) reopen(ctx context.Context, t *shard.Topic) {
	for _, o := range e.everywhere(ctx, shard.Command{Kind: shard.OpenTopic, Topic: t.ID}) {
		if o.Err != nil {
			return
		}
	}
	_, _ = e.propose(ctx, ring.Command{Verb: ring.Reopen, Name: t.Name, ID: t.ID})
}

// everywhere has every shard decide one command.
func (e *engine) everywhere(ctx context.Context, cmd shard.Command) []shard.Op {
	ops := make([]shard.Op, e.Shards())
	for i := range ops {
		c := cmd
		ops[i] = shard.Op{Shard: shard.ID(i + 1), Command: &c, Brief: true}
	}
	e.DoAll(ctx, ops)
	return ops
}
