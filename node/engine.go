package node

import (
	"context"
	"errors"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api"
)

// engine is the node as its HTTP API sees it. Before the node is of a cluster, has read its log,
// and knows the meta group's state from it or from the others, it answers ErrRecovering: at once,
// so that the client turns to another node.
type engine struct{ p *process }

// core is the node's cluster, once it can tell where a request belongs.
func (e *engine) core() (*core, error) {
	c, err := e.started()
	if err != nil {
		return nil, err
	}
	if id, _, _ := c.member.State.Cluster(); id == "" {
		// One that has just joined waits for its copy of the cluster's state.
		return nil, timer.ErrRecovering
	}
	return c, nil
}

// started is the node's cluster, once its log is read.
func (e *engine) started() (*core, error) {
	c := e.p.core.Load()
	if c == nil {
		return nil, timer.ErrRecovering
	}
	select {
	case <-c.host.Started():
		return c, nil
	default:
		return nil, timer.ErrRecovering
	}
}

// Shards is 1 before it is known: nothing can be asked of a shard then.
func (e *engine) Shards() int { return max(1, e.p.self.Identity().Shards) }

// Leader implements api.Engine.
func (e *engine) Leader(id timer.ShardID) string {
	c := e.p.core.Load()
	if c == nil {
		return ""
	}
	node := c.router.Decider(id)
	if node == 0 {
		return ""
	}
	n, _ := c.member.State.Node(node)
	return n.HTTP
}

func (e *engine) Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	c, err := e.core()
	if err != nil {
		return timer.Result{}, err
	}
	if cmd, err = c.sealed(cmd); err != nil {
		return timer.Result{}, err
	}
	return c.router.Do(ctx, id, cmd, brief)
}

func (e *engine) DoAll(ctx context.Context, ops []timer.Op) {
	c, err := e.core()
	if err != nil {
		for i := range ops {
			ops[i].Err = err
		}
		return
	}
	c.doSealed(ctx, ops)
}

func (e *engine) Timer(ctx context.Context, id timer.ShardID, topic timer.TopicID, timer string) (*timer.Timer, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.Timer(ctx, id, topic, timer)
}

func (e *engine) List(ctx context.Context, id timer.ShardID, q *timer.Query) ([]*timer.Timer, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.List(ctx, id, q)
}

func (e *engine) History(ctx context.Context, q *timer.HistoryQuery) ([]*timer.HistoryEntry, bool, error) {
	c, err := e.core()
	if err != nil {
		return nil, false, err
	}
	return c.router.History(ctx, q)
}

func (e *engine) Progress(ctx context.Context, id timer.ShardID, q *timer.ProgressQuery) ([]timer.Progress, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.Progress(ctx, id, q)
}

func (e *engine) Counts(ctx context.Context, topics ...timer.TopicID) ([]timer.Counts, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.Counts(ctx, topics)
}

func (e *engine) Bulk(ctx context.Context, b *bulk.Update) error {
	c, err := e.core()
	if err != nil {
		return err
	}
	return c.router.Bulk(ctx, b)
}

func (e *engine) Topic(name string) (*timer.Topic, bool) {
	c, err := e.core()
	if err != nil {
		return nil, false
	}
	return c.topics.Here(name)
}

func (e *engine) FindTopic(ctx context.Context, name string) (*timer.Topic, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.topics.Named(ctx, name)
}

func (e *engine) LatestTopic(ctx context.Context, name string) (*timer.Topic, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.topics.Latest(ctx, name)
}

func (e *engine) Topics(after string, limit int) []*timer.Topic {
	c, err := e.core()
	if err != nil {
		return nil
	}
	return c.topics.List(after, limit)
}

func (e *engine) EnsureTopic(ctx context.Context, name string) (*timer.Topic, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.topics.Ensure(ctx, name)
}

func (e *engine) PutTopic(ctx context.Context, name string, p *timer.Policy, change timer.TopicChange) (*timer.Topic, bool, error) {
	c, err := e.core()
	if err != nil {
		return nil, false, err
	}
	if p, err = c.sealedPolicy(name, p); err != nil {
		return nil, false, err
	}
	return c.topics.Put(ctx, name, p, change)
}

func (e *engine) SetPaused(ctx context.Context, name string, paused bool) (*timer.Topic, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.topics.SetPaused(ctx, name, paused)
}

func (e *engine) DeleteTopic(ctx context.Context, name string, change timer.TopicChange) (int, error) {
	c, err := e.core()
	if err != nil {
		return 0, err
	}
	return c.topics.Delete(ctx, name, change)
}

func (e *engine) CountTopics(prefix string, most int, f func(*timer.Topic) bool) int {
	c, err := e.core()
	if err != nil {
		return 0
	}
	return c.topics.Count(prefix, most, f)
}

// Ready is the reason why the node does not serve; nil when it does.
func (e *engine) Ready() error {
	if text := e.p.self.Waiting(); text != "" {
		return errors.New(text)
	}
	c := e.p.core.Load()
	if c == nil {
		return timer.ErrRecovering
	}
	return c.member.Ready()
}

// Listen implements api.Live.
func (e *engine) Listen(ctx context.Context, w *api.Watch) (api.EventStream, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.feed.Listen(ctx, w), nil
}

// Due implements api.Live.
func (e *engine) Due(ctx context.Context, q *api.DueQuery) (*api.Due, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.feed.Due(ctx, q)
}

// Stats implements api.Live.
func (e *engine) Stats(ctx context.Context) (*api.ClusterStats, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.feed.Stats(ctx), nil
}
