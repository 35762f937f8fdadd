package route

import (
	"context"
	"errors"

	"carillon/ring"
	"carillon/timer"
)

// Delete closes the topic everywhere, so that no add can slip in, and only then deletes it; it
// opens it again when it is not empty. A node that dies in between leaves a closed topic:
// IdleTopics finishes the deletion. cancelled is how many timers went with it.
func (t *Topics) Delete(ctx context.Context, name string, change timer.TopicChange) (cancelled int, err error) {
	topic, err := t.Named(ctx, name)
	if err != nil {
		return 0, err
	}
	if change.Version == 0 {
		change.ID = topic.ID
	}
	if _, err := t.meta.Propose(ctx, ring.Command{Verb: ring.Close, Name: name, ID: change.ID, IfVersion: change.Version, Force: change.Force}); err != nil {
		return 0, err
	}
	if !change.Force {
		if err := t.closeEmpty(ctx, topic.ID); err != nil {
			t.reopen(ctx, topic)
			return 0, err
		}
		return 0, t.remove(ctx, topic, change.Version)
	}
	removed, err := t.emptyShards(ctx, topic.ID)
	if err == nil {
		err = t.remove(ctx, topic, change.Version)
	}
	if err != nil && !errors.Is(err, timer.ErrTopicVersion) && !errors.Is(err, timer.ErrNoTopic) {
		// It stays closed: the next request, or IdleTopics, finishes the deletion.
		err = timer.DeletingError{Cause: err}
	}
	return removed, err
}

// remove deletes a topic that is closed and empty: of this version only, 0 being any. One that
// somebody has changed since it was closed is opened again.
func (t *Topics) remove(ctx context.Context, topic *timer.Topic, version uint32) error {
	r, err := t.meta.Propose(ctx, ring.Command{Verb: ring.Delete, Name: topic.Name, ID: topic.ID, IfVersion: version})
	if errors.Is(err, timer.ErrTopicVersion) && r.Topic != nil && r.Topic.ID == topic.ID {
		t.reopen(ctx, topic)
	}
	return err
}

// closeEmpty closes a topic that has nothing pending or dead in any shard, and that no pending
// timer names for its outcome.
func (t *Topics) closeEmpty(ctx context.Context, id timer.TopicID) (err error) {
	var naming int64
	for _, o := range t.everywhere(ctx, timer.Command{Kind: timer.CloseTopic, Topic: id}) {
		switch {
		case o.Err != nil:
			err = o.Err
		case o.Result.Code == timer.NotEmpty:
			return timer.ErrNotEmpty
		case o.Result.Code == timer.InUse:
			naming += int64(o.Result.Removed)
		}
	}
	if naming > 0 {
		return timer.InUseError{Naming: naming}
	}
	return err
}

// emptyWork bounds the work of one command of a forced deletion in its shard; see
// timer.Command.Work. It takes some milliseconds.
const emptyWork = 1 << 16

// emptyShards closes a topic and drops all of it, a slice at a time in all shards at once, so that
// none of them stalls.
func (t *Topics) emptyShards(ctx context.Context, id timer.TopicID) (removed int, err error) {
	err = t.inAll(ctx, func(shards int) error {
		n, err := t.emptySome(ctx, id, shards)
		removed += n
		return err
	})
	return removed, err
}

// emptySome is emptyShards for the first so many shards.
func (t *Topics) emptySome(ctx context.Context, id timer.TopicID, shards int) (removed int, err error) {
	ops := make([]timer.Op, shards)
	for i := range ops {
		ops[i] = timer.Op{Shard: timer.ShardID(i + 1)}
	}
	for len(ops) > 0 {
		// A command that is done with may still be on its way: a new one each time.
		for i := range ops {
			ops[i].Command = &timer.Command{Kind: timer.CloseTopic, Topic: id, Force: true, Work: emptyWork, From: ops[i].Result.Handle}
			ops[i].Brief = true
		}
		t.DoAll(ctx, ops)
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

// reopen undoes a close where it can; IdleTopics tries again the shards that it cannot reach.
func (t *Topics) reopen(ctx context.Context, topic *timer.Topic) {
	for _, o := range t.everywhere(ctx, timer.Command{Kind: timer.OpenTopic, Topic: topic.ID}) {
		if o.Err != nil {
			return
		}
	}
	_, _ = t.meta.Propose(ctx, ring.Command{Verb: ring.Reopen, Name: topic.Name, ID: topic.ID})
}
