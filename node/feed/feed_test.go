package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"carillon/node/task"
	"carillon/shard/events"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// pair is two nodes' feeds, of which the first asks the second.
type pair struct {
	here, there *Feed
	cut         atomic.Bool // no call gets through

	breakers, states map[string]string // of both
	growth           backend.Growth
}

func newPair(t *testing.T) *pair {
	p := &pair{}
	begin := time.Now()
	env := task.NewGoroutines(func() time.Duration { return time.Since(begin) })
	t.Cleanup(env.Wait)
	topics := map[timer.TopicID]*timer.Topic{1: {ID: 1, Name: "orders"}, 2: {ID: 2, Name: "other"}}
	make := func(self uint64, name string, nodes ...uint64) *Feed {
		return New(Config{
			Self: self, Breakers: func() map[string]string { return p.breakers }, States: func() map[string]string { return p.states }, Shards: func() (int, int) { return 4, 4 }, Steady: func() bool { return true }, Growth: func() backend.Growth { return p.growth }, Rates: &Rates{}, Members: func() []uint64 { return []uint64{1, 2, 3} }, Node: name, Tasks: env, NowMs: func() int64 { return 5 },
			Topic: func(id timer.TopicID) (*timer.Topic, bool) { t, ok := topics[id]; return t, ok },
			Nodes: func() []uint64 { return nodes },
			Name:  func(node uint64) string { return fmt.Sprint("n", node) },
			Backup: func() *backend.BackupStats {
				if self == 1 {
					return nil
				}
				return &backend.BackupStats{Every: "0 * * * *", MadeMs: 7, Error: "no"}
			},
			Call: func(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error) {
				if p.cut.Load() || node != 2 || !Serves(method) {
					return nil, errors.New("nobody there")
				}
				return p.there.Serve(ctx, 1, method, body)
			},
		}, 7)
	}
	p.here, p.there = make(1, "n1", 2), make(2, "n2")
	return p
}

func added(topic timer.TopicID, id string) *events.Event {
	return &events.Event{Kind: events.TimerAdded, AtMs: 9, Timer: &timer.Timer{Topic: topic, ID: id, Spec: timer.Spec{DueMs: 99, Labels: []string{"eu"}}}}
}

// emit gives a feed an event as a shard's leader does; false: nobody wanted it.
func emit(f *Feed, e *events.Event) bool {
	if !f.Watches(e.Timer.Topic) {
		return false
	}
	f.Saw(e)
	return true
}

// idle reports whether the listeners have all events that they were to get.
func (f *Feed) idle() bool {
	f.inbox.mu.Lock()
	defer f.inbox.mu.Unlock()
	return !f.inbox.giving
}

// hear waits for the next event.
func hear(t *testing.T, s backend.EventStream) backend.Event {
	t.Helper()
	for range 20 {
		if events, _, _ := s.Next(time.Second); len(events) > 0 {
			if len(events) > 1 {
				t.Fatalf("%d events at once: %+v", len(events), events)
			}
			return events[0]
		}
	}
	t.Fatal("no event within 20 s")
	return backend.Event{}
}

// eventually polls.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestEventsOfBothNodes(t *testing.T) {
	p := newPair(t)
	if emit(p.here, added(1, "a")) {
		t.Error("an event was wanted though nobody listens")
	}
	s := p.here.Listen(t.Context(), &backend.Watch{Topic: "orders", Labels: []string{"eu"}})
	if emit(p.here, added(2, "a")) {
		t.Error("an event of another topic was wanted")
	}
	emit(p.here, added(1, "a"))
	if e := hear(t, s); e.ID != "a" || e.Topic != "orders" || e.Node != "n1" || e.Kind != backend.EventAdded || e.DueMs != 99 || e.AtMs != 9 {
		t.Errorf("%+v", e)
	}
	eventually(t, "the other node is asked", func() bool { return emit(p.there, added(1, "b")) })
	if e := hear(t, s); e.ID != "b" || e.Node != "n2" {
		t.Errorf("%+v", e)
	}
	s.Close()
	if emit(p.here, added(1, "a")) {
		t.Error("an event was wanted after the listener had gone")
	}
}

func TestKindsOfEvents(t *testing.T) {
	p := newPair(t)
	p.cut.Store(true)
	s := p.there.Listen(t.Context(), &backend.Watch{})
	defer s.Close()
	of := func(kind events.EventKind, state timer.State) backend.Event {
		t.Helper()
		emit(p.there, &events.Event{Kind: kind, State: state, Attempt: timer.HistoryAttempt{Attempt: 3, Status: 500, Err: "no"},
			Timer: &timer.Timer{Topic: 1, ID: "a", Reason: timer.Stopped, LatenessMs: -1, NextMs: 77}})
		return hear(t, s)
	}
	for state, result := range map[timer.State]string{0: "retry", timer.Done: "success", timer.Dead: "dead", timer.Cancelled: "cancelled"} {
		e := of(events.AttemptEnded, state)
		if e.Kind != backend.EventFired || e.Result != result || e.Attempt != 3 || e.Status != 500 || e.Error != "no" || e.LateMs != 0 || (e.NextMs == 77) != (state == 0) {
			t.Errorf("%+v", e)
		}
	}
	for kind, want := range map[events.EventKind]string{events.TimerChanged: backend.EventChanged, events.TimerDied: backend.EventDead, events.TimerCancelled: backend.EventCancelled} {
		if e := of(kind, 0); e.Kind != want || (e.Reason == "stopped") != (want == backend.EventDead) {
			t.Errorf("%+v", e)
		}
	}
}

// TestSlowListenerIsToldWhatItMissed: the events that a listener does not fetch are bounded, here
// and at other nodes.
func TestSlowListenerIsToldWhatItMissed(t *testing.T) {
	p := newPair(t)
	s := p.here.Listen(t.Context(), &backend.Watch{})
	defer s.Close()
	for i := range subscriberEvents + 10 {
		emit(p.here, added(1, fmt.Sprint(i)))
	}
	eventually(t, "all were given", p.here.idle)
	events, missed, ok := s.Next(time.Second)
	if len(events) != subscriberEvents || missed != 10 || !ok {
		t.Errorf("%d events, %d missed, %v", len(events), missed, ok)
	}
	eventually(t, "the other node is asked", func() bool { return len(p.there.listeners.Load().subscribers) > 0 })
	const many = 3 * subscriberEvents
	for i := range many {
		emit(p.there, added(1, fmt.Sprint(i)))
	}
	got := int64(0)
	eventually(t, "all of the other node's are heard of, or known to be missed", func() bool {
		events, missed, _ := s.Next(time.Millisecond)
		got += int64(len(events)) + missed
		return got == many
	})
	s.(*stream).subscriber.put(make([]backend.Event, many)...) // as another node's answer might
	if events, missed, _ := s.Next(time.Second); len(events) != subscriberEvents || missed != many-subscriberEvents {
		t.Errorf("of a batch of %d: %d events, %d missed", many, len(events), missed)
	}
}

// TestNodeThatIsNotHeard: the listener learns once that a node does not answer, and gets its events
// again afterwards.
func TestNodeThatIsNotHeard(t *testing.T) {
	p := newPair(t)
	p.cut.Store(true)
	s := p.here.Listen(t.Context(), &backend.Watch{})
	defer s.Close()
	if e := hear(t, s); e.Kind != backend.EventMissed || e.Node != "n2" || e.Error == "" || e.AtMs != 5 {
		t.Errorf("%+v", e)
	}
	p.cut.Store(false)
	eventually(t, "the other node is asked", func() bool { return emit(p.there, added(1, "b")) })
	if e := hear(t, s); e.ID != "b" {
		t.Errorf("%+v", e)
	}
	// The events that were kept for the listener are gone, as after the node's start: the listener
	// learns that too.
	p.there.mu.Lock()
	for key, subscriber := range p.there.remote {
		delete(p.there.remote, key)
		p.there.removeLocked(subscriber)
		subscriber.put(backend.Event{Kind: backend.EventAdded, ID: "last"}) // ends the question that waits
	}
	p.there.mu.Unlock()
	e := hear(t, s)
	if e.ID == "last" {
		e = hear(t, s)
	}
	if e.Kind != backend.EventMissed || e.Node != "n2" {
		t.Errorf("%+v", e)
	}
}

// TestGrowthIsHeard: a listener that asks for it hears of each growth of the number of shards when
// it begins, of each shard that it makes, and of its end, also where all that takes no second.
func TestGrowthIsHeard(t *testing.T) {
	p := newPair(t)
	p.cut.Store(true)
	hear := func(s backend.EventStream) (all []string) {
		events, _, _ := s.Next(0)
		for _, e := range events {
			if e.Kind != backend.EventShards || e.Node != "n2" || e.AtMs != 5 {
				t.Errorf("%+v", e)
			}
			all = append(all, fmt.Sprintf("%s %d-%d %d", e.State, e.Growth.From, e.Growth.To, e.Growth.Done))
		}
		return all
	}
	p.growth = backend.Growth{From: 4, To: 4}
	s := p.there.Listen(t.Context(), &backend.Watch{Kinds: []string{backend.EventShards}, Topics: []string{"orders"}})
	defer s.Close()
	timers := p.there.Listen(t.Context(), &backend.Watch{})
	defer timers.Close()
	for _, step := range []struct {
		now  backend.Growth
		want []string
	}{
		{backend.Growth{From: 4, To: 4}, nil},
		{backend.Growth{From: 4, To: 8}, []string{"begins 4-8 0"}},
		{backend.Growth{From: 4, To: 8, Done: 2}, []string{"divided 4-8 1", "divided 4-8 2"}},
		{backend.Growth{From: 4, To: 8, Done: 2}, nil},
		{backend.Growth{From: 8, To: 8}, []string{"divided 4-8 3", "divided 4-8 4", "done 4-8 4"}},
		{backend.Growth{From: 10, To: 10}, []string{"begins 8-10 0", "divided 8-10 1", "divided 8-10 2", "done 8-10 2"}},
		{backend.Growth{From: 12, To: 24, Done: 1}, []string{"begins 10-12 0", "divided 10-12 1", "divided 10-12 2", "done 10-12 2", "begins 12-24 0", "divided 12-24 1"}},
	} {
		p.growth = step.now
		p.there.PollStates()
		if got := hear(s); !slices.Equal(got, step.want) {
			t.Fatalf("%+v: heard %q, want %q", step.now, got, step.want)
		}
	}
	late := p.there.Listen(t.Context(), &backend.Watch{Kinds: []string{backend.EventShards}})
	defer late.Close()
	p.there.PollStates()
	if got := hear(late); !slices.Equal(got, []string{"begins 12-24 1"}) {
		t.Errorf("a new listener heard %q of the growth under way", got)
	}
	if got := hear(s); len(got) > 0 {
		t.Errorf("heard twice: %q", got)
	}
	if events, _, _ := timers.Next(0); len(events) > 0 {
		t.Errorf("who did not ask heard %+v", events)
	}
}

// TestBreakersAndNodesAreLookedAt: a listener that asks for their events hears of changes, and of
// those alone.
func TestBreakersAndNodesAreLookedAt(t *testing.T) {
	p := newPair(t)
	p.cut.Store(true)
	p.breakers, p.states = map[string]string{"http://a": "open", "http://b": "closed"}, map[string]string{"n1": "alive", "n2": "alive"}
	all := []string{backend.EventBreaker, backend.EventNode}
	s := p.there.Listen(t.Context(), &backend.Watch{Kinds: all, Topics: []string{"*"}})
	narrow := p.there.Listen(t.Context(), &backend.Watch{Kinds: all, Topics: []string{"orders"}})
	timers := p.there.Listen(t.Context(), &backend.Watch{})
	for _, l := range []backend.EventStream{s, narrow, timers} {
		defer l.Close()
	}
	p.there.PollStates()
	if e := hear(t, s); e.Kind != backend.EventBreaker || e.Destination != "http://a" || e.State != "open" {
		t.Errorf("at first: %+v", e)
	}
	p.breakers = map[string]string{"http://a": "half-open", "http://b": "closed", "http://c": "closed"}
	p.there.PollStates()
	if e := hear(t, s); e.Kind != backend.EventBreaker || e.Destination != "http://a" || e.State != "half-open" || e.Node != "n2" || e.AtMs != 5 {
		t.Errorf("%+v", e)
	}
	p.states = map[string]string{"n1": "down", "n2": "alive"}
	p.there.PollStates()
	for _, l := range []backend.EventStream{s, narrow} {
		if e := hear(t, l); e.Kind != backend.EventNode || e.Node != "n1" || e.State != "down" {
			t.Errorf("%+v", e)
		}
	}
	if events, _, _ := timers.Next(0); len(events) > 0 {
		t.Errorf("who did not ask heard %+v", events)
	}
	only := p.here.Listen(t.Context(), &backend.Watch{Kinds: all})
	defer only.Close()
	if p.here.Watches(1) {
		t.Error("events of timers are made for who asked for others")
	}
}

// TestTapsThatNobodyAsksFor go, and there are not too many.
func TestTapsThatNobodyAsksFor(t *testing.T) {
	p := newPair(t)
	now := time.Duration(0)
	p.there.cfg.Tasks = &stoppedClock{Env: p.there.cfg.Tasks, now: &now}
	for i := range remoteSubscribers {
		if subscriber, known := p.there.subscriberOf(remoteKey{1, uint64(i)}, &backend.Watch{}); subscriber == nil || known {
			t.Fatal(i, known)
		}
	}
	answer, err := p.there.Serve(t.Context(), 1, methodEvents, []byte(`{"number":999999,"first":true}`))
	if err != nil || string(answer) != `{"full":true}` {
		t.Errorf("%s %v", answer, err)
	}
	now = subscriberIdle + 1
	p.there.Tidy()
	if n := len(p.there.remote) + len(p.there.listeners.Load().subscribers); n != 0 {
		t.Errorf("%d are left", n)
	}
	if _, err := p.there.Serve(t.Context(), 1, methodEvents, []byte(`{`)); err == nil {
		t.Error("garbage was answered")
	}
}

type stoppedClock struct {
	task.Env
	now *time.Duration
}

func (c *stoppedClock) Now() time.Duration { return *c.now }
