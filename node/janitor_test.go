package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/node/route"
	"carillon/node/task"
	"carillon/ring"
	"carillon/test/testkit"
	"carillon/timer"
)

const topicIdle = time.Hour

// keeper looks after the idle topics of a running host, with a clock of its own.
type keeper struct {
	*route.IdleTopics
	task.Env
	*clocks.Keeper
	t      *testing.T
	node   *core
	dir    string
	passed time.Duration
	ctx    context.Context
	looked func() // called when a topic was found empty; may be nil
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	p := start(t, t.TempDir(), func(c *Config) { c.Shards = 2 }).node.run.Load()
	k := &keeper{Env: p.tasks, node: p.core.Load(), dir: p.cfg.DataDir, t: t, ctx: t.Context()}
	k.Keeper = p.clock
	k.IdleTopics = route.NewIdleTopics(k.node.topics, topicIdle, k, k, slog.New(slog.DiscardHandler))
	return k
}

// Now implements task.Env.
func (k *keeper) Now() time.Duration { return k.Env.Now() + k.passed }

// WallMs implements route.Clock.
func (k *keeper) WallMs() int64 { return k.Keeper.WallMs() + k.passed.Milliseconds() }

// Lease implements route.Clock.
func (k *keeper) Lease() time.Duration {
	if k.looked != nil {
		k.looked()
	}
	return k.Keeper.Lease() + k.passed
}

// after lets time pass for the keeper, and has it look.
func (k *keeper) after(d time.Duration) {
	k.passed += d
	k.Round(k.ctx)
}

func (k *keeper) ensure(name string) *timer.Topic {
	k.t.Helper()
	topic, err := k.node.topics.Ensure(k.ctx, name)
	testkit.Must(k.t, err)
	return topic
}

func (k *keeper) close(topic *timer.Topic, force bool) {
	k.t.Helper()
	if _, err := k.node.member.Propose(k.ctx, ring.Command{Verb: ring.Close, Name: topic.Name, ID: topic.ID, Force: force}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) do(id timer.ShardID, cmd *timer.Command) timer.Code {
	k.t.Helper()
	r, err := k.node.router.Do(k.ctx, id, cmd, true)
	testkit.Must(k.t, err)
	return r.Code
}

func (k *keeper) add(topic *timer.Topic) timer.Code {
	k.t.Helper()
	return k.do(1, &timer.Command{Kind: timer.Add, Topic: topic.ID, ID: "a", Spec: &timer.Spec{DueMs: 1 << 41}})
}

func (k *keeper) has(name string) bool {
	_, err := k.node.topics.Named(k.ctx, name)
	if err != nil && !errors.Is(err, timer.ErrNoTopic) {
		k.t.Fatal(err)
	}
	return err == nil
}

func TestIdleTopicsGoAway(t *testing.T) {
	k := newKeeper(t)
	k.ensure("idle")
	if code := k.add(k.ensure("used")); code != timer.Created {
		t.Fatalf("add: %d", code)
	}
	policy := timer.DefaultPolicy()
	if _, _, err := k.node.topics.Put(k.ctx, "made", &policy, timer.TopicChange{}); err != nil {
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

// A topic that somebody makes their own in the moment in which it would go stays, with its policy.
func TestIdleTopicsOfSomebodyStay(t *testing.T) {
	k := newKeeper(t)
	k.ensure("mine")
	k.ensure("paused")
	k.after(0)
	policy := timer.DefaultPolicy()
	policy.LeaseMs = 5000
	k.looked = func() {
		_, _, err := k.node.topics.Put(k.ctx, "mine", &policy, timer.TopicChange{})
		if err == nil {
			_, err = k.node.topics.SetPaused(k.ctx, "paused", true)
		}
		if err != nil {
			t.Error(err)
		}
	}
	k.passed += 2 * topicIdle
	k.Round(k.ctx)
	k.looked = nil
	if v, ok := k.node.topics.Here("mine"); !ok || v.Policy.LeaseMs != 5000 {
		t.Errorf("a topic with a policy of its own: %+v", v)
	}
	for range 3 {
		if v, ok := k.node.topics.Here("paused"); !ok || !v.Paused {
			t.Fatalf("a topic that was paused: %+v", v)
		}
		k.after(2 * topicIdle)
	}
	if _, err := k.node.topics.SetPaused(k.ctx, "paused", false); err != nil {
		t.Fatal(err)
	}
	k.after(0)
	k.after(2 * topicIdle)
	if k.has("paused") {
		t.Error("a topic stayed that is not paused any more")
	}
}

// A topic with nothing but history stays as long as that is kept.
func TestTopicsWithHistoryStay(t *testing.T) {
	k := newKeeper(t)
	topic := k.ensure("used")
	if code := k.add(topic); code != timer.Created {
		t.Fatalf("add: %d", code)
	}
	if code := k.do(1, &timer.Command{Kind: timer.Cancel, Topic: topic.ID, ID: "a"}); code != timer.Prevented {
		t.Fatalf("cancel: %d", code)
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

// A node that died while it deleted a topic leaves it closed: a forced deletion goes on, another is
// undone.
func TestCutOffDeletionsAreSettled(t *testing.T) {
	k := newKeeper(t)
	undone, forced := k.ensure("undone"), k.ensure("forced")
	if code := k.add(forced); code != timer.Created {
		t.Fatalf("add: %d", code)
	}
	k.close(undone, false)
	k.close(forced, true)
	for id := timer.ShardID(1); id <= 2; id++ {
		k.do(id, &timer.Command{Kind: timer.CloseTopic, Topic: undone.ID})
	}
	if code := k.add(undone); code != timer.TopicClosed {
		t.Fatalf("a closed topic took an add: %d", code)
	}
	k.after(0)
	if v, _ := k.node.topics.Here("undone"); !v.Closing {
		t.Error("a deletion that may still run was undone")
	}
	k.after(2 * route.ClosingStale)
	if v, ok := k.node.topics.Here("undone"); !ok || v.Closing {
		t.Error("a deletion without force was not undone")
	}
	if code := k.add(undone); code != timer.Created {
		t.Errorf("the topic does not take adds again: %d", code)
	}
	if k.has("forced") {
		t.Error("a forced deletion was not finished")
	}
}

// TestDeliveryIsTurnedBack: a change of delivery that was cut off holds its topic up for some
// seconds only.
func TestDeliveryIsTurnedBack(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	k := newKeeper(t)
	policy := timer.DefaultPolicy()
	policy.Pull = true
	topic, _, err := k.node.topics.Put(k.ctx, "jobs", &policy, timer.TopicChange{})
	testkit.Must(t, err)
	if code := k.do(1, &timer.Command{Kind: timer.Add, Topic: topic.ID, ID: "a", Spec: &timer.Spec{DueMs: 1}}); code != timer.Created {
		t.Fatalf("add: %d", code)
	}
	r, err := k.node.member.Propose(k.ctx, ring.Command{Verb: ring.Turn, Name: topic.Name, ID: topic.ID})
	testkit.Must(t, err)
	if code := k.do(1, &timer.Command{Kind: timer.Deliver, Topic: topic.ID, Turn: r.Topic.Turn}); code != timer.OK {
		t.Fatalf("the shard does not agree: %d", code)
	}
	if list, err := k.node.router.Pull(k.ctx, topic.ID, 1, 0, 0); len(list) != 0 || err != nil {
		t.Fatalf("pulled %v, %v", list, err)
	}
	// The node itself takes it back.
	list, err := k.node.router.Pull(k.ctx, topic.ID, 1, 0, patience)
	if len(list) != 1 || err != nil {
		t.Fatalf("pulled %v, %v", list, err)
	}
	policy.Pull = false
	_, _, err = k.node.topics.Put(k.ctx, "jobs", &policy, timer.TopicChange{})
	if leased, ok := errors.AsType[timer.LeasedError](err); !ok || leased.Leased != 1 {
		t.Errorf("a change while a consumer has a timer: %v", err)
	}
	k.node.router.GiveBack(k.ctx, topic.ID, list)
	policy.Callback.URL = "http://127.0.0.1:1/"
	if now, _, err := k.node.topics.Put(k.ctx, "jobs", &policy, timer.TopicChange{}); err != nil || now.Policy.Pull {
		t.Errorf("%+v, %v", now, err)
	}
}
