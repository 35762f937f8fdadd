package shard

import (
	"sync"

	"carillon/timer"
)

// event is what a worker's mailbox carries: client operations, log completions, outcomes of calls,
// granted permits, control. Handled on the worker's goroutine.
type event interface{ handle(w *worker) }

// mailbox is a worker's queue: many producers, one consumer that takes all at once. Client
// operations are refused beyond its bound; the rest is bounded by the calls that run and the frames
// on their way to disk, and is never refused, since dropping a completion would lose it.
type mailbox struct {
	mu     sync.Mutex
	events []event
	closed bool
	wake   chan struct{} // capacity 1
	bound  int
}

func newMailbox(bound int) *mailbox {
	return &mailbox{bound: bound, wake: make(chan struct{}, 1)}
}

// offer queues a client operation unless too much waits.
func (m *mailbox) offer(e event) error { return m.put(e, m.bound) }

// post queues an internal event.
func (m *mailbox) post(e event) { _ = m.put(e, int(^uint(0)>>1)) }

func (m *mailbox) put(e event, bound int) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return timer.ErrStopped
	}
	n := len(m.events)
	if n >= bound {
		m.mu.Unlock()
		return timer.ErrOverloaded
	}
	m.events = append(m.events, e)
	m.mu.Unlock()
	if n == 0 {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// take swaps the queue for an empty one.
func (m *mailbox) take(empty []event) []event {
	m.mu.Lock()
	full := m.events
	m.events = empty[:0]
	m.mu.Unlock()
	return full
}

// close refuses what comes from now on and returns what was left.
func (m *mailbox) close() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	left := m.events
	m.events = nil
	return left
}
