package node

import (
	"context"
	"errors"

	"carillon/ring"
	"carillon/shard"
)

// engine is the node as its HTTP API sees it. Before the node is of a cluster, has read its log, and knows from it or from the others what
// the cluster has agreed on, it answers ErrRecovering: at once, so that who asks turns to another node.
type engine struct{ p *process }

// core is the node's cluster, once it can tell where a request belongs.
func (e *engine) core() (*core, error) {
	c, err := e.started()
	if err != nil {
		return nil, err
	}
	if id, _, _ := c.state.Cluster(); id == "" {
		return nil, shard.ErrRecovering // one that has just joined waits for its copy of the cluster's state
	}
	return c, nil
}

// started is the node's cluster, once its log is read.
func (e *engine) started() (*core, error) {
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
	if cmd, err = c.sealed(cmd); err != nil {
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
	c.doSealed(ctx, ops)
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

func (e *engine) Counts(ctx context.Context, topics ...shard.TopicID) ([]shard.Counts, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.router.Counts(ctx, topics)
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
	if t, ok := c.state.Named(name); ok {
		return t, true
	}
	return c.lateTopic(name)
}

// Current implements api.Engine.
func (e *engine) Current() error {
	c, err := e.core()
	if err == nil && !c.current() {
		err = shard.ErrRecovering
	}
	return err
}

func (e *engine) Topics(after string, limit int) []*shard.Topic {
	c, err := e.core()
	if err != nil {
		return nil
	}
	return c.state.List(after, limit)
}

func (e *engine) CountTopics(prefix string, most int, f func(*shard.Topic) bool) int {
	c, err := e.core()
	if err != nil {
		return 0
	}
	return c.state.Count(prefix, most, f)
}

// Ready says what is missing; nil when the node serves.
func (e *engine) Ready() error {
	if text := e.p.waiting.Load(); text != nil && e.p.core.Load() == nil {
		return errors.New(*text)
	}
	c, err := e.started()
	if err != nil {
		return err
	}
	if err := c.host.NotReady(); err != nil {
		return err
	}
	if id, _, _ := c.state.Cluster(); id == "" || c.state.Secret() == nil {
		return errors.New("the cluster is being founded")
	}
	for _, row := range c.state.Rows() {
		if _, led := c.host.Leader(row.Group); !led && row.Names(c.self) {
			return &shard.NoLeaderError{Group: row.Group}
		}
	}
	if why := c.lacksKey(); why != "" {
		return errors.New(why)
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
	c, err := e.core()
	if err != nil {
		return nil, false, err
	}
	if p, err = c.sealedPolicy(name, p); err != nil {
		return nil, false, err
	}
	if t, ok := e.Topic(name); ok && t.Policy.Ordered != p.Ordered {
		return e.reorder(ctx, t, p)
	}
	r, err := e.propose(ctx, ring.Command{Verb: ring.Put, Name: name, Policy: p})
	if errors.Is(err, shard.ErrNotEmpty) && r.Topic != nil { // it is newer than this node's copy
		return e.reorder(ctx, r.Topic, p)
	}
	return r.Topic, r.Created, err
}

// reorder sets a policy that moves a topic's timers from shards by key into one shard, or back. That can only be done while there are
// none: the topic is closed everywhere first, and opens again under a new id, so that a node which has not heard of it yet adds nothing
// where nobody would look. Timers that have ended are not shown any more. Fences must grow over the life of a timer's id, and its
// next shard may be behind: all go on from the highest.
func (e *engine) reorder(ctx context.Context, t *shard.Topic, p *shard.Policy) (*shard.Topic, bool, error) {
	if _, err := e.propose(ctx, ring.Command{Verb: ring.Close, Name: t.Name, ID: t.ID}); err != nil {
		return nil, false, err
	}
	var fence uint64
	for range 2 { // learn the highest fence, then raise all to it
		var err error
		if fence, err = e.closeEmpty(ctx, t.ID, fence); err != nil {
			e.reopen(ctx, t)
			return nil, false, err
		}
	}
	r, err := e.propose(ctx, ring.Command{Verb: ring.Put, Name: t.Name, ID: t.ID, Policy: p})
	if refused(err) {
		e.reopen(ctx, t) // after any other error it may have been done: then the janitor finds nothing to open
	}
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
		if err := e.Current(); err != nil {
			return 0, err
		}
		if t, ok = e.Topic(name); !ok { // else it has come meanwhile
			return 0, shard.ErrNoTopic
		}
	}
	if _, err := e.propose(ctx, ring.Command{Verb: ring.Close, Name: name, ID: t.ID, Force: force}); err != nil {
		return 0, err
	}
	if !force {
		if _, err := e.closeEmpty(ctx, t.ID, 0); err != nil {
			e.reopen(ctx, t)
			return 0, err
		}
		_, err := e.propose(ctx, ring.Command{Verb: ring.Delete, Name: name, ID: t.ID})
		return 0, err
	}
	removed, err := e.emptyShards(ctx, t.ID)
	if err != nil {
		return 0, err // it stays closed: what was begun is finished by who asks again, or by the janitor
	}
	_, err = e.propose(ctx, ring.Command{Verb: ring.Delete, Name: name, ID: t.ID})
	return removed, err
}

// closeEmpty closes a topic that has nothing pending or dead in any shard, and raises their fences. It returns the highest.
func (e *engine) closeEmpty(ctx context.Context, id shard.TopicID, floor uint64) (fence uint64, err error) {
	for _, o := range e.everywhere(ctx, shard.Command{Kind: shard.CloseTopic, Topic: id, DueMs: int64(floor)}) {
		switch {
		case o.Err != nil:
			err = o.Err
		case o.Result.Code == shard.NotEmpty:
			return 0, shard.ErrNotEmpty
		}
		fence = max(fence, o.Result.Fence)
	}
	return fence, err
}

// emptyWork bounds what one command of a forced deletion does to its shard; see shard.Command.IfMatch. It takes some milliseconds.
const emptyWork = 1 << 17

// emptyShards closes a topic and drops all of it, a slice at a time in all shards at once, so that none of them stalls.
func (e *engine) emptyShards(ctx context.Context, id shard.TopicID) (removed int, err error) {
	ops := make([]shard.Op, e.Shards())
	for i := range ops {
		ops[i] = shard.Op{Shard: shard.ID(i + 1)}
	}
	for len(ops) > 0 {
		for i := range ops { // a command that is done with may still be on its way: a new one each time
			ops[i].Command = &shard.Command{Kind: shard.CloseTopic, Topic: id, Force: true, IfMatch: emptyWork, DueMs: int64(ops[i].Result.Handle)}
			ops[i].Brief = true
		}
		e.DoAll(ctx, ops)
		left := ops[:0:0]
		for _, o := range ops {
			if o.Err != nil {
				err = o.Err
				continue
			}
			removed += o.Result.Removed
			if o.Result.Handle != 0 {
				left = append(left, o)
			}
		}
		if err != nil {
			return removed, err
		}
		ops = left
	}
	return removed, nil
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
