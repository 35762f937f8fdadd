package node

import (
	"context"

	"carillon/ring"
	"carillon/shard"
)

// engine is the node as its HTTP API sees it. Until the log is read it answers ErrRecovering.
type engine struct {
	host   *shard.Host
	topics *ring.Topics
	shards int
}

func (e *engine) recovering() error {
	select {
	case <-e.host.Started():
		return nil
	default:
		return shard.ErrRecovering
	}
}

func (e *engine) Shards() int { return e.shards }

func (e *engine) Do(ctx context.Context, id shard.ID, cmd *shard.Command, brief bool) (shard.Result, error) {
	if err := e.recovering(); err != nil {
		return shard.Result{}, err
	}
	return e.host.Do(ctx, id, cmd, brief)
}

func (e *engine) DoAll(ctx context.Context, ops []shard.Op) {
	if err := e.recovering(); err != nil {
		for i := range ops {
			ops[i].Err = err
		}
		return
	}
	e.host.DoAll(ctx, ops)
}

func (e *engine) Timer(ctx context.Context, id shard.ID, topic shard.TopicID, timer string) (*shard.Timer, error) {
	if err := e.recovering(); err != nil {
		return nil, err
	}
	return e.host.Timer(ctx, id, topic, timer)
}

func (e *engine) List(ctx context.Context, id shard.ID, q *shard.Query) ([]*shard.Timer, error) {
	if err := e.recovering(); err != nil {
		return nil, err
	}
	return e.host.List(ctx, id, q)
}

func (e *engine) Counts(ctx context.Context, topic shard.TopicID) (shard.Counts, error) {
	if err := e.recovering(); err != nil {
		return shard.Counts{}, err
	}
	return e.host.Counts(ctx, topic)
}

func (e *engine) Topic(name string) (*shard.Topic, bool) { return e.topics.Named(name) }

func (e *engine) Topics(after string, limit int) []*shard.Topic { return e.topics.List(after, limit) }

func (e *engine) Ready() error { return e.host.NotReady() }

// propose has the meta group decide one change to one topic.
func (e *engine) propose(ctx context.Context, c ring.Command) (ring.Reply, error) {
	if err := e.recovering(); err != nil {
		return ring.Reply{}, err
	}
	v, err := e.host.Propose(ctx, c.Encode())
	if err != nil {
		return ring.Reply{}, err
	}
	r := v.(ring.Reply)
	return r, r.Err
}

func (e *engine) EnsureTopic(ctx context.Context, name string) (*shard.Topic, error) {
	if t, ok := e.topics.Named(name); ok {
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
	t, ok := e.topics.Named(name)
	if !ok {
		if err := e.recovering(); err != nil {
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
	ops := make([]shard.Op, e.shards)
	for i := range ops {
		c := cmd
		ops[i] = shard.Op{Shard: shard.ID(i + 1), Command: &c, Brief: true}
	}
	e.DoAll(ctx, ops)
	return ops
}
