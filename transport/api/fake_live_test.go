package api

import (
	"context"
	"sync"
	"time"

	"carillon/transport/api/backend"
)

// fakeLive hands a test's events to its listeners.
type fakeLive struct {
	asked backend.DueQuery // of the last Due
	due   *backend.Due
	stats *backend.ClusterStats
	fails error // of Due

	mu      sync.Mutex
	streams []*fakeStream
}

type fakeStream struct {
	ctx    context.Context
	watch  backend.Watch
	events chan backend.Event
	missed chan int64
	closed chan struct{}
}

func (l *fakeLive) Listen(ctx context.Context, w *backend.Watch) backend.EventStream {
	s := &fakeStream{ctx: ctx, watch: *w, events: make(chan backend.Event, 10), missed: make(chan int64, 1), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = append(l.streams, s)
	return s
}

// stream is the n-th that was opened; nil when there are fewer.
func (l *fakeLive) stream(n int) *fakeStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n >= len(l.streams) {
		return nil
	}
	return l.streams[n]
}

func (s *fakeStream) Next(wait time.Duration) ([]backend.Event, int64, bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case e := <-s.events:
		return []backend.Event{e}, 0, true
	case n := <-s.missed:
		return nil, n, true
	case <-t.C:
		return nil, 0, true
	case <-s.ctx.Done():
		return nil, 0, false
	}
}

func (s *fakeStream) Close() { close(s.closed) }

func (l *fakeLive) Due(_ context.Context, q *backend.DueQuery) (*backend.Due, error) {
	l.asked = *q
	if l.due == nil {
		return &backend.Due{Buckets: make([]int64, q.Buckets)}, l.fails
	}
	return l.due, l.fails
}

func (l *fakeLive) Stats(context.Context) *backend.ClusterStats { return l.stats }
