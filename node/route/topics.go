package route

import (
	"context"
	"errors"

	"carillon/node/task"
	"carillon/ring"
	"carillon/timer"
)

// Meta is the meta group, which decides about topics, as this node reaches it.
type Meta interface {
	// Propose has the meta group decide, wherever its leader is. The reply's error is returned.
	Propose(ctx context.Context, cmd ring.Command) (ring.Reply, error)
	// CatchUp returns when this node's copy of the meta group's state has all that was decided
	// before; after an error this is unknown.
	CatchUp(ctx context.Context) error
}

// Topics finds topics, and has them made, changed and deleted. A change that concerns the shards is
// done in all of them.
type Topics struct {
	*Router
	local *ring.Topics // this node's copy
	meta  Meta
}

// NewTopics looks topics up in a node's copy of them.
func NewTopics(r *Router, local *ring.Topics, meta Meta) *Topics {
	return &Topics{Router: r, local: local, meta: meta}
}

// Here finds a topic in this node's copy, which may lack topics that others have made meanwhile.
func (t *Topics) Here(name string) (*timer.Topic, bool) { return t.local.Named(name) }

// Named finds a topic. timer.ErrNoTopic: there is none, even if others were asked to make or to
// delete it. After any other error this is unknown.
func (t *Topics) Named(ctx context.Context, name string) (*timer.Topic, error) {
	if topic, ok := t.local.Named(name); ok && !topic.Closing {
		return topic, nil
	}
	return t.Latest(ctx, name)
}

// Latest is Named for the topic as the last change has left it that was decided before.
func (t *Topics) Latest(ctx context.Context, name string) (*timer.Topic, error) {
	if err := t.meta.CatchUp(ctx); err != nil {
		return nil, err
	}
	if topic, ok := t.local.Named(name); ok {
		return topic, nil
	}
	return nil, timer.ErrNoTopic
}

// ByID is Named for a topic's number.
func (t *Topics) ByID(ctx context.Context, id timer.TopicID) (*timer.Topic, error) {
	if topic, ok := t.local.Topic(id); ok {
		return topic, nil
	}
	if err := t.meta.CatchUp(ctx); err != nil {
		return nil, err
	}
	if topic, ok := t.local.Topic(id); ok {
		return topic, nil
	}
	return nil, timer.ErrNoTopic
}

// List gives topics of this node's copy in order of name, those after a name.
func (t *Topics) List(after string, limit int) []*timer.Topic { return t.local.List(after, limit) }

// Count counts the topics of this node's copy whose names begin so and for which f holds, up to
// most.
func (t *Topics) Count(prefix string, most int, f func(*timer.Topic) bool) int {
	return t.local.Count(prefix, most, f)
}

// Ensure makes the topic with the default policy unless it is there.
func (t *Topics) Ensure(ctx context.Context, name string) (*timer.Topic, error) {
	if topic, ok := t.local.Named(name); ok {
		return topic, nil
	}
	r, err := t.meta.Propose(ctx, ring.Command{Verb: ring.Ensure, Name: name})
	return r.Topic, err
}

// SetPaused stops a topic's calls, or starts them again.
func (t *Topics) SetPaused(ctx context.Context, name string, paused bool) (*timer.Topic, error) {
	verb := ring.Resume
	if paused {
		verb = ring.Pause
	}
	r, err := t.meta.Propose(ctx, ring.Command{Verb: verb, Name: name})
	return r.Topic, err
}

// putTries bounds how often a change is looked at again because the topic has changed meanwhile.
const putTries = 5

// Put sets the policy, making the topic if need be. Unless it is forced it takes nothing away that
// is needed (timer.InUseError): what is needed is counted, and the topic changes only as it was
// counted for. Adds of that very moment are not seen by this.
func (t *Topics) Put(ctx context.Context, name string, p *timer.Policy, change timer.TopicChange) (topic *timer.Topic, created bool, err error) {
	for range putTries {
		as := change
		old, err := t.Latest(ctx, name)
		switch {
		case err != nil && (!change.Force || change.DryRun) && !errors.Is(err, timer.ErrNoTopic):
			return nil, false, err
		case err == nil && change.New:
			return nil, false, timer.ErrTopicVersion
		case err == nil && !change.Force:
			as.ID, as.Version = old.ID, old.Version
			if change.Version != 0 && (change.ID != as.ID || change.Version != as.Version) {
				return nil, false, timer.ErrTopicVersion
			}
			if err := t.inUse(ctx, old, p); err != nil {
				return nil, false, err
			}
		}
		if change.DryRun {
			topic, created, err = t.wouldPut(ctx, old, name, p, as)
		} else {
			topic, created, err = t.put(ctx, name, p, as)
		}
		if err == nil && old != nil && change.FormerIDs != nil {
			// After a forced change all that were there, after any other those that were added
			// while it was made; unknown where a shard has no leader.
			if n, err := t.readdressed(ctx, old, p); err == nil {
				*change.FormerIDs = n
			}
		}
		if !errors.Is(err, timer.ErrTopicVersion) || change.Version != 0 || change.New {
			return topic, created, err
		}
	}
	return nil, false, timer.ErrTopicVersion
}

func (t *Topics) put(ctx context.Context, name string, p *timer.Policy, as timer.TopicChange) (*timer.Topic, bool, error) {
	cmd := ring.Command{Verb: ring.Put, Name: name, Policy: p, ID: as.ID, IfVersion: as.Version, IfNew: as.New}
	r, err := t.meta.Propose(ctx, cmd)
	if errors.Is(err, ring.ErrTurn) && r.Topic != nil {
		cmd.ID = r.Topic.ID
		topic, err := t.redeliver(ctx, r.Topic, cmd)
		return topic, false, err
	}
	return r.Topic, r.Created, err
}

// wouldPut is put without the change; old is the topic as it is, nil if there is none.
func (t *Topics) wouldPut(ctx context.Context, old *timer.Topic, name string, p *timer.Policy, as timer.TopicChange) (*timer.Topic, bool, error) {
	switch {
	case as.Version != 0 && (old == nil || old.ID != as.ID || old.Version != as.Version):
		return nil, false, timer.ErrTopicVersion
	case old == nil:
		return &timer.Topic{Name: name, Policy: *p}, true, nil
	case p.Pull != old.Policy.Pull:
		counts, err := t.Counts(ctx, []timer.TopicID{old.ID})
		if err != nil {
			return nil, false, err
		}
		if n := counts[0].Leased; n > 0 {
			return nil, false, timer.LeasedError{Leased: n}
		}
	}
	next := *old
	next.Policy, next.AutoCreated = *p, false
	return &next, false, nil
}

// everywhere has every shard decide one command.
func (t *Topics) everywhere(ctx context.Context, cmd timer.Command) (ops []timer.Op) {
	err := t.inAll(ctx, func(shards int) error {
		ops = make([]timer.Op, shards)
		for i := range ops {
			c := cmd
			ops[i] = timer.Op{Shard: timer.ShardID(i + 1), Command: &c, Brief: true}
		}
		t.DoAll(ctx, ops)
		return nil
	})
	if err != nil { // there may be more shards
		ops = append(ops, timer.Op{Err: err})
	}
	return ops
}

// inAll does something in all shards, and once more if there are more of them by then. What was
// done in a shard before it was divided is done in its child, and what comes after that is not: so
// the number counts that there was when the last shard was done.
func (t *Topics) inAll(ctx context.Context, do func(shards int) error) error {
	b := task.NewBackoff(t.tasks, t.tasks.Now())
	for {
		of := t.shards()
		err := do(of)
		if err != nil || t.meta.CatchUp(ctx) == nil && t.countsWith(of) {
			return err
		}
		if !b.Wait(ctx, false) {
			return timer.ErrNoLeader
		}
	}
}
