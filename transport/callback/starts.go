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
	// youngTime is how long a call is young at most from when its goroutine runs. An older one
	// waits for its receiver, not for a processor.
	youngTime = 1 * time.Millisecond
)

// starts bounds the calls that are busy with this machine at once. More would only stand in each
// other's way, and in the way of all else in the process: a thousand of them in Go's queue are a
// delay of 50 ms for each goroutine that wakes.
//
// A call is young until it has written its request, the first call of a receiver until it ends: so
// the calls of a herd to many receivers do not all wait for a processor when their answers arrive.
// One that takes longer waits for its receiver, and is no longer young: receivers that hang do not
// hold up others.
//
// What waits is served topic by topic, and the only call of a topic begins at once, until there are
// twice as many. Every operation costs O(1).
type starts struct {
	pool *Pool
	most int

	mu    sync.Mutex
	young order.Ring[*callSlot]  // the oldest first
	of    map[uint64]int         // how many of a topic are young; none without any
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
	s.pool, s.most = p, youngCalls*runtime.GOMAXPROCS(0)
	s.of, s.lanes = map[uint64]int{}, map[uint64]*startLane{}
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
	s.leaves(ended)
	now := next != nil && s.admit(next)
	run := s.takeLocked()
	s.mu.Unlock()
	s.run(run)
	return now
}

// wrote records that a call waits for its answer. It is not the first of its receiver.
func (s *starts) wrote(t *callSlot) {
	s.mu.Lock()
	s.leaves(t)
	run := s.takeLocked()
	s.mu.Unlock()
	s.run(run)
}

// admit reports whether a call may begin. Otherwise it waits.
func (s *starts) admit(t *callSlot) bool {
	t.young.Of, t.waits.Of = t, t
	l := s.lanes[t.topic]
	if s.ring.Len() == 0 && s.young.Len() < s.most || l == nil && s.of[t.topic] == 0 && s.young.Len() < 2*s.most {
		s.enters(t)
		return true
	}
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

func (s *starts) enters(t *callSlot) {
	s.of[t.topic]++
	s.young.Push(&t.young)
}

func (s *starts) leaves(t *callSlot) {
	if !t.young.In() {
		return
	}
	t.young.Leave()
	if s.of[t.topic]--; s.of[t.topic] == 0 {
		delete(s.of, t.topic)
	}
}

func (s *starts) setAlarm() {
	if s.set {
		return
	}
	s.set = true
	if s.alarm == nil {
		s.alarm = time.AfterFunc(youngTime, s.look)
		return
	}
	s.alarm.Reset(youngTime)
}

// look lets calls begin in place of those that are not young any more. It waits in Go's queue
// before: where that is long, a call that took longer may have waited there, too.
func (s *starts) look() {
	old := s.pool.config.Now().Add(-youngTime).UnixNano()
	runtime.Gosched()
	s.mu.Lock()
	s.set = false
	for s.young.Len() > 0 {
		t := s.young.First()
		if began := t.began.Load(); began == 0 || began > old {
			break
		}
		s.leaves(t)
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
		s.enters(t)
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
