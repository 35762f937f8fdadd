package backend

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Destinations gives the API the state of the nodes' calls to receivers.
type Destinations interface {
	// Destinations are the receivers of all nodes that answer at once, each one once, and the names
	// of nodes that did not. They may be fewer than there are: each node lists some thousand.
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

// DestinationStates are in the order of the listing.
var DestinationStates = []DestinationState{DestinationOpen, DestinationHalfOpen, DestinationClosed}

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
	Failures    int64            `json:"failures,omitempty"`      // calls that failed since one succeeded
	NextProbeMs int64            `json:"next_probe_ms,omitempty"` // while it is open
	// In that state, if it is not closed.
	Nodes []string `json:"nodes,omitempty"`
	// The first topics whose timers called it, by name; MoreTopics: there were others.
	Topics     []string `json:"topics,omitempty"`
	MoreTopics bool     `json:"more_topics,omitempty"`
}

// MaxDestinationTopics bounds the topics of a destination.
const MaxDestinationTopics = 8

func (d *Destination) Rank() int { return slices.Index(DestinationStates, d.State) }

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
		slices.Sort(d.Topics)
		d.Topics = slices.Compact(d.Topics)
		if len(d.Topics) > MaxDestinationTopics {
			d.Topics, d.MoreTopics = d.Topics[:MaxDestinationTopics], true
		}
		all = append(all, *d)
	}
	slices.SortFunc(all, CompareDestinations)
	return all
}

// CompareDestinations is the order of the listing: those that are unwell first.
func CompareDestinations(a, b Destination) int {
	return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), strings.Compare(a.Destination, b.Destination))
}

// add merges another node's row.
func (d *Destination) add(o *Destination) {
	d.Calls += o.Calls
	d.Waiting += o.Waiting
	d.LatencyUs = max(d.LatencyUs, o.LatencyUs)
	d.Failures += o.Failures
	d.Topics = slices.Concat(d.Topics, o.Topics)
	d.MoreTopics = d.MoreTopics || o.MoreTopics
	if o.FailedMs > d.FailedMs {
		d.FailedMs, d.LastError = o.FailedMs, o.LastError
	}
	switch c := cmp.Compare(o.Rank(), d.Rank()); {
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
