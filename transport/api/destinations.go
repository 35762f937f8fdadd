package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Destinations tells the API of the nodes' calls to receivers.
type Destinations interface {
	// Destinations are the receivers of all nodes that answer at once, each one once, and the names
	// of nodes that did not. They may be fewer than there are: each node tells some thousand.
	Destinations(ctx context.Context) (list []Destination, missing []string, err error)
}

// DestinationState is the state of a destination's breaker, the worst of all nodes' and topics'.
type DestinationState string

// The states of a destination.
const (
	DestinationOpen     DestinationState = "open"
	DestinationHalfOpen DestinationState = "half-open"
	DestinationClosed   DestinationState = "closed"
)

// destinationStates are in the order of the listing.
var destinationStates = []DestinationState{DestinationOpen, DestinationHalfOpen, DestinationClosed}

// Destination is one receiver: scheme, host and port. Times are Unix ms, 0 for none.
type Destination struct {
	Destination string           `json:"destination"`
	State       DestinationState `json:"state"`
	SinceMs     int64            `json:"since_ms,omitempty"` // 0: its breaker was never open
	Calls       int              `json:"calls"`              // that run, or are about to
	Waiting     int              `json:"waiting"`            // timers that are due for it
	LatencyUs   int64            `json:"latency_us,omitempty"`
	LastError   string           `json:"last_error,omitempty"`
	FailedMs    int64            `json:"failed_ms,omitempty"`
	NextProbeMs int64            `json:"next_probe_ms,omitempty"` // while it is open
	// In that state, if it is not closed.
	Nodes []string `json:"nodes,omitempty"`
}

func (d *Destination) rank() int { return slices.Index(destinationStates, d.State) }

// MergeDestinations merges the rows of several nodes for the same destinations, in the order of the
// listing.
func MergeDestinations(lists ...[]Destination) []Destination {
	byName := map[string]*Destination{}
	for _, list := range lists {
		for i := range list {
			d := list[i]
			if known := byName[d.Destination]; known != nil {
				known.add(&d)
			} else {
				byName[d.Destination] = &d
			}
		}
	}
	all := make([]Destination, 0, len(byName))
	for _, d := range byName {
		slices.Sort(d.Nodes)
		all = append(all, *d)
	}
	slices.SortFunc(all, compareDestinations)
	return all
}

func compareDestinations(a, b Destination) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), strings.Compare(a.Destination, b.Destination))
}

// add merges another node's row.
func (d *Destination) add(o *Destination) {
	d.Calls += o.Calls
	d.Waiting += o.Waiting
	d.LatencyUs = max(d.LatencyUs, o.LatencyUs)
	if o.FailedMs > d.FailedMs {
		d.FailedMs, d.LastError = o.FailedMs, o.LastError
	}
	switch c := cmp.Compare(o.rank(), d.rank()); {
	case c < 0: // worse
		d.State, d.SinceMs, d.NextProbeMs, d.Nodes = o.State, o.SinceMs, o.NextProbeMs, o.Nodes
	case c == 0:
		d.SinceMs = leastGiven(d.SinceMs, o.SinceMs)
		d.NextProbeMs = leastGiven(d.NextProbeMs, o.NextProbeMs)
		d.Nodes = append(d.Nodes, o.Nodes...)
	}
}

// leastGiven is the lesser of two, of which 0 is none.
func leastGiven(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// listDestinations answers the receivers that the cluster calls, those that are unwell first.
func (rq *request) listDestinations() *problem {
	limit, p := rq.query.limit()
	if p != nil {
		return p
	}
	states, _ := rq.query.value("state")
	wanted := destinationStates
	if states != "" {
		wanted = nil
		for name := range strings.SplitSeq(states, ",") {
			if !slices.Contains(destinationStates, DestinationState(name)) {
				return bad(badRequest, "query: state must be a comma list of open, half-open, closed")
			}
			wanted = append(wanted, DestinationState(name))
		}
	}
	var after Destination
	c, given := rq.query.value("cursor")
	if given {
		var ok bool
		if after, ok = parseDestinationCursor(c, states); !ok {
			return bad(badRequest, "query: cursor is not one of this listing")
		}
	}
	list, missing, err := rq.core.Destinations.Destinations(rq.s.base)
	if err != nil {
		return engineFault(err)
	}
	list = slices.DeleteFunc(list, func(d Destination) bool {
		return !slices.Contains(wanted, d.State) || given && compareDestinations(d, after) <= 0
	})
	o := object{b: rq.out()}
	o.name("destinations")
	page := array{b: o.b}
	n := min(limit, len(list))
	for i := range list[:n] {
		page.next()
		page.b = list[i].append(page.b)
	}
	o.b = page.end()
	if len(missing) > 0 {
		o.texts("missing", missing)
	}
	if n < len(list) {
		o.str("next_cursor", destinationCursor(&list[n-1], states))
	}
	rq.json(200, o.end())
	return nil
}

func (d *Destination) append(b []byte) []byte {
	o := object{b: b}
	o.str("destination", d.Destination)
	o.str("state", string(d.State))
	instant := func(name string, ms int64) {
		if ms != 0 {
			o.b = appendTime(o.b, name, ms)
		}
	}
	instant("since", d.SinceMs)
	o.integer("calls", int64(d.Calls))
	o.integer("waiting", int64(d.Waiting))
	if d.LatencyUs > 0 {
		o.float("latency_ms", float64(d.LatencyUs)/1000)
	}
	if d.LastError != "" {
		o.str("last_error", d.LastError)
	}
	instant("failed", d.FailedMs)
	instant("next_probe", d.NextProbeMs)
	if len(d.Nodes) > 0 {
		o.texts("nodes", d.Nodes)
	}
	return o.end()
}

func (o *object) texts(name string, list []string) {
	o.name(name)
	a := array{b: o.b}
	for _, text := range list {
		a.next()
		a.b = appendString(a.b, text)
	}
	o.b = a.end()
}

func destinationCursor(d *Destination, states string) string {
	b := append([]byte{cursorDestinations, byte(d.rank())}, d.Destination...)
	return sealCursor(b, xxhash.Sum64String(states))
}

func parseDestinationCursor(s, states string) (after Destination, ok bool) {
	b, ok := openCursor(s, cursorDestinations, xxhash.Sum64String(states))
	if !ok || len(b) < 1 || int(b[0]) >= len(destinationStates) {
		return after, false
	}
	return Destination{State: destinationStates[b[0]], Destination: string(b[1:])}, true
}
