package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const topicIdle = time.Hour

// keeper is a janitor over a running host, with a clock of its own.
type keeper struct {
	*janitor
	t   *testing.T
	at  time.Time
	ctx context.Context
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	n := start(t, t.TempDir(), func(c *Config) { c.Shards = 2 })
	k := &keeper{janitor: newJanitor(&engine{p: n.node.run.Load()}, topicIdle, slog.New(slog.DiscardHandler)), t: t, at: time.Now(), ctx: t.Context()}
	k.now = func() time.Time { return k.at }
	return k
}

// after lets time pass for the janitor, and has it look.
func (k *keeper) after(d time.Duration) {
	k.at = k.at.Add(d)
	k.round(k.ctx)
}

func (k *keeper) ensure(name string) *shard.Topic {
	k.t.Helper()
	topic, err := k.engine.EnsureTopic(k.ctx, name)
	if err != nil {
		k.t.Fatal(err)
	}
	return topic
}

func (k *keeper) close(topic *shard.Topic, force bool) {
	k.t.Helper()
	if _, err := k.engine.propose(k.ctx, ring.Command{Verb: ring.Close, Name: topic.Name, ID: topic.ID, Force: force}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) add(topic *shard.Topic) shard.Code {
	k.t.Helper()
	r, err := k.engine.Do(k.ctx, 1, &shard.Command{Kind: shard.Add, Topic: topic.ID, ID: "a", Spec: &shard.Spec{DueMs: 1 << 41}}, true)
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Code
}

func (k *keeper) has(name string) bool {
	_, ok := k.engine.Topic(name)
	return ok
}

func TestIdleTopicsGoAway(t *testing.T) {
	k := newKeeper(t)
	k.ensure("idle")
	if code := k.add(k.ensure("used")); code != shard.Created {
		t.Fatalf("add: %d", code)
	}
	policy := shard.DefaultPolicy()
	if _, _, err := k.engine.PutTopic(k.ctx, "made", &policy); err != nil {
		t.Fatal(err)
	}
	k.after(0)
	k.after(topicIdle - time.Minute)
	if !k.has("idle") {
		t.Error("a topic went before its hour was over")
	}
	k.after(2 * time.Minute)
	if k.has("idle") {
		t.Error("an idle auto-created topic stayed")
	}
	if !k.has("used") || !k.has("made") {
		t.Errorf("gone: used %v, made by hand %v", !k.has("used"), !k.has("made"))
	}
}

// A topic with nothing but history stays as long as that is kept.
func TestTopicsWithHistoryStay(t *testing.T) {
	k := newKeeper(t)
	topic := k.ensure("used")
	if code := k.add(topic); code != shard.Created {
		t.Fatalf("add: %d", code)
	}
	if r, err := k.engine.Do(k.ctx, 1, &shard.Command{Kind: shard.Cancel, Topic: topic.ID, ID: "a"}, true); err != nil || r.Code != shard.Prevented {
		t.Fatalf("cancel: %d, %v", r.Code, err)
	}
	for range 3 {
		k.after(2 * topicIdle)
		if !k.has("used") {
			t.Fatal("a topic went that has history")
		}
	}
	k.after(72 * time.Hour)
	k.after(2 * topicIdle)
	if k.has("used") {
		t.Error("a topic stayed whose history is over")
	}
}

// A node that died while it deleted a topic leaves it closed: what was forced goes on, what was not is undone.
func TestCutOffDeletionsAreSettled(t *testing.T) {
	k := newKeeper(t)
	undone, forced := k.ensure("undone"), k.ensure("forced")
	if code := k.add(forced); code != shard.Created {
		t.Fatalf("add: %d", code)
	}
	k.close(undone, false)
	k.close(forced, true)
	for _, o := range k.engine.everywhere(k.ctx, shard.Command{Kind: shard.CloseTopic, Topic: undone.ID}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	if code := k.add(undone); code != shard.TopicClosed {
		t.Fatalf("a closed topic took an add: %d", code)
	}
	k.after(0)
	if v, _ := k.engine.Topic("undone"); !v.Closing {
		t.Error("a deletion that may still run was undone")
	}
	k.after(2 * closingStale)
	if v, ok := k.engine.Topic("undone"); !ok || v.Closing {
		t.Error("a deletion without force was not undone")
	}
	if code := k.add(undone); code != shard.Created {
		t.Errorf("the topic does not take adds again: %d", code)
	}
	if k.has("forced") {
		t.Error("a forced deletion was not finished")
	}
}
