package callback

import (
	"runtime"
	"sync"
	"time"

	"carillon/internal/order"
)

const (
	// youngCalls is how many calls may be young at once, for each processor that Go uses.
	youngCalls = 4
	// youngFor is how long a call is young at most from when its goroutine runs, if it has not
	// written its request before. An older one waits for its receiver, not for a processor.
	youngFor = 1 * time.Millisecond
)

// starts bounds the calls that are busy with this machine at once: that are about to dial or to
// write. More would only stand in each other's way, and in the way of all else in the process: a
// thousand of them in Go's queue are a delay of 50 ms for each goroutine that wakes. A call that
// waits for its receiver is no longer young, so that receivers that hang do not hold up others.
//
// What waits is served topic by topic. Every operation costs O(1).
type starts struct {
	pool *Pool
	most int

	mu    sync.Mutex
	young order.Ring[*callSlot]  // the oldest first
	lanes map[uint64]*startLane  // by topic
	ring  order.Ring[*startLane] // those with a call that waits
	alarm *time.Timer            // set while one waits
	set   bool
}

// startLane is the calls of one topic that wait to begin, in order.
type startLane struct {
	topic uint64
	calls order.Ring[*callSlot]
	spot  order.Spot[*startLane]
}

func (s *starts) init(p *Pool) {
	s.pool, s.most, s.lanes = p, youngCalls*runtime.GOMAXPROCS(0), map[uint64]*startLane{}
}

// begin runs the call, now or in its turn.
func (s *starts) begin(t *callSlot) {
	s.mu.Lock()
	now := s.admit(t)
	s.mu.Unlock()
	if now {
		s.pool.workers.run(t)
	}
}

// follow ends a call. It reports whether next, if there is one, may run in its place at once.
func (s *starts) follow(ended, next *callSlot) bool {
	s.mu.Lock()
	ended.young.Leave()
	now := next != nil && s.admit(next)
	run := s.takeLocked()
	s.mu.Unlock()
	s.run(run)
	return now
}

// wrote records that a call waits for its answer.
func (s *starts) wrote(t *callSlot) {
	s.mu.Lock()
	t.young.Leave()
	run := s.takeLocked()
	s.mu.Unlock()
	s.run(run)
}

// admit reports whether a call may begin. Otherwise it waits.
func (s *starts) admit(t *callSlot) bool {
	t.young.Of, t.waits.Of = t, t
	if s.ring.Len() == 0 && s.young.Len() < s.most {
		s.young.Push(&t.young)
		return true
	}
	l := s.lanes[t.topic]
	if l == nil {
		l = &startLane{topic: t.topic}
		l.spot.Of = l
		s.lanes[t.topic] = l
	}
	l.calls.Push(&t.waits)
	s.ring.Push(&l.spot)
	s.setAlarm()
	return false
}

func (s *starts) setAlarm() {
	if s.set {
		return
	}
	s.set = true
	if s.alarm == nil {
		s.alarm = time.AfterFunc(youngFor, s.look)
		return
	}
	s.alarm.Reset(youngFor)
}

// look lets calls begin in place of those that are not young any more.
func (s *starts) look() {
	s.mu.Lock()
	s.set = false
	old := time.Now().Add(-youngFor).UnixNano()
	for s.young.Len() > 0 {
		t := s.young.First()
		if began := t.began.Load(); began == 0 || began > old {
			break
		}
		t.young.Leave()
	}
	run := s.takeLocked()
	if s.ring.Len() > 0 {
		s.setAlarm()
	}
	s.mu.Unlock()
	s.run(run)
}

// takeLocked takes the calls that may begin now, linked by next.
func (s *starts) takeLocked() (first *callSlot) {
	last := &first
	for s.ring.Len() > 0 && s.young.Len() < s.most {
		l := s.ring.Rotate()
		t := l.calls.First()
		t.waits.Leave()
		if l.calls.Len() == 0 {
			l.spot.Leave()
			delete(s.lanes, l.topic)
		}
		s.young.Push(&t.young)
		*last, last = t, &t.next
	}
	return first
}

func (s *starts) run(list *callSlot) {
	for t := list; t != nil; {
		next := t.next
		t.next = nil
		s.pool.workers.run(t)
		t = next
	}
}
