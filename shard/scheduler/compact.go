package scheduler

import "carillon/timer"

// staleQueue is a queue that was set aside because most of it, or its front, is outdated; for
// example its topic was dropped.
type staleQueue struct {
	items []entry
	once  bool // a timer may be in it twice
}

// prune sets a queue aside for compact once more than half of it must be outdated (I15).
func (l *Scheduler) prune(h *heap[entry], timers int64) {
	if int64(h.len()) <= 2*timers+512 {
		return
	}
	l.deferCompaction(staleQueue{h.items, true})
	*h = heap[entry]{}
}

func (l *Scheduler) deferCompaction(p staleQueue) {
	l.due.compacting = append(l.due.compacting, p)
	l.env.WakeNext()
}

// compact queues the current entries of staleQueues again, at most PopBudget a turn. Serial topics
// wait until it is done.
func (l *Scheduler) compact() {
	if len(l.due.compacting) == 0 {
		return
	}
	if l.due.compacted == nil {
		l.due.compacted = map[timer.Handle]bool{}
	}
	horizon := l.now.WallMs + l.due.lookAhead.Milliseconds()
	for budget, over := PopBudget, false; budget > 0 && !over && len(l.due.compacting) > 0; {
		l.compactOne(horizon)
		var steps int
		steps, over = l.spentOn(1)
		budget -= steps
	}
	if len(l.due.compacting) > 0 {
		l.env.WakeNext()
		return
	}
	l.due.compacting, l.due.compacted = nil, nil
}

// compactOne queues the last entry of the last of the staleQueues again, if it is current.
func (l *Scheduler) compactOne(horizon int64) {
	p := &l.due.compacting[len(l.due.compacting)-1]
	last := len(p.items) - 1
	if last < 0 {
		l.due.compacting = l.due.compacting[:len(l.due.compacting)-1]
		return
	}
	e, once := p.items[last], p.once
	p.items = p.items[:last]
	if !l.current(e) || once && l.due.compacted[e.handle] {
		return
	}
	if once {
		l.due.compacted[e.handle] = true
	}
	l.classify(e, horizon) // it may set more aside
}
