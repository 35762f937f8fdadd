package shard

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/test/memfs"
	"carillon/timer"
)

// described is the payload of an outcome in these tests.
type described struct {
	Topic, ID, State, Reason string
	Attempts, Status         int
}

func describe(topic *timer.Topic, ended *timer.Timer, attempts []timer.HistoryAttempt) []byte {
	d := described{Topic: topic.Name, ID: ended.ID, State: fmt.Sprint(ended.State), Reason: fmt.Sprint(ended.Reason)}
	if n := len(attempts); n > 0 {
		d.Attempts, d.Status = attempts[n-1].Attempt, attempts[n-1].Status
	}
	b, _ := json.Marshal(d)
	return b
}

// outcomeHarness is a host with a topic 1 whose timers have three attempts and make outcomes in
// topic 2, which calls its own receiver.
func outcomeHarness(t *testing.T, change func(*timer.Policy)) *hostHarness {
	t.Helper()
	r := newHostHarness(t, func(cfg *Config) { cfg.Describe = describe })
	r.topic(2, nil)
	r.topic(1, func(topic *timer.Topic) {
		topic.Policy.OnDone, topic.Policy.OnDead, topic.Policy.MaxAttempts = "topic-2", "topic-2", 2
		if change != nil {
			change(&topic.Policy)
		}
	})
	r.topicsChanged()
	return r
}

// outcome returns the one call that runs, which must be of an outcome of topic 2.
func (h *hostHarness) outcome() (*fakeCall, described) {
	h.t.Helper()
	c := h.one()
	var d described
	if err := json.Unmarshal(c.Job.Payload, &d); err != nil || c.Job.Topic != 2 || c.Job.DueMs > h.clock.wallMs {
		h.t.Fatalf("the outcome is %+v, %v", c.Job, err)
	}
	return c, d
}

// TestOutcomeIsCalled: the end of a timer, done or dead, is a call of the other topic at once, with
// its own attempts. An outcome has none itself.
func TestOutcomeIsCalled(t *testing.T) {
	r := outcomeHarness(t, nil)
	r.topic(2, func(topic *timer.Topic) { topic.Policy.OnDone = "topic-2" })
	r.topicsChanged()
	trace := timer.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	r.add("a", 0, func(s *timer.Spec) { s.Trace = trace })
	r.one().answer(200)
	r.runIdle()
	c, d := r.outcome()
	if d != (described{"topic-1", "a", "3", "0", 1, 200}) || *c.Job.Trace != *trace {
		t.Errorf("%+v, trace %+v", d, c.Job.Trace)
	}
	c.answer(500)
	r.pass(time.Second)
	c, _ = r.outcome()
	c.answer(200)
	r.runIdle()
	r.wantCalls("")

	r.add("b", 0)
	r.one().answer(500)
	r.pass(time.Second)
	r.one().answer(503)
	r.runIdle()
	if c, d = r.outcome(); d != (described{"topic-1", "b", "4", "1", 2, 503}) {
		t.Errorf("%+v", d)
	}
	c.answer(200)
	r.runIdle()
	if r.observer.made != 2 || r.observer.lost != 0 {
		t.Errorf("%d outcomes made, %d lost", r.observer.made, r.observer.lost)
	}
	id := c.Job.ID
	if h, ok := r.table().Lookup(2, id); !ok || timer.ShardOf(r.topics[2], id, 1) != 1 {
		t.Errorf("%s is at %d", id, h)
	}
	r.audit()
}

// TestOutcomeHasTheAttempts: an outcome has all attempts of its timer, also through a restart, but
// for those that were made before anything named a topic for it.
func TestOutcomeHasTheAttempts(t *testing.T) {
	var seen string
	r := makeHarness(t, memfs.New(), func(cfg *Config) {
		cfg.Describe = func(_ *timer.Topic, _ *timer.Timer, attempts []timer.HistoryAttempt) []byte {
			seen = ""
			for _, a := range attempts {
				seen += fmt.Sprintf("%d: %d. ", a.Attempt, a.Status)
			}
			return []byte("{}")
		}
	})
	r.topic(2, func(topic *timer.Topic) { topic.Paused = true })
	policy := func(onDead, onDone string) {
		r.topic(1, func(topic *timer.Topic) {
			topic.Policy.OnDead, topic.Policy.OnDone, topic.Policy.MaxAttempts = onDead, onDone, 3
		})
		r.topicsChanged()
	}
	r.mustOpen()
	end := func(then func(), statuses ...int) {
		t.Helper()
		for _, status := range statuses {
			r.one().answer(status)
			then()
			r.pass(2 * time.Second)
		}
	}
	for _, c := range []struct {
		name, onDead, onDone, want string
		own                        func(*timer.Spec)
		last                       int
	}{
		{"the topic's, of an end as dead", "topic-2", "", "1: 500. 2: 503. 3: 500. ", nil, 500},
		{"the topic's, of an end as done", "", "topic-2", "1: 500. 2: 503. 3: 200. ", nil, 200},
		{"the timer's own", "", "", "1: 500. 2: 503. 3: 500. ", func(s *timer.Spec) { s.OnDead = &timer.OutcomeTopic{ID: 2, Name: "topic-2"} }, 500},
		{"none, by the timer", "topic-2", "topic-2", "", func(s *timer.Spec) { s.OnDead, s.OnDone = &timer.OutcomeTopic{}, &timer.OutcomeTopic{} }, 500},
	} {
		seen = ""
		policy(c.onDead, c.onDone)
		r.add(fmt.Sprint("a", len(c.name)), 0, func(s *timer.Spec) {
			if c.own != nil {
				c.own(s)
			}
		})
		end(func() { r.runIdle(); r.restart() }, 500)
		end(r.runIdle, 503, c.last)
		if seen != c.want {
			t.Errorf("%s: %q, want %q", c.name, seen, c.want)
		}
	}
	policy("", "")
	r.add("late", 0)
	end(r.runIdle, 500, 503)
	policy("topic-2", "")
	end(r.runIdle, 500)
	if seen != "3: 500. " {
		t.Errorf("named late: %q", seen)
	}
	r.audit()
}

// TestOutcomeOfTheTimerItself: what the timer names counts, and not its topic's policy.
func TestOutcomeOfTheTimerItself(t *testing.T) {
	r := outcomeHarness(t, nil)
	r.topic(3, nil)
	r.topicsChanged()
	r.add("none", 0, func(s *timer.Spec) { s.OnDone = &timer.OutcomeTopic{} })
	r.one().answer(200)
	r.runIdle()
	r.wantCalls("")
	r.add("other", 0, func(s *timer.Spec) { s.OnDone = &timer.OutcomeTopic{ID: 3, Name: "topic-3"} })
	r.one().answer(200)
	r.runIdle()
	c := r.one()
	if c.Job.Topic != 3 {
		t.Errorf("the outcome is %+v", c.Job)
	}
	c.answer(200)
	r.runIdle()
}

// TestOutcomeOfExpiry: expired is dead. A cancelled timer has no outcome.
func TestOutcomeOfExpiry(t *testing.T) {
	r := outcomeHarness(t, nil)
	r.topic(1, func(topic *timer.Topic) { topic.Policy.OnDead, topic.Paused = "topic-2", true })
	r.topicsChanged()
	r.add("late", 0, func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, 2_000 })
	r.add("gone", 0)
	r.do(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "gone"})
	r.pass(3 * time.Second)
	c, d := r.outcome()
	if d != (described{"topic-1", "late", "4", "2", 0, 0}) {
		t.Errorf("%+v", d)
	}
	c.answer(200)
	r.runIdle()
	r.wantCalls("")
}

// behind are the topics of a node that has not learned yet of those that it does not know.
type behind struct{ scheduler.Topics }

func (behind) Given(timer.TopicID) bool { return false }

// TestOutcomeWaitsForTopic: a node that does not know the timer's topic yet lets it expire, or
// judges its consumer's lease, only when it does: it cannot know the outcome.
func TestOutcomeWaitsForTopic(t *testing.T) {
	r := newHostHarness(t, func(cfg *Config) { cfg.Describe, cfg.Topics = describe, behind{cfg.Topics} })
	r.topic(2, nil)
	r.pulled(func(p *timer.Policy) { p.OnDead, p.MaxAttempts = "topic-2", 1 })
	r.add("late", time.Second, func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, 2_000 })
	r.add("held", 0)
	r.wantPull(1, "held")
	known := r.topics[1]
	delete(r.topics, 1)
	r.topicsChanged()
	r.pass(time.Minute)
	r.wantCalls("")
	if r.timer("late").State != timer.Scheduled || r.timer("held").State != timer.Leased {
		t.Error("a timer ended although its topic was not known")
	}
	r.topics[1] = known
	r.topicsChanged()
	r.pass(time.Second)
	if calls := r.calls.take(); len(calls) != 2 {
		t.Errorf("%d outcomes", len(calls))
	}
	r.wantState("late", "dead expired 0")
	r.wantState("held", "dead max_attempts 1")
}

// TestOutcomeOfEachOccurrence: each occurrence of a series has its own.
func TestOutcomeOfEachOccurrence(t *testing.T) {
	r := outcomeHarness(t, nil)
	r.add("a", time.Second, repeats(timer.Repeat{EveryMs: 10_000, Count: 3}))
	ids := map[string]bool{}
	for n := range 3 {
		r.pass(time.Duration(10-9*boolInt(n == 0)) * time.Second)
		r.one().answer(200)
		r.runIdle()
		c, _ := r.outcome()
		ids[c.Job.ID] = true
		c.answer(200)
		r.runIdle()
	}
	if len(ids) != 3 {
		t.Errorf("ids of outcomes: %v", ids)
	}
}

// TestOutcomeOfConsumers: an ack, and a lease that runs out for the last time, are ends like any
// other. The outcome is pulled where its topic is.
func TestOutcomeOfConsumers(t *testing.T) {
	r := outcomeHarness(t, func(p *timer.Policy) { p.Pull, p.MaxAttempts = true, 1 })
	r.add("a", 0)
	got := r.wantPull(1, "a")
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil)
	c, d := r.outcome()
	if d.ID != "a" || d.State != "3" {
		t.Errorf("%+v", d)
	}
	c.answer(200)
	r.runIdle()
	r.add("b", 0)
	r.wantPull(1, "b")
	r.pass(31 * time.Second)
	if c, d = r.outcome(); d.ID != "b" || d.State != "4" {
		t.Errorf("%+v", d)
	}
	c.answer(200)
	r.runIdle()
	r.topic(2, func(topic *timer.Topic) { topic.Policy.OnDead, topic.Policy.MaxAttempts = "topic-1", 2 })
	r.topicsChanged()
	r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: "c", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	for range 2 {
		r.one().answer(500)
		r.pass(time.Second)
	}
	if got := r.pull(2); len(got) != 1 || len(got[0].Timer.Labels) != 1 || got[0].Timer.Labels[0] != timer.OutcomeLabel {
		t.Errorf("pulled %+v", got)
	}
}

// TestOutcomeOutlivesCrashes: the entry that ends a timer makes its outcome, so no crash can come
// in between: a timer is done if and only if its outcome is there, and there is one.
func TestOutcomeOutlivesCrashes(t *testing.T) {
	r := makeHarness(t, memfs.New(), func(cfg *Config) { cfg.Describe = describe })
	r.topic(2, func(topic *timer.Topic) { topic.Paused = true })
	r.topic(1, func(topic *timer.Topic) { topic.Policy.OnDone = "topic-2" })
	r.mustOpen()
	for n := range 40 {
		id := fmt.Sprint("a", n)
		r.add(id, 0)
		r.one().answer(200)
		for range n % 8 { // the entry gets that far
			r.turn()
		}
		r.restart()
		done := int64(0)
		for i := range n + 1 {
			if r.timer(fmt.Sprint("a", i)).State == timer.Done {
				done++
			}
		}
		if c := r.table().Counts(2); c.Scheduled != done {
			t.Fatalf("crash %d: %d timers are done and have %d outcomes", n, done, c.Scheduled)
		}
		for r.timer(id).State != timer.Done {
			r.one().answer(200)
			r.runIdle()
		}
		if c := r.table().Counts(2); c.Scheduled != int64(n+1) {
			t.Fatalf("after crash %d: %d outcomes of %d ends", n, c.Scheduled, n+1)
		}
	}
	r.audit()
}

// TestOutcomeOfAClockAhead: an outcome that was made and called while the clock was ahead is called
// again at once when the clock is right, and not at the time that the clock showed.
func TestOutcomeOfAClockAhead(t *testing.T) {
	r := outcomeHarness(t, nil)
	r.step(time.Hour)
	r.add("a", 0)
	r.one().answer(200)
	r.runIdle()
	r.outcome() // its end is lost
	r.step(-time.Hour)
	r.restart()
	for n := 0; len(r.calls.running) == 0; n++ {
		if n == 10 {
			t.Fatal("the outcome is not called")
		}
		r.pass(time.Second)
	}
	r.calls.running[0].answer(200)
	r.runIdle()
	if c := r.table().Counts(2); c.Done != 1 {
		t.Errorf("%+v", c)
	}
}

// TestOutcomeOfMissingTopic: an outcome whose topic is gone is counted, and its timer ends. A topic
// that this node has not learned of yet is there.
func TestOutcomeOfMissingTopic(t *testing.T) {
	r := outcomeHarness(t, func(p *timer.Policy) { p.OnDone = "gone" })
	r.add("a", 0)
	r.one().answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	r.add("b", 0, func(s *timer.Spec) { s.OnDone = &timer.OutcomeTopic{ID: 50, Name: "gone"} })
	r.one().answer(200)
	r.runIdle()
	if r.observer.lost != 2 || r.observer.made != 0 {
		t.Errorf("%d lost, %d made", r.observer.lost, r.observer.made)
	}
	r.add("c", 0, func(s *timer.Spec) { s.OnDone = &timer.OutcomeTopic{ID: 150, Name: "new"} })
	r.one().answer(200)
	r.runIdle()
	if c := r.table().Counts(150); c.Scheduled != 1 || r.observer.made != 1 {
		t.Errorf("of a topic that is not known here yet: %+v", c)
	}
}
