package callback

import (
	"sync"
	"time"
)

// line is where the calls of a destination that are to be made wait for its pace, in order. None
// waits longer than longestWait, whatever the pace.
type line struct {
	mu    sync.Mutex
	pace  destinationPace
	first *callSlot // Invariant: while one waits, another runs, whose worker will take it
	last  *callSlot
	alarm *time.Timer // set while one waits: looks for those that have waited too long
}

// begin reports whether the call may run now. Otherwise it is in line.
func (d *destination) begin(t *callSlot) bool {
	l := &d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	t.first = l.pace.running == 0 && d.latency.Load() == 0
	if l.first == nil && !l.pace.full() {
		l.pace.running++
		return true
	}
	t.since = time.Now()
	if l.first != nil {
		l.last.next = t
		l.last = t
		return false
	}
	l.first, l.last = t, t
	if l.alarm == nil {
		l.alarm = time.AfterFunc(longestWait, d.takeOverdue)
	} else {
		l.alarm.Reset(longestWait)
	}
	return false
}

// ended records the end of a call. It returns the one that runs in its place, and one more if
// the pace has become faster; nil for none.
func (d *destination) ended(out *Outcome) (next, more *callSlot) {
	l := &d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if out.Status > 0 && !out.dialled {
		l.pace.answered(out.Took, out.Started.Add(out.Took))
	}
	l.pace.running--
	return l.takeIfRoom(), l.takeIfRoom()
}

func (l *line) takeIfRoom() *callSlot {
	if l.first == nil || l.pace.full() {
		return nil
	}
	return l.take()
}

// take takes the first out of the line to be run.
func (l *line) take() *callSlot {
	t := l.first
	l.first, t.next = t.next, nil
	if l.first == nil {
		l.last = nil
		l.alarm.Stop()
	}
	l.pace.running++
	return t
}

// takeOverdue runs the calls that have waited too long.
func (d *destination) takeOverdue() {
	l := &d.line
	var run []*callSlot
	l.mu.Lock()
	for l.first != nil {
		if wait := time.Until(l.first.since.Add(longestWait)); wait > 0 {
			l.alarm.Reset(wait)
			break
		}
		run = append(run, l.take())
	}
	if len(run) > 0 {
		l.pace.overdue()
	}
	l.mu.Unlock()
	for _, t := range run {
		d.pool.starts.begin(t)
	}
}
