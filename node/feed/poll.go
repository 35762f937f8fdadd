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

// PollStates gives the changes of breakers that this node uses, and of nodes, to the listeners that
// asked for them. A new listener first gets those that are not closed, or not alive.
func (f *Feed) PollStates() {
	f.polled.breakers = f.poll(f.polled.breakers, backend.EventBreaker, f.cfg.Breakers, func(destination, state string) backend.Event {
		return backend.Event{Destination: destination, State: state, Node: f.cfg.Node}
	})
	f.polled.nodes = f.poll(f.polled.nodes, backend.EventNode, f.cfg.States, func(node, state string) backend.Event {
		return backend.Event{Node: node, State: state}
	})
}

// poll compares states with those of before, and returns them; nil while nobody listens. Nodes are
// polled for this node's own listeners only, since each node has a view of its own.
func (f *Feed) poll(before map[string]string, kind string, states func() map[string]string, event func(name, state string) backend.Event) map[string]string {
	var wanted []*tap
	for _, t := range f.listeners.Load().taps {
		if t.watch.Wants(kind) && (kind != backend.EventNode || !t.remote) {
			wanted = append(wanted, t)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	now := states()
	for name, state := range now {
		usual := state == string(backend.DestinationClosed) || state == string(backend.NodeAlive)
		changed := before[name] != state && (before[name] != "" || !usual)
		e := event(name, state)
		e.Kind, e.AtMs = kind, f.cfg.NowMs()
		for _, t := range wanted {
			if t.listed[kind] && changed || !t.listed[kind] && !usual {
				t.put(e)
			}
		}
	}
	for _, t := range wanted {
		t.listed[kind] = true
	}
	return now
}
