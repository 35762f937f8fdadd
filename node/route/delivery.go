package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// redeliver sets a policy that has a topic's timers go to consumers instead of to their receivers,
// or back. Nothing may be leased then, and nothing may be leased in the old way afterwards, by a
// node that has not heard of it. So the change is numbered, each shard's log takes it over unless
// timers are leased there, and only when all have is the topic changed. Else the shards are turned
// back; see docs/adr/0030.
func (t *Topics) redeliver(ctx context.Context, topic *timer.Topic, put ring.Command) (*timer.Topic, error) {
	// To begin would hold up a topic that is busy for nothing.
	counts, err := t.Counts(ctx, []timer.TopicID{topic.ID})
	if err != nil {
		return nil, err
	}
	if n := counts[0].Leased; n > 0 {
		return nil, timer.LeasedError{Leased: n}
	}
	r, err := t.meta.Propose(ctx, ring.Command{Verb: ring.Turn, Name: topic.Name, ID: topic.ID})
	if err != nil {
		return nil, err
	}
	if err = t.deliver(ctx, r.Topic, put.Policy.Pull); err == nil {
		put.Turn = r.Topic.Turn
		r, err = t.meta.Propose(ctx, put)
		if err == nil {
			return r.Topic, nil
		}
	}
	if errors.Is(err, errOvertaken) || errors.Is(err, ring.ErrTurn) {
		return nil, fmt.Errorf("%w: another change of the topic's delivery came between", timer.ErrOverloaded)
	}
	t.turnBack(ctx, topic)
	return nil, err
}

// errOvertaken: the shards were asked again since.
var errOvertaken = errors.New("another change came between")

// deliver has every shard take over a delivery, by the number that the topic has.
func (t *Topics) deliver(ctx context.Context, topic *timer.Topic, pull bool) (err error) {
	leased := int64(0)
	for _, o := range t.everywhere(ctx, timer.Command{Kind: timer.Deliver, Topic: topic.ID, Turn: topic.Turn, Pull: pull}) {
		switch {
		case o.Err != nil:
			err = o.Err
		case o.Result.Code == timer.VersionMismatch:
			return errOvertaken
		case o.Result.Code == timer.InFlight:
			leased += int64(o.Result.Removed)
		case o.Result.Code != timer.OK: // it is closed: about to be deleted, or to become another
			err = timer.ErrOverloaded
		}
	}
	if leased > 0 {
		return timer.LeasedError{Leased: leased}
	}
	return err
}

// turnBack has all shards deliver by the topic's policy, and undoes any change that was begun.
// Turns tries again the shards that it cannot reach.
func (t *Topics) turnBack(ctx context.Context, topic *timer.Topic) {
	r, err := t.meta.Propose(ctx, ring.Command{Verb: ring.Turn, Name: topic.Name, ID: topic.ID})
	if err != nil || t.deliver(ctx, r.Topic, r.Topic.Policy.Pull) != nil {
		return
	}
	_, _ = t.meta.Propose(ctx, ring.Command{Verb: ring.Turned, Name: topic.Name, ID: topic.ID, Turn: r.Topic.Turn})
}

const (
	turnsInterval = 2 * time.Second
	turnStale     = 5 * time.Second // how long a change may be under way before it counts as abandoned
)

// Turns takes back changes of delivery that were cut off: until then the shards that agreed lease
// nothing of the topic.
type Turns struct {
	topics *Topics
	tasks  task.Env
	seen   map[turn]time.Duration // since when; monotonic
}

// turn is one change of a topic's delivery.
type turn struct {
	topic  timer.TopicID
	number uint32
}

// NewTurns makes one; one goroutine is to run it.
func NewTurns(t *Topics, tasks task.Env) *Turns { return &Turns{topics: t, tasks: tasks} }

// Run looks again and again, until the context ends.
func (t *Turns) Run(ctx context.Context) {
	task.Every(ctx, t.tasks, turnsInterval, func() { t.round(ctx) })
}

func (t *Turns) round(ctx context.Context) {
	if !t.topics.host.Leads(shard.Meta) {
		return // one node of the cluster is enough
	}
	seen, now := map[turn]time.Duration{}, t.tasks.Now()
	for _, one := range t.topics.local.Turning() {
		key := turn{one.ID, one.Turn}
		since, known := t.seen[key]
		if !known {
			since = now
		}
		if seen[key] = since; now-since >= turnStale {
			t.topics.turnBack(ctx, one)
		}
	}
	t.seen = seen
}
