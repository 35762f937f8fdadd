package backend

import (
	"slices"
	"strings"
	"time"
)

// EventStream hands out events, in the order in which this node learnt of them.
type EventStream interface {
	// Next waits for events, at most that long; none came when it returns an empty list. missed is
	// how many there was no room for since the last call. false: the stream has ended.
	Next(wait time.Duration) (events []Event, missed int64, ok bool)
	Close()
}

// Watch selects events.
type Watch struct {
	Topic string `json:"topic,omitempty"` // of this topic alone
	// Of topics that match one of these patterns; none: of all.
	Topics []string `json:"topics,omitempty"`
	Labels []string `json:"labels,omitempty"` // of timers that have all of them
	Kinds  []string `json:"kinds,omitempty"`  // none: all
}

// Kinds of events.
const (
	EventFired     = "fired" // an attempt has ended
	EventDead      = "dead"
	EventAdded     = "added"
	EventChanged   = "changed"
	EventCancelled = "cancelled"
	// Of a destination, at a node; only where it is asked for, as the next.
	EventBreaker = "breaker"
	EventNode    = "node"
	EventShards  = "shards" // their number grows
	EventMissed  = "missed" // of a node that is silent; no client asks for it
)

var EventKinds = []string{EventFired, EventDead, EventAdded, EventChanged, EventCancelled, EventBreaker, EventNode, EventShards}

// Event is one that happened to a timer.
type Event struct {
	Kind   string   `json:"kind"`
	Topic  string   `json:"topic,omitempty"`
	ID     string   `json:"id,omitempty"`
	AtMs   int64    `json:"at_ms"`
	Labels []string `json:"labels,omitempty"`
	DueMs  int64    `json:"due_ms,omitempty"` // of a timer that was added or changed

	Attempt int    `json:"attempt,omitempty"`
	Result  string `json:"result,omitempty"` // of an attempt: success, retry, dead, cancelled
	Status  int    `json:"status,omitempty"`
	Error   string `json:"error,omitempty"`
	LateMs  int64  `json:"late_ms,omitempty"` // of the first attempt
	NextMs  int64  `json:"next_ms,omitempty"` // after retry: the next attempt
	Reason  string `json:"reason,omitempty"`  // of a dead timer

	Destination string `json:"destination,omitempty"` // of a breaker
	State       string `json:"state,omitempty"`       // of a breaker, a node, or the growth of the number of shards

	Growth *Growth `json:"-"`

	Node string `json:"node"`
}

// Growth is how far the growth of the number of shards is.
type Growth struct {
	From, To int // shards before and after; equal where there is no growth
	Done     int // shards that it has made, the first of which is From + 1
}

// States of a growth, in an event.
const (
	GrowthBegins  = "begins"
	GrowthDivided = "divided" // a shard: its timers are in two now
	GrowthDone    = "done"
)

// SeesTopic reports whether the watch is of a topic.
func (w *Watch) SeesTopic(topic string) bool {
	if w.Topic != "" && w.Topic != topic {
		return false
	}
	for _, pattern := range w.Topics {
		if Match(pattern, topic) {
			return true
		}
	}
	return len(w.Topics) == 0
}

// Wants reports whether the watch is of breakers, of nodes, or of the number of shards, by the kind.
// A token that reaches only some topics gets no events of breakers.
func (w *Watch) Wants(kind string) bool {
	all := len(w.Topics) == 0 || slices.Contains(w.Topics, "*")
	return w.Topic == "" && len(w.Labels) == 0 && slices.Contains(w.Kinds, kind) && (kind != EventBreaker || all)
}

// OfTimers reports whether the watch is of timers' events.
func (w *Watch) OfTimers() bool {
	return len(w.Kinds) == 0 || slices.ContainsFunc(w.Kinds, func(kind string) bool { return kind != EventBreaker && kind != EventNode && kind != EventShards })
}

// Sees reports whether the watch selects an event of a timer.
func (w *Watch) Sees(e *Event) bool {
	return w.SeesTopic(e.Topic) && (len(w.Kinds) == 0 || slices.Contains(w.Kinds, e.Kind)) && hasAll(e.Labels, w.Labels)
}

func hasAll(labels, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(l string) bool { return !slices.Contains(labels, l) })
}

// Match reports whether a name has a pattern, in which a star stands for any run of characters.
func Match(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], next
	}
}
