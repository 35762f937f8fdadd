package table

import (
	"carillon/internal/order"
	"carillon/shard/table/slab"
	"carillon/timer"
)

// WheelWaits counts scheduled timers that are due, or between attempts, and wait in the wheel.
type WheelWaits struct {
	Backoff int64 // for their next attempt
	Refused int64 // the same; their last call was refused an address
	Spread  int64 // see Delay
	Paused  int64 // until a client resumes them; see Hold
	Order   int64 // until those of their id before them have ended; see Hold
}

// wheelWaits knows which timers are counted in a WheelWaits. What was popped is not: it waits for
// something else. The counts are local to a replica, as the wheel is.
type wheelWaits struct {
	counted, spread marks // spread are those of the counted that Delay armed
	all             WheelWaits
}

// marks has a bit for each handle.
type marks []uint64

func (m marks) has(h timer.Handle) bool {
	return int(h>>6) < len(m) && m[h>>6]&(1<<(h&63)) != 0
}

func (m *marks) set(h timer.Handle) {
	for int(h>>6) >= len(*m) {
		*m = append(*m, 0)
	}
	(*m)[h>>6] |= 1 << (h & 63)
}

func (m marks) clear(h timer.Handle) {
	if m.has(h) {
		m[h>>6] &^= 1 << (h & 63)
	}
}

// WheelWaits returns the counts of a topic, and those of all topics.
func (t *timetable) WheelWaits(topic timer.TopicID) (of, all WheelWaits) {
	if row, ok := t.topics.rowOf[topic]; ok {
		of = t.topics.rows[row].wheelWaits
	}
	return of, t.wheelWaits.all
}

// waitsForRetry reports whether a timer waits in the wheel for its next attempt. See Due.InBackoff
// and Due.PutOff.
func (t *timetable) waitsForRetry(h timer.Handle, s *slab.Slot) bool {
	dueMs := t.dueMs(s)
	if s.State() != timer.Scheduled || s.When() == dueMs || s.Attempts() == 0 && s.When() < dueMs {
		return false
	}
	at, in := t.wheel.When(wheelHandle(&t.slots, h))
	wake, _ := t.wakeMs(h, s)
	return in && int64(at) == wake
}

// countWait counts a timer that has its place in the wheel, if it waits there for its next
// attempt.
func (t *timetable) countWait(h timer.Handle, s *slab.Slot) {
	if t.waitsForRetry(h, s) && !t.foreign(h) {
		t.setWait(h, s, false)
	}
}

// setWait counts a timer that waits in the wheel, and nowhere else.
func (t *timetable) setWait(h timer.Handle, s *slab.Slot, spread bool) {
	t.WaitIn(h, nil, 0)
	if w := &t.wheelWaits; !w.counted.has(h) {
		w.counted.set(h)
		if spread {
			w.spread.set(h)
		}
		t.addWait(h, s, +1)
	}
}

// Delay is Arm for a timer that is due and whose first attempt is spread.
func (t *timetable) Delay(h timer.Handle, atMs int64) {
	if s := t.get(h); s != nil && s.Attempts() == 0 {
		t.Arm(h, atMs)
		t.setWait(h, s, true)
	}
}

// Hold counts a timer that is due, has left the wheel, and is held by a client or waits behind
// another of its id. It is armed for its expiry, if it has one; 0: none.
func (t *timetable) Hold(h timer.Handle, expiresMs int64) {
	s := t.get(h)
	if s == nil || !s.Paused() && !t.isBehind(h, s) {
		return
	}
	if expiresMs != 0 {
		t.Arm(h, expiresMs)
	}
	t.setWait(h, s, false)
}

// uncountWait comes before any change of a timer, and when it leaves the wheel.
func (t *timetable) uncountWait(h timer.Handle) {
	if w := &t.wheelWaits; w.counted.has(h) {
		t.addWait(h, t.slots.At(h), -1)
		w.counted.clear(h)
		w.spread.clear(h)
	}
}

func (t *timetable) addWait(h timer.Handle, s *slab.Slot, by int64) {
	for _, r := range [...]*WheelWaits{&t.topics.rows[s.Topic].wheelWaits, &t.wheelWaits.all} {
		switch {
		case s.Paused():
			r.Paused += by
		case t.isBehind(h, s):
			r.Order += by
		case t.wheelWaits.spread.has(h):
			r.Spread += by
		case t.wasRefused(s):
			r.Refused += by
		default:
			r.Backoff += by
		}
	}
}

// Overdue returns about how many clients' timers are due, in a table whose wheel moves on and from
// which nothing is popped. The leader that this replica may have been has perhaps popped the
// canary.
func (t *timetable) Overdue() int64 {
	all := t.Totals()
	due := min(int64(t.wheel.Due()), all.Scheduled+all.Leased)
	canary := t.Find(CanaryTopic, []byte(CanaryID))
	if when, in := t.wheel.When(wheelHandle(&t.slots, canary)); in && when <= t.wheel.Now() {
		due--
	}
	return max(0, due)
}

// Queue is where a leader has a due timer wait once it has left the wheel. It counts those of its
// timers that are as they were when they came.
type Queue interface {
	// Count counts timers that came, or that are gone: they changed, ended, or wait elsewhere.
	Count(by int)
	// DueOrder is the order that the queue shares with the others of its topic.
	DueOrder() *DueOrder

	place() *QueuePlace
}

// QueuePlace is embedded in every Queue.
type QueuePlace struct{ number uint32 } // in queuedTimers.queues, if the queue is there

func (p *QueuePlace) place() *QueuePlace { return p }

// DueOrder has the timers of some queues, by when they were due. It is a heap; each timer's place
// in it is in queuedTimers, as a pointer to an item of order.Heap would cost as much as the entry.
// It has no outdated timers.
//
// Cost: O(log n) for a timer that comes or goes, and 16 bytes; O(1) for one that comes in order of
// the due times, and to read the oldest.
type DueOrder struct{ items order.Chunks[dueTimer] }

type dueTimer struct {
	dueMs  int64
	handle timer.Handle
}

// Len is the number of timers.
func (o *DueOrder) Len() int { return o.items.Len() }

// Overdue returns how many timers wait, and how long the oldest has.
func (o *DueOrder) Overdue(nowMs int64) (timers, oldestMs int64) {
	n := o.Len()
	if n == 0 {
		return 0, 0
	}
	return int64(n), max(0, nowMs-o.items.At(0).dueMs)
}

// queuedTimers knows the queue of each timer that waits in one, and its place in the DueOrder. It
// is local to a leader. To set one is O(log n). A part of the handles in which no timer waits costs
// a pointer and a byte. Parts have no pointers: beside a million that wait, these were most of what
// the collector had to follow.
type queuedTimers struct {
	parts   []*queuedPart  // by handle
	used    []uint8        // how many timers of each part wait
	spare   []*queuedPart  // kept for the next timers, spareParts at most
	inUse   int            // of parts
	waiting int            // timers
	queues  []waitingQueue // by number; 0 is none
	free    []uint32       // numbers of no queue
}

// waitingQueue is a queue in which timers wait.
type waitingQueue struct {
	Queue
	timers int
}

const (
	queuedBits = 6
	spareParts = 64
)

// queuedPart fills a size class of the allocator.
type queuedPart struct {
	queues [1 << queuedBits]uint32 // numbers in queuedTimers.queues
	places [1 << queuedBits]uint32
}

func (q *queuedTimers) memory() int64 {
	const part, ordered, queue = 512, 20, 24 // with the room in last chunks, about
	return int64(q.inUse+len(q.spare))*part + int64(cap(q.parts))*8 + int64(cap(q.used)) + int64(q.waiting)*ordered +
		int64(cap(q.queues))*queue + int64(cap(q.free))*4
}

// set records where a timer waits, nil: nowhere, and since when, and returns where it waited.
func (q *queuedTimers) set(h timer.Handle, to Queue, dueMs int64) (was Queue) {
	i, at := int(h>>queuedBits), h&(1<<queuedBits-1)
	if i >= len(q.parts) || q.parts[i] == nil {
		if to == nil {
			return nil
		}
		q.makePart(i)
	}
	p, number := q.parts[i], q.number(to)
	if before := p.queues[at]; before != number {
		if number != 0 {
			q.queues[number].timers++
		}
		was, p.queues[at] = q.leave(before), number
	} else {
		was = to
	}
	q.reorder(orderOf(was), orderOf(to), dueTimer{dueMs, h})
	switch {
	case was == nil && to != nil:
		q.waiting++
		q.used[i]++
	case was != nil && to == nil:
		q.waiting--
		if q.used[i]--; q.used[i] == 0 {
			q.dropPart(i)
		}
		if q.waiting == 0 && cap(q.queues) > 1024 {
			q.queues, q.free = nil, nil // a herd of many queues is over
		}
	}
	return was
}

// has reports whether a timer waits in a queue.
func (q *queuedTimers) has(h timer.Handle, in Queue) bool {
	i := int(h >> queuedBits)
	return i < len(q.parts) && q.parts[i] != nil && q.queues[q.parts[i].queues[h&(1<<queuedBits-1)]].Queue == in
}

// number returns a queue's number, and gives it one if it has none; 0 for nil.
func (q *queuedTimers) number(to Queue) uint32 {
	if to == nil {
		return 0
	}
	p := to.place()
	if int(p.number) < len(q.queues) && q.queues[p.number].Queue == to {
		return p.number
	}
	if last := len(q.free) - 1; last >= 0 {
		p.number, q.free = q.free[last], q.free[:last]
	} else {
		p.number = uint32(max(len(q.queues), 1))
		q.queues = append(q.queues, make([]waitingQueue, int(p.number)+1-len(q.queues))...)
	}
	q.queues[p.number] = waitingQueue{Queue: to}
	return p.number
}

// leave counts a timer out of the queue of a number, and returns that queue; nil for 0.
func (q *queuedTimers) leave(number uint32) Queue {
	if number == 0 {
		return nil
	}
	w := &q.queues[number]
	was := w.Queue
	if w.timers--; w.timers == 0 {
		*w = waitingQueue{}
		q.free = append(q.free, number)
	}
	return was
}

func orderOf(q Queue) *DueOrder {
	if q == nil {
		return nil
	}
	return q.DueOrder()
}

// reorder takes a timer from one order to another, either may be nil, or to its place in the same.
func (q *queuedTimers) reorder(from, to *DueOrder, v dueTimer) {
	if from == to {
		if from != nil && from.items.At(int(*q.placeOf(v.handle))).dueMs != v.dueMs {
			q.sift(from, int(*q.placeOf(v.handle)), v)
		}
		return
	}
	if from != nil {
		i, moved := int(*q.placeOf(v.handle)), from.items.TakeLast()
		if i < from.Len() {
			q.sift(from, i, moved)
		}
	}
	if to != nil {
		to.items.Push(v)
		q.sift(to, to.Len()-1, v)
	}
}

// placeOf is a timer's index in the items of its order.
func (q *queuedTimers) placeOf(h timer.Handle) *uint32 {
	return &q.parts[h>>queuedBits].places[h&(1<<queuedBits-1)]
}

// sift puts a timer where it belongs in an order, from place i, which is free.
func (q *queuedTimers) sift(o *DueOrder, i int, v dueTimer) {
	put := func(v dueTimer) {
		*o.items.At(i) = v
		*q.placeOf(v.handle) = uint32(i)
	}
	for i > 0 && v.dueMs < o.items.At((i-1)/2).dueMs {
		put(*o.items.At((i - 1) / 2))
		i = (i - 1) / 2
	}
	for c, n := 2*i+1, o.Len(); c < n; c = 2*i + 1 {
		if c+1 < n && o.items.At(c+1).dueMs < o.items.At(c).dueMs {
			c++
		}
		if v.dueMs <= o.items.At(c).dueMs {
			break
		}
		put(*o.items.At(c))
		i = c
	}
	put(v)
}

func (q *queuedTimers) makePart(i int) {
	for i >= len(q.parts) {
		q.parts, q.used = append(q.parts, nil), append(q.used, 0)
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
// waited; nil: it waits nowhere. It was due at dueMs. It reports whether the timer waited elsewhere.
func (t *timetable) WaitIn(h timer.Handle, to Queue, dueMs int64) (came bool) {
	was := t.queued.set(h, to, dueMs)
	if was == to {
		return false
	}
	if was != nil {
		was.Count(-1)
	}
	if to != nil {
		to.Count(+1)
	}
	return true
}

// WaitsIn reports whether WaitIn counts a timer in a queue.
func (t *timetable) WaitsIn(h timer.Handle, in Queue) bool { return t.queued.has(h, in) }

// ForgetQueues forgets where timers wait, without counting them.
func (t *timetable) ForgetQueues() { t.queued = queuedTimers{} }
