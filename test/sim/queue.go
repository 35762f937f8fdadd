package sim

import "time"

// event is a function to run at a time.
type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.seq < o.seq
}

// eventQueue holds future events, ordered by time and then by arrival. It is a heap with four
// children per node. Immediate events and clients' timeouts, most of which do nothing, arrive in
// their order and have queues of their own.
type eventQueue struct {
	items          []event
	once, timeouts eventLine
}

// eventLine is a first-in, first-out queue.
type eventLine struct {
	events []event
	passed int // how many of them have been taken
}

func (l *eventLine) push(e event) {
	if l.passed > len(l.events)/2 {
		n := copy(l.events, l.events[l.passed:])
		clear(l.events[n:])
		l.events, l.passed = l.events[:n], 0
	}
	l.events = append(l.events, e)
}

// first is the next event, or nil.
func (l *eventLine) first() *event {
	if l.passed == len(l.events) {
		return nil
	}
	return &l.events[l.passed]
}

func (l *eventLine) pop() event {
	e := l.events[l.passed]
	l.events[l.passed] = event{}
	l.passed++
	return e
}

const branches = 4

func (q *eventQueue) push(e event) {
	q.items = append(q.items, e)
	i := len(q.items) - 1
	for i > 0 {
		parent := (i - 1) / branches
		if !e.before(&q.items[parent]) {
			break
		}
		q.items[i] = q.items[parent]
		i = parent
	}
	q.items[i] = e
}

// pop takes the next event if it is not later than end.
func (q *eventQueue) pop(end time.Duration) (event, bool) {
	var next *event
	if len(q.items) > 0 {
		next = &q.items[0]
	}
	line := (*eventLine)(nil)
	for _, l := range [...]*eventLine{&q.once, &q.timeouts} {
		if e := l.first(); e != nil && (next == nil || e.before(next)) {
			next, line = e, l
		}
	}
	switch {
	case next == nil || next.at > end:
		return event{}, false
	case line != nil:
		return line.pop(), true
	}
	return q.top(), true
}

// top takes the first event of the heap.
func (q *eventQueue) top() event {
	top, last := q.items[0], len(q.items)-1
	e := q.items[last]
	q.items[last] = event{}
	q.items = q.items[:last]
	if last == 0 {
		return top
	}
	i := 0
	for first := 1; first < last; first = branches*i + 1 {
		least := first
		for c := first + 1; c < min(first+branches, last); c++ {
			if q.items[c].before(&q.items[least]) {
				least = c
			}
		}
		if !q.items[least].before(&e) {
			break
		}
		q.items[i] = q.items[least]
		i = least
	}
	q.items[i] = e
	return top
}
