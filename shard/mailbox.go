package shard

import (
	"sync"

	"carillon/timer"
)

// event is an element of a worker's mailbox: a client operation, a completion of the log, the
// outcome of a call, a granted permit or a control message. It is handled on the worker's
// goroutine.
type event interface{ handle(w *worker) }

// mailbox is a worker's queue, with many producers and one consumer that takes all events at once.
// Client operations beyond bound are refused. Internal events are never refused, because a
// completion must not be lost; the running calls and the frames in flight bound their number.
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

// offer queues a client operation. It returns timer.ErrOverloaded if the queue is full.
func (m *mailbox) offer(e event) error { return m.put(e, m.bound) }

// post queues an internal event, or drops it if the mailbox is closed.
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

// take returns the queued events and makes empty the new queue.
func (m *mailbox) take(empty []event) []event {
	m.mu.Lock()
	full := m.events
	m.events = empty[:0]
	m.mu.Unlock()
	return full
}

// close makes later puts fail and returns the remaining events.
func (m *mailbox) close() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	left := m.events
	m.events = nil
	return left
}
