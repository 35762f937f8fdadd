package feed

import (
	"sync"

	"carillon/shard/events"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// inboxEvents bounds the events that wait to be given to the listeners.
const inboxEvents = 16_384

// inbox has the events of this node's shards until they are given to the listeners. A shard's turn
// only puts an event in, so that its length does not depend on how many listen.
type inbox struct {
	mu      sync.Mutex
	events  []backend.Event
	dropped int64
	giving  bool // a task gives the events to the listeners
}

// put reports whether the caller must start a task that calls take until it returns false.
func (i *inbox) put(e *backend.Event) (start bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.events) < inboxEvents {
		i.events = append(i.events, *e)
	} else {
		i.dropped++
	}
	start = !i.giving
	i.giving = true
	return start
}

// take empties the inbox; false: it was empty.
func (i *inbox) take() (events []backend.Event, dropped int64, some bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	events, dropped = i.events, i.dropped
	i.events, i.dropped = nil, 0
	i.giving = len(events) > 0
	return events, dropped, i.giving
}

// listeners are the subscribers, and which of the topics that were asked for they listen to.
type listeners struct {
	subscribers []*subscriber
	topics      sync.Map // timer.TopicID → bool
}

// Watches implements events.Watcher. It does not depend on a listener's room: a listener learns how
// many events found none.
func (f *Feed) Watches(id timer.TopicID) bool {
	l := f.listeners.Load()
	if len(l.subscribers) == 0 {
		return false
	}
	if watched, known := l.topics.Load(id); known {
		return watched.(bool)
	}
	topic, ok := f.cfg.Topic(id)
	if !ok {
		return false
	}
	watched := false
	for _, s := range l.subscribers {
		watched = watched || s.watch.OfTimers() && s.watch.SeesTopic(topic.Name)
	}
	l.topics.Store(id, watched)
	return watched
}

// Saw implements events.Watcher.
func (f *Feed) Saw(e *events.Event) {
	topic, ok := f.cfg.Topic(e.Timer.Topic)
	if !ok {
		return
	}
	seen := f.event(e, topic.Name)
	if f.inbox.put(&seen) {
		f.cfg.Tasks.Go(f.give)
	}
}

// give has the listeners get the events of the inbox, until it is empty.
func (f *Feed) give() {
	for {
		events, dropped, some := f.inbox.take()
		if !some {
			return
		}
		for _, s := range f.listeners.Load().subscribers {
			s.give(events, dropped)
		}
	}
}
