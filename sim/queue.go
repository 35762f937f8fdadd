package sim

import "time"

// event is something that will happen.
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

// eventQueue is what will happen, by time and then by order of arrival: a heap in which each has four below it, and those that wait equally
// long, most of which come to nothing, in the order in which they came.
type eventQueue struct {
	items    []event
	timeouts []event
	passed   int // of the timeouts
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

// timeout is push for an event that is not before any other that came this way.
func (q *eventQueue) timeout(e event) {
	if q.passed > len(q.timeouts)/2 {
		n := copy(q.timeouts, q.timeouts[q.passed:])
		clear(q.timeouts[n:])
		q.timeouts, q.passed = q.timeouts[:n], 0
	}
	q.timeouts = append(q.timeouts, e)
}

// pop takes the next event, if it is not later than end.
func (q *eventQueue) pop(end time.Duration) (e event, ok bool) {
	if q.passed < len(q.timeouts) {
		if next := &q.timeouts[q.passed]; len(q.items) == 0 || next.before(&q.items[0]) {
			if next.at > end {
				return event{}, false
			}
			e, *next = *next, event{}
			q.passed++
			return e, true
		}
	}
	if len(q.items) == 0 || q.items[0].at > end {
		return event{}, false
	}
	return q.top(), true
}

// top takes the first of the heap.
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
