package table

import "carillon/timer"

// Queue is where a leader has a due timer wait once it has left the wheel. It counts those of its
// timers that are as they were when they came.
type Queue interface {
	// Count counts timers that came, or that are gone: they changed, ended, or wait elsewhere.
	Count(by int)
}

// queuedTimers knows the queue of each timer that waits in one. It is local to a leader. To set one
// is O(1). A part of the handles in which no timer waits costs a pointer.
type queuedTimers struct {
	parts []*queuedPart // by handle
	spare []*queuedPart // kept for the next timers, spareParts at most
	inUse int           // of parts
}

const (
	queuedBits = 6
	spareParts = 64
)

type queuedPart struct {
	queues [1 << queuedBits]Queue
	used   int
}

func (q *queuedTimers) memory() int64 {
	const part = 1152
	return int64(q.inUse+len(q.spare))*part + int64(cap(q.parts))*8
}

// set records where a timer waits, nil: nowhere, and returns where it waited.
func (q *queuedTimers) set(h timer.Handle, to Queue) (was Queue) {
	i, at := int(h>>queuedBits), h&(1<<queuedBits-1)
	if i >= len(q.parts) || q.parts[i] == nil {
		if to == nil {
			return nil
		}
		q.makePart(i)
	}
	p := q.parts[i]
	was, p.queues[at] = p.queues[at], to
	switch {
	case was == nil && to != nil:
		p.used++
	case was != nil && to == nil:
		if p.used--; p.used == 0 {
			q.dropPart(i)
		}
	}
	return was
}

func (q *queuedTimers) makePart(i int) {
	for i >= len(q.parts) {
		q.parts = append(q.parts, nil)
	}
	q.inUse++
	last := len(q.spare) - 1
	if last < 0 {
		q.parts[i] = new(queuedPart)
		return
	}
	q.parts[i], q.spare = q.spare[last], q.spare[:last]
}

func (q *queuedTimers) dropPart(i int) {
	if len(q.spare) < spareParts {
		q.spare = append(q.spare, q.parts[i])
	}
	q.parts[i] = nil
	q.inUse--
}

// WaitIn counts a due timer that has left the wheel where it waits now, and no longer where it
// waited; nil: it waits nowhere.
func (t *timetable) WaitIn(h timer.Handle, to Queue) {
	was := t.queued.set(h, to)
	if was == to {
		return
	}
	if was != nil {
		was.Count(-1)
	}
	if to != nil {
		to.Count(+1)
	}
}

// ForgetQueues forgets where timers wait, without counting them.
func (t *timetable) ForgetQueues() { t.queued = queuedTimers{} }
