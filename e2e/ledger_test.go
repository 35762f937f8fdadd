package e2e

import (
	"fmt"
	"sync"
	"time"
)

// effect is what the client knows of a request.
type effect uint8

const (
	unknown effect = iota // no answer, or a 5xx: it may take effect any time or never
	acked                 // 2xx
	refused               // 4xx, or it never reached the node
)

func effectOf(a answer) effect {
	switch {
	case a.status >= 200 && a.status < 300:
		return acked
	case a.status >= 400 && a.status < 500, a.status == 0 && a.unsent:
		return refused
	}
	return unknown
}

// written is one version that the client tried to write: by an add, a put or a patch.
type written struct {
	sum      uint64 // of the payload
	dueMs    int64
	effect   effect
	sent     time.Time
	answered time.Time
}

// entry is all that the client did to one timer.
type entry struct {
	id         string
	versions   []written
	cancels    []cancelled
	createdRun int // which run of the node took the add
}

type cancelled struct {
	outcome  string // prevented, in_flight, already_fired, dead; "" when refused or unknown
	effect   effect
	sent     time.Time
	answered time.Time
}

// ledger is the client log. Each timer is written to by one goroutine at a time.
type ledger struct {
	mu      sync.Mutex
	entries []*entry
	byID    map[string]*entry
}

func newLedger() *ledger { return &ledger{byID: map[string]*entry{}} }

// add opens an entry; it is in the log before the request is sent.
func (l *ledger) add(id string, run int) *entry {
	e := &entry{id: id, createdRun: run}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[id] != nil {
		panic("e2e: timer id used twice: " + id)
	}
	l.entries = append(l.entries, e)
	l.byID[id] = e
	return e
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// wrote logs how a write ended.
func (l *ledger) wrote(e *entry, payload string, dueMs int64, a answer) effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := written{sum: sumOf(payload), dueMs: dueMs, effect: effectOf(a), sent: a.sent, answered: a.answered}
	e.versions = append(e.versions, w)
	return w.effect
}

func (l *ledger) cancelled(e *entry, a answer) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := cancelled{outcome: a.outcome(), effect: effectOf(a), sent: a.sent, answered: a.answered}
	e.cancels = append(e.cancels, c)
	return c.outcome
}

// owed tells whether the timer must be delivered: its add was acknowledged and no cancel can have kept it back.
func (e *entry) owed() bool {
	if len(e.versions) == 0 || e.versions[0].effect != acked {
		return false
	}
	for _, c := range e.cancels {
		if c.effect == unknown || c.outcome == "prevented" || c.outcome == "in_flight" {
			return false
		}
	}
	return true
}

// prevented is when the client was first told so; zero: never.
func (e *entry) prevented() time.Time {
	for _, c := range e.cancels {
		if c.outcome == "prevented" {
			return c.answered
		}
	}
	return time.Time{}
}

// mayArrive tells whether an arrival at that time with that body is one that the clients' writes allow: the version was
// sent before, not refused, and no later one had been acknowledged.
func (e *entry) mayArrive(a arrival) error {
	fault := fmt.Errorf("body is of no version that was written")
	for i, v := range e.versions {
		if v.sum != a.sum {
			continue
		}
		switch {
		case v.effect == refused:
			return fmt.Errorf("body is of version %d, which was refused", i+1)
		case a.at.Before(v.sent):
			return fmt.Errorf("body is of version %d, which was not sent yet", i+1)
		case a.dueMs != v.dueMs:
			return fmt.Errorf("body of version %d with another version's time: due %d, written %d", i+1, a.dueMs, v.dueMs)
		}
		fault = nil
		for j, later := range e.versions[i+1:] {
			if later.effect == acked && a.at.After(later.answered) {
				fault = fmt.Errorf("body is of version %d, %v after version %d was acknowledged", i+1, a.at.Sub(later.answered), i+j+2)
			}
		}
		if fault == nil {
			return nil
		}
	}
	return fault
}
