package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventFired     EventKind = "fired" // an attempt has ended
	EventDead      EventKind = "dead"
	EventAdded     EventKind = "added"
	EventChanged   EventKind = "changed"
	EventCancelled EventKind = "cancelled"
	// EventShards is of the number of shards: it grows. Only where Kinds has it; see Event.Raw.
	EventShards EventKind = "shards"
	// EventMissed is in every stream: events were left out, Missed of them where that is known.
	EventMissed EventKind = "missed"
)

// EventFilter selects events; all that is given must hold.
type EventFilter struct {
	Topic  string
	Labels []string
	Kinds  []EventKind // none: all
}

// Event is something that happened to a timer. Absent fields are zero.
type Event struct {
	Kind   EventKind `json:"-"`
	Topic  string    `json:"topic"`
	ID     string    `json:"id"`
	Labels []string  `json:"labels"`
	Node   string    `json:"node"` // at which it happened
	At     time.Time `json:"at"`
	Due    time.Time `json:"due"` // of EventAdded and EventChanged

	Attempt     int       `json:"attempt"` // of EventFired, as all that follows
	Result      string    `json:"result"`  // success, retry, dead, cancelled
	Status      int       `json:"status"`
	Error       string    `json:"error"` // of EventMissed, too
	LateMs      int64     `json:"late_ms"`
	NextAttempt time.Time `json:"next_attempt"`

	Reason Reason `json:"reason"` // of EventDead
	Missed int64  `json:"missed"` // of EventMissed; 0: nobody knows how many

	Raw json.RawMessage `json:"-"` // the event as the node sent it
}

// Bounds of a stream of events.
const (
	eventSilence  = 45 * time.Second // a node sends something every 15 s
	maxEventBytes = 1 << 20
)

// Events yields timers' events, of all nodes, from now on until ctx ends. It is for looking on,
// not for work: events while no node is connected are lost, and only the history is complete. When
// a connection breaks the next node is asked; an EventMissed with an Error reports that. A refusal
// ends it, with its error.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for failed := 0; ; failed++ {
			stopped, err := c.stream(ctx, &f, func(e *Event) bool {
				failed = 0
				return yield(e, nil)
			})
			switch {
			case stopped || ctx.Err() != nil:
				return
			case refusedForGood(err):
				yield(nil, err)
				return
			}
			if !yield(&Event{Kind: EventMissed, At: now(), Error: err.Error()}, nil) || c.sleep(ctx, c.pause(err, failed)) != nil {
				return
			}
		}
	}
}

// stream yields the events of one connection, until yield returns false.
func (c *Client) stream(ctx context.Context, f *EventFilter, yield func(*Event) bool) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(eventSilence, cancel)
	defer watchdog.Stop()
	resp, passOver, err := c.open(ctx, f.request())
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEventBytes)
	kind := ""
	for lines.Scan() {
		watchdog.Reset(eventSilence)
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			e := &Event{Kind: EventKind(kind), Raw: json.RawMessage(value)}
			if err := json.Unmarshal(e.Raw, e); err != nil {
				return false, fmt.Errorf("client: GET /v1/events: read an event: %w", err)
			}
			if !yield(e) {
				return true, nil
			}
		}
	}
	passOver()
	return false, &unanswered{"GET /v1/events", cmp.Or(lines.Err(), io.EOF)}
}

// request is the call that the stream answers.
func (f *EventFilter) request() *Request {
	q := url.Values{}
	setText(q, "topic", f.Topic)
	setLabels(q, f.Labels)
	setText(q, "kind", commaList(f.Kinds))
	return &Request{Method: http.MethodGet, Path: Path("events"), Query: q}
}
