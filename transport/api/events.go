package api

import (
	"context"
	"crypto/sha256"
	"io"
	"slices"
	"strings"
	"time"

	"carillon/timer"
)

// EventStream hands out events, in the order in which this node learnt of them.
type EventStream interface {
	// Next waits for events, so long at most; none came when it returns an empty list. missed is
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
	EventMissed  = "missed" // of a node from which nothing is heard; no client asks for it
)

var eventKinds = []string{EventFired, EventDead, EventAdded, EventChanged, EventCancelled, EventBreaker, EventNode}

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
	State       string `json:"state,omitempty"`       // of a breaker, or a node

	Node string `json:"node"`
}

// SeesTopic reports whether the watch is of a topic.
func (w *Watch) SeesTopic(topic string) bool {
	if w.Topic != "" && w.Topic != topic {
		return false
	}
	for _, pattern := range w.Topics {
		if match(pattern, topic) {
			return true
		}
	}
	return len(w.Topics) == 0
}

// Wants reports whether the watch is of breakers, or of nodes, as the kind says. A token that
// reaches only some topics hears nothing of breakers.
func (w *Watch) Wants(kind string) bool {
	all := len(w.Topics) == 0 || slices.Contains(w.Topics, "*")
	return w.Topic == "" && len(w.Labels) == 0 && slices.Contains(w.Kinds, kind) && (kind == EventNode || all)
}

// OfTimers reports whether the watch is of timers' events.
func (w *Watch) OfTimers() bool {
	return len(w.Kinds) == 0 || slices.ContainsFunc(w.Kinds, func(kind string) bool { return kind != EventBreaker && kind != EventNode })
}

// Sees reports whether the watch selects an event of a timer.
func (w *Watch) Sees(e *Event) bool {
	return w.SeesTopic(e.Topic) && (len(w.Kinds) == 0 || slices.Contains(w.Kinds, e.Kind)) && hasAll(e.Labels, w.Labels)
}

func hasAll(labels, wanted []string) bool {
	for _, l := range wanted {
		if !slices.Contains(labels, l) {
			return false
		}
	}
	return true
}

// ReasonName is how the API calls the reason of a death.
func ReasonName(r timer.Reason) string { return reasonName(r) }

// Bounds of streams of events.
const (
	streamsAtOnce = 64 // at one node
	// After so long without an event the client is told that the stream lives.
	streamBeat = 15 * time.Second
)

// watchEvents answers with a stream of server-sent events that ends with the client, with the
// server, or with the token.
func (rq *request) watchEvents() *problem {
	w := &Watch{}
	var p *problem
	if w.Labels, p = rq.query.labels(); p != nil {
		return p
	}
	if list, given := rq.query.value("kind"); given {
		for kind := range strings.SplitSeq(list, ",") {
			if !slices.Contains(eventKinds, kind) {
				return bad(badRequest, "query: kind must be a comma list of "+strings.Join(eventKinds, ", "))
			}
			w.Kinds = append(w.Kinds, kind)
		}
	}
	if name, given := rq.query.value("topic"); given {
		if _, p := rq.queryTopic(name); p != nil {
			return p
		}
		w.Topic = name
	}
	s := rq.s
	st := &eventBody{s: s, watch: w}
	if rq.who != nil {
		if p := rq.mayWatch(w); p != nil {
			return p
		}
		w.Topics, st.signed = rq.who.topics, true
	}
	if string(rq.ctx.Method()) == "HEAD" {
		rq.ctx.Response.Header.SetContentType(eventStreamType)
		return nil
	}
	if st.token, p = s.streams.take(rq.who); p != nil {
		return p
	}
	var ctx context.Context
	if c, ok := rq.ctx.Conn().(*framedConn); ok {
		st.conn = c
		ctx, st.stop = c.whileConnected(s.ending)
	} else {
		ctx, st.stop = context.WithCancel(s.ending)
	}
	st.events = rq.core.Live.Listen(ctx, w)
	h := &rq.ctx.Response.Header
	h.SetContentType(eventStreamType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that keep answers back would keep events back
	rq.ctx.Response.ImmediateHeaderFlush = true
	rq.ctx.SetConnectionClose()
	rq.ctx.SetBodyStream(st, -1)
	return nil
}

// mayWatch leaves breakers out, which are of receivers of all topics, where the token does not have
// the scope cluster.
func (rq *request) mayWatch(w *Watch) *problem {
	lacking := rq.needs(scopeCluster)
	if lacking == nil || len(w.Kinds) == 0 {
		return nil
	}
	w.Kinds = slices.DeleteFunc(w.Kinds, func(kind string) bool { return kind == EventBreaker })
	if len(w.Kinds) == 0 {
		return lacking // it asked for nothing else
	}
	return nil
}

const eventStreamType = "text/event-stream"

// eventBody is the body of a stream: fasthttp, on the connection's goroutine, reads the bytes that
// it then writes, and waits in Read for the next event.
type eventBody struct {
	s      *Server
	conn   *framedConn // nil: a test's
	watch  *Watch
	events EventStream
	stop   func()
	begun  bool

	token  [sha256.Size]byte
	signed bool

	rest []byte // rendered, not read yet
	room []byte // that rest lies in
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if !b.fill() {
			return 0, io.EOF
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if b.conn != nil {
		_ = b.conn.SetWriteDeadline(time.Now().Add(b.s.cfg.Limits.WriteTimeout))
	}
	return n, nil
}

// fill renders the next events; false at the end.
func (b *eventBody) fill() bool {
	out := b.room[:0]
	if !b.begun {
		b.begun = true
		out = append(out, "retry: 1000\n: events of timers, as they happen\n\n"...)
	} else {
		events, missed, ok := b.events.Next(b.s.beat)
		if !ok || !b.allowed() {
			return false
		}
		if missed > 0 {
			o := object{b: append(out, "event: missed\ndata: "...)}
			o.integer("missed", missed)
			out = append(o.end(), "\n\n"...)
		}
		for i := range events {
			out = appendEvent(out, &events[i])
		}
		if len(out) == 0 {
			out = append(out, ": still here\n\n"...)
		}
	}
	b.rest, b.room = out, out
	return true
}

// allowed reports whether the token that asked is one still, and reaches the same topics, and
// whether the connection's certificate still counts.
func (b *eventBody) allowed() bool {
	if b.conn != nil && !b.conn.trusted() {
		return false
	}
	if !b.signed {
		return true
	}
	who := b.s.cfg.Auth.principals.Load().bySum[b.token]
	return who != nil && who.may(scopeRead) && slices.Equal(who.topics, b.watch.Topics) &&
		(who.may(scopeCluster) || !slices.Contains(b.watch.Kinds, EventBreaker))
}

// Close implements io.Closer; fasthttp calls it when the answer is over, however it ended.
func (b *eventBody) Close() error {
	b.end()
	return nil
}

func (b *eventBody) end() {
	if b.events != nil {
		b.events.Close()
	}
	b.stop()
	b.s.streams.give(b.token)
}

// appendEvent writes one event in the form of server-sent events.
func appendEvent(b []byte, e *Event) []byte {
	b = append(append(append(b, "event: "...), e.Kind...), "\ndata: "...)
	o := object{b: b}
	if e.Topic != "" {
		o.str("topic", e.Topic)
		o.str("id", e.ID)
	}
	if e.Destination != "" {
		o.str("destination", e.Destination)
	}
	o.str("node", e.Node)
	if e.State != "" {
		o.str("state", e.State)
	}
	o.b = appendTime(o.b, "at", e.AtMs)
	switch e.Kind {
	case EventFired:
		o.integer("attempt", int64(e.Attempt))
		o.str("result", e.Result)
		o.integer("late_ms", e.LateMs)
	case EventAdded, EventChanged:
		o.b = appendTime(o.b, "due", e.DueMs)
	case EventDead:
		o.str("reason", e.Reason)
	}
	if e.Status != 0 {
		o.integer("status", int64(e.Status))
	}
	if e.Error != "" {
		o.str("error", e.Error)
	}
	if e.NextMs != 0 {
		o.b = appendTime(o.b, "next_attempt", e.NextMs)
	}
	if len(e.Labels) > 0 {
		o.name("labels")
		labels := array{b: o.b}
		for _, l := range e.Labels {
			labels.next()
			labels.b = appendString(labels.b, l)
		}
		o.b = labels.end()
	}
	return append(o.end(), "\n\n"...)
}
