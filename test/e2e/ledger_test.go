package e2e

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// effect is the client's knowledge of a request's effect.
type effect uint8

const (
	unknown effect = iota // no answer, or 5xx: it may take effect at any time or never
	acked                 // 2xx
	refused               // 4xx, or it cannot have reached the node
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

// written is a version that the client tried to write, by an add, a put or a patch.
type written struct {
	sum      uint64 // of the payload
	dueMs    int64
	effect   effect
	born     bool // answered 201: a new timer, or a reused id
	sent     time.Time
	answered time.Time
	repeated bool // see answer
}

// entry has all writes and cancels of one timer.
type entry struct {
	id         string
	versions   []written
	operations []operation
	cancels    []cancelled
	createdRun int // number of the node's start at the add
}

type cancelled struct {
	outcome  string // prevented, in_flight, already_fired, dead; "": refused or unknown
	effect   effect
	place    int // number of versions written before
	sent     time.Time
	answered time.Time
}

// ledger is the client's log. One goroutine at a time writes to a timer.
type ledger struct {
	mu      sync.Mutex
	entries []*entry
	byID    map[string]*entry
}

func newLedger() *ledger { return &ledger{byID: map[string]*entry{}} }

// add opens an entry, before its request is sent.
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

// wrote logs a write and its answer.
func (l *ledger) wrote(e *entry, payload string, dueMs int64, a answer) effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := written{sum: sumOf(payload), dueMs: dueMs, effect: effectOf(a), born: a.status == 201, repeated: a.repeated, sent: a.sent, answered: a.answered}
	e.versions = append(e.versions, w)
	return w.effect
}

func (l *ledger) cancelled(e *entry, a answer) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := cancelled{outcome: a.outcome(), effect: effectOf(a), place: len(e.versions), sent: a.sent, answered: a.answered}
	e.cancels = append(e.cancels, c)
	return c.outcome
}

// owed reports whether the timer must be delivered: its add was acknowledged and no cancel can have
// prevented it.
func (e *entry) owed() bool {
	return len(e.versions) > 0 && e.versions[0].effect == acked && e.end() == "done"
}

// end is the state in which the timer must end: done, cancelled, or "" if it may be either.
func (e *entry) end() string {
	want := "done"
	for _, c := range e.cancels {
		switch {
		case e.revived(c):
		case c.outcome == "prevented" && e.mayComeAgain(c):
			want = ""
		case c.outcome == "prevented":
			want = "cancelled"
		case want == "done" && (c.effect == unknown || c.outcome == "in_flight"):
			want = ""
		}
	}
	return want
}

// revived reports whether the id was reused after the cancel.
func (e *entry) revived(c cancelled) bool {
	for _, v := range e.versions[c.place:] {
		if v.born {
			return true
		}
	}
	return false
}

// mayComeAgain reports whether an add that had no answer may arrive after the cancel: it makes anew
// what was cancelled.
func (e *entry) mayComeAgain(c cancelled) bool {
	for _, v := range e.versions[:c.place] {
		if v.repeated || v.effect == unknown {
			return true
		}
	}
	return false
}

// prevented is when a final "prevented" was first answered, zero if it was not.
func (e *entry) prevented() time.Time {
	for _, c := range e.cancels {
		if c.outcome == "prevented" && !e.revived(c) && !e.mayComeAgain(c) {
			return c.answered
		}
	}
	return time.Time{}
}

// mayArrive checks that the client's writes allow a call with this body at this time.
func (e *entry) mayArrive(a arrival) error {
	fault := errors.New("body is of no version that was written")
	for i, v := range e.versions {
		if v.sum == a.sum {
			if fault = e.mayArriveAs(i, a); fault == nil {
				return nil
			}
		}
	}
	return fault
}

// mayArriveAs checks that the version had been sent, was not refused and has this due time, and
// that no later version had been acknowledged.
func (e *entry) mayArriveAs(i int, a arrival) error {
	v := e.versions[i]
	switch {
	case v.effect == refused:
		return fmt.Errorf("body is of write %d, which was refused", i+1)
	case a.at.Before(v.sent):
		return fmt.Errorf("body is of write %d, which was not sent yet", i+1)
	case a.dueMs != v.dueMs:
		return fmt.Errorf("body of write %d with another time: due %d, written %d", i+1, a.dueMs, v.dueMs)
	}
	for _, c := range e.cancels {
		if i == 0 && c.outcome == "prevented" && e.mayComeAgain(c) {
			return nil
		}
	}
	for j, later := range e.versions[i+1:] {
		if later.effect == acked && a.at.After(later.answered) {
			return fmt.Errorf("body is of write %d, %v after write %d was acknowledged", i+1, a.at.Sub(later.answered), i+j+2)
		}
	}
	return nil
}
