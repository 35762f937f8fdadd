// Package events answers with streams of what happens to timers, as server-sent events.
package events

import (
	"context"
	"crypto/sha256"
	"io"
	"slices"
	"strings"
	"time"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Bounds of streams of events.
const (
	StreamsAtOnce = 64 // at one node
	// After this time without an event a comment shows the client that the stream lives.
	StreamBeat = 15 * time.Second
)

// Watch answers with a stream of server-sent events that ends with the client, with the
// server, or with the token.
func Watch(rq *web.Request) *web.Problem {
	w := &backend.Watch{Labels: rq.Query.Labels()}
	if list, given := rq.Query.Value("kind"); given {
		for kind := range strings.SplitSeq(list, ",") {
			if !slices.Contains(backend.EventKinds, kind) {
				rq.Query.Reject(web.BadRequest, "query: kind must be a comma list of %s", strings.Join(backend.EventKinds, ", "))
			}
			w.Kinds = append(w.Kinds, kind)
		}
	}
	p := rq.Query.Problem()
	if p != nil {
		return p
	}
	if name, given := rq.Query.Value("topic"); given {
		if _, p := rq.QueryTopic(name); p != nil {
			return p
		}
		w.Topic = name
	}
	st := &eventBody{n: rq.Node, watch: w}
	if rq.Who != nil {
		if p := mayWatch(rq, w); p != nil {
			return p
		}
		w.Topics, st.signed = rq.Who.Topics, true
	}
	if string(rq.Ctx.Method()) == "HEAD" {
		rq.Ctx.Response.Header.SetContentType(eventStreamType)
		return nil
	}
	if st.token, p = rq.Streams.Take(rq.Who); p != nil {
		return p
	}
	var ctx context.Context
	if st.conn = rq.Conn(); st.conn != nil {
		ctx, st.stop = st.conn.WhileConnected(rq.Ending)
	} else {
		ctx, st.stop = context.WithCancel(rq.Ending)
	}
	st.events = rq.Core.Live.Listen(ctx, w)
	h := &rq.Ctx.Response.Header
	h.SetContentType(eventStreamType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that keep answers back would keep events back
	rq.Ctx.Response.ImmediateHeaderFlush = true
	rq.Ctx.SetConnectionClose()
	rq.Ctx.SetBodyStream(st, -1)
	return nil
}

// mayWatch leaves breakers out, which are of receivers of all topics, where the token does not have
// the scope cluster.
func mayWatch(rq *web.Request, w *backend.Watch) *web.Problem {
	lacking := rq.Who.Needs(web.ScopeCluster)
	if lacking == nil || len(w.Kinds) == 0 {
		return nil
	}
	w.Kinds = slices.DeleteFunc(w.Kinds, func(kind string) bool { return kind == backend.EventBreaker })
	if len(w.Kinds) == 0 {
		return lacking // it asked for nothing else
	}
	return nil
}

const eventStreamType = "text/event-stream"

// eventBody is the body of a stream: fasthttp, on the connection's goroutine, reads the bytes that
// it then writes, and waits in Read for the next event.
type eventBody struct {
	n      *web.Node
	conn   web.Conn // nil: a test's
	watch  *backend.Watch
	events backend.EventStream
	stop   func()
	begun  bool

	token  [sha256.Size]byte
	signed bool

	rest []byte // rendered, not read yet
	room []byte // that rest lies in
}

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if !b.fill() {
			return 0, io.EOF
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if b.conn != nil {
		_ = b.conn.SetWriteDeadline(time.Now().Add(b.n.Limits.WriteTimeout))
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
		events, missed, ok := b.events.Next(b.n.Beat)
		if !ok || !b.allowed() {
			return false
		}
		if missed > 0 {
			o := web.Object{B: append(out, "event: missed\ndata: "...)}
			o.Integer("missed", missed)
			out = append(o.End(), "\n\n"...)
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
	if b.conn != nil && !b.conn.Trusted() {
		return false
	}
	if !b.signed {
		return true
	}
	who := b.n.Principal(b.token)
	return who != nil && who.May(web.ScopeRead) && slices.Equal(who.Topics, b.watch.Topics) &&
		(who.May(web.ScopeCluster) || !slices.Contains(b.watch.Kinds, backend.EventBreaker))
}

// Close implements io.Closer; fasthttp calls it when the answer is over, however it ended.
func (b *eventBody) Close() error {
	b.events.Close()
	b.stop()
	b.n.Streams.Give(b.token)
	return nil
}

// appendEvent writes one event in the form of server-sent events.
func appendEvent(b []byte, e *backend.Event) []byte {
	b = append(append(append(b, "event: "...), e.Kind...), "\ndata: "...)
	o := web.Object{B: b}
	if e.Topic != "" {
		o.Text("topic", e.Topic)
		o.Text("id", e.ID)
	}
	o.OptText("destination", e.Destination)
	o.Text("node", e.Node)
	o.OptText("state", e.State)
	o.B = web.AppendTime(o.B, "at", e.AtMs)
	switch e.Kind {
	case backend.EventFired:
		o.Integer("attempt", int64(e.Attempt))
		o.Text("result", e.Result)
		o.Integer("late_ms", e.LateMs)
	case backend.EventAdded, backend.EventChanged:
		o.B = web.AppendTime(o.B, "due", e.DueMs)
	case backend.EventDead:
		o.Text("reason", e.Reason)
	case backend.EventShards:
		if g := e.Growth; g != nil {
			o.Integer("from", int64(g.From))
			o.Integer("to", int64(g.To))
			o.Integer("done", int64(g.Done))
			if e.State == backend.GrowthDivided {
				o.Integer("shard", int64(g.From+g.Done))
			}
		}
	}
	o.OptInteger("status", int64(e.Status))
	o.OptText("error", e.Error)
	o.OptTime("next_attempt", e.NextMs)
	o.OptTexts("labels", e.Labels)
	return append(o.End(), "\n\n"...)
}
