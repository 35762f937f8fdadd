package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/transport/api/backend"
)

// subscriber keeps the events that a listener has not fetched yet.
type subscriber struct {
	watch  backend.Watch
	remote bool            // another node fetches it
	listed map[string]bool // kinds whose unusual states it has been given; PollStates' alone
	growth backend.Growth  // of which it has been given the events; PollStates' alone
	wake   task.Signal

	mu     sync.Mutex
	events []backend.Event
	missed int64
	asked  time.Duration // when another node asked for it last
}

func (f *Feed) open(w *backend.Watch) *subscriber {
	return &subscriber{watch: *w, listed: map[string]bool{}, wake: f.cfg.Tasks.NewSignal(), asked: f.cfg.Tasks.Now()}
}

func (f *Feed) add(s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addLocked(s)
}

func (f *Feed) addLocked(s *subscriber) {
	f.listeners.Store(&listeners{subscribers: append(slices.Clone(f.listeners.Load().subscribers), s)})
}

func (f *Feed) remove(s *subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeLocked(s)
}

func (f *Feed) removeLocked(s *subscriber) {
	left := slices.DeleteFunc(slices.Clone(f.listeners.Load().subscribers), func(o *subscriber) bool { return o == s })
	f.listeners.Store(&listeners{subscribers: left})
}

// put adds events, while there is room.
func (s *subscriber) put(events ...backend.Event) {
	s.mu.Lock()
	n := min(len(events), subscriberEvents-len(s.events))
	s.events = append(s.events, events[:n]...)
	s.missed += int64(len(events) - n)
	s.mu.Unlock()
	s.wake.Set()
}

func (s *subscriber) miss(n int64) {
	s.mu.Lock()
	s.missed += n
	s.mu.Unlock()
	s.wake.Set()
}

// take empties the subscriber.
func (s *subscriber) take() (events []backend.Event, missed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, missed = s.events, s.missed
	s.events, s.missed = nil, 0
	return events, missed
}

// wait takes the events that are there, or waits at most d for some.
func (s *subscriber) wait(ctx context.Context, env task.Env, d time.Duration) (events []backend.Event, missed int64) {
	for end := env.Now() + d; ; {
		if events, missed = s.take(); len(events) > 0 || missed > 0 || !s.wake.Wait(ctx, end-env.Now()) {
			return events, missed
		}
	}
}

// give adds the events that the listener asked for. Any of those that the inbox had no room for may
// have been among them.
func (s *subscriber) give(events []backend.Event, dropped int64) {
	if !s.watch.OfTimers() {
		return
	}
	var seen []backend.Event
	for i := range events {
		if s.watch.Sees(&events[i]) {
			seen = append(seen, events[i])
		}
	}
	if len(seen) > 0 {
		s.put(seen...)
	}
	if dropped > 0 {
		s.miss(dropped)
	}
}
