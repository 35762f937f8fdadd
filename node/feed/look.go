package feed

import (
	"time"

	"carillon/transport/api/backend"
)

// LookEach is how often Look is to be called.
const LookEach = time.Second

// looks are the states that were seen last, of breakers and nodes, which tell of no change by
// themselves. Look's alone.
type looks struct{ breakers, nodes map[string]string }

// Look tells listeners that asked for it of breakers that this node sees change, and of nodes; at
// first of those that are not closed, or not alive.
func (f *Feed) Look() {
	f.seen.breakers = f.look(f.seen.breakers, backend.EventBreaker, f.cfg.Breakers, func(destination, state string) backend.Event {
		return backend.Event{Destination: destination, State: state, Node: f.cfg.Node}
	})
	f.seen.nodes = f.look(f.seen.nodes, backend.EventNode, f.cfg.States, func(node, state string) backend.Event {
		return backend.Event{Node: node, State: state}
	})
}

// look compares states with those of before, and returns them; nil while nobody listens. Nodes are
// looked at for this node's own listeners: each node has a view of them.
func (f *Feed) look(before map[string]string, kind string, states func() map[string]string, event func(name, state string) backend.Event) map[string]string {
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
			if t.looked[kind] && changed || !t.looked[kind] && !usual {
				t.put(e)
			}
		}
	}
	for _, t := range wanted {
		t.looked[kind] = true
	}
	return now
}
