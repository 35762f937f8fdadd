package feed

import (
	"time"

	"carillon/transport/api/backend"
)

// PollInterval is how often PollStates is to be called.
const PollInterval = time.Second

// polledStates are the states that PollStates saw last, of breakers and of nodes. Nothing else
// reports their changes.
type polledStates struct{ breakers, nodes map[string]string }

// PollStates gives the changes of breakers that this node uses, of nodes, and of the number of
// shards to the listeners that asked for them. A new listener first gets those that are not closed,
// or not alive, and the growth that is under way.
func (f *Feed) PollStates() {
	f.polled.breakers = f.poll(f.polled.breakers, backend.EventBreaker, f.cfg.Breakers, func(destination, state string) backend.Event {
		return backend.Event{Destination: destination, State: state, Node: f.cfg.Node}
	})
	f.polled.nodes = f.poll(f.polled.nodes, backend.EventNode, f.cfg.States, func(node, state string) backend.Event {
		return backend.Event{Node: node, State: state}
	})
	f.pollGrowth()
}

// wanted are the listeners that asked for a kind. Nodes and shards are polled for this node's own
// listeners only, since each node sees them by itself.
func (f *Feed) wanted(kind string) (wanted []*subscriber) {
	for _, s := range f.listeners.Load().subscribers {
		if s.watch.Wants(kind) && (kind == backend.EventBreaker || !s.remote) {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

// poll compares states with those of before, and returns them; nil while nobody listens.
func (f *Feed) poll(before map[string]string, kind string, states func() map[string]string, event func(name, state string) backend.Event) map[string]string {
	wanted := f.wanted(kind)
	if len(wanted) == 0 {
		return nil
	}
	now := states()
	for name, state := range now {
		usual := state == string(backend.DestinationClosed) || state == string(backend.NodeAlive)
		changed := before[name] != state && (before[name] != "" || !usual)
		e := event(name, state)
		e.Kind, e.AtMs = kind, f.cfg.NowMs()
		for _, s := range wanted {
			if s.listed[kind] && changed || !s.listed[kind] && !usual {
				s.put(e)
			}
		}
	}
	for _, s := range wanted {
		s.listed[kind] = true
	}
	return now
}

// pollGrowth gives this node's own listeners the changes of the number of shards since the last
// poll.
func (f *Feed) pollGrowth() {
	for _, s := range f.wanted(backend.EventShards) {
		now := f.cfg.Growth()
		f.putGrowth(s, growthEvents(s.growth, now)...)
		s.growth = now
	}
}

// beginGrowth makes a growth that is under way the first event of a new subscriber.
func (f *Feed) beginGrowth(s *subscriber) {
	if !s.watch.Wants(backend.EventShards) {
		return
	}
	if s.growth = f.cfg.Growth(); s.growth.To > s.growth.From {
		f.putGrowth(s, backend.Event{State: backend.GrowthBegins, Growth: new(s.growth)})
	}
}

func (f *Feed) putGrowth(s *subscriber, events ...backend.Event) {
	for i := range events {
		events[i].Kind, events[i].Node, events[i].AtMs = backend.EventShards, f.cfg.Node, f.cfg.NowMs()
	}
	if len(events) > 0 {
		s.put(events...)
	}
}

// growthEvents are the events since g: the begin and the end of each growth, and each shard that it
// has made. A growth may have begun and ended in between.
func growthEvents(g, now backend.Growth) (events []backend.Event) {
	add := func(state string) {
		events = append(events, backend.Event{State: state, Growth: new(g)})
	}
	divided := func(made int) {
		for g.Done < made {
			g.Done++
			add(backend.GrowthDivided)
		}
	}
	for g != now && now.From >= g.From {
		switch {
		case g.To > g.From && now.From >= g.To:
			divided(g.To - g.From)
			add(backend.GrowthDone)
			g = backend.Growth{From: g.To, To: g.To}
		case g.To > g.From:
			divided(now.Done)
			return events
		default:
			if g.To = now.From; now.From == g.From {
				g.To = now.To
			}
			add(backend.GrowthBegins)
		}
	}
	return events
}
