package shard

import "carillon/timer"

// pile is a queue that was set aside because most of it, or the front of it, has changed since: its topic was dropped, for one.
type pile struct {
	items []entry
	once  bool // a timer may be in it twice
}

// prune sets a queue aside once what has changed since must be the larger part (I15): sift goes through it, bit by bit.
func (l *lead) prune(h *heap[entry], timers int64) {
	if int64(h.len()) <= 2*timers+512 {
		return
	}
	l.setAside(pile{h.items, true})
	*h = heap[entry]{}
}

func (l *lead) setAside(p pile) {
	l.sifting = append(l.sifting, p)
	l.group.w.touchNext(l.group)
}

// sift queues anew what still stands of the queues that were set aside, as many as one turn may. Topics in order wait until it is done.
func (l *lead) sift() {
	if len(l.sifting) == 0 {
		return
	}
	if l.sifted == nil {
		l.sifted = map[timer.Handle]bool{}
	}
	horizon := l.group.w.nowMs + l.lookAhead.Milliseconds()
	for budget := popBudget; budget > 0 && len(l.sifting) > 0; budget-- {
		p := &l.sifting[len(l.sifting)-1]
		last := len(p.items) - 1
		if last < 0 {
			l.sifting = l.sifting[:len(l.sifting)-1]
			continue
		}
		e, once := p.items[last], p.once
		p.items = p.items[:last]
		if !l.current(e) || once && l.sifted[e.handle] {
			continue
		}
		if once {
			l.sifted[e.handle] = true
		}
		l.classify(e, horizon) // it may set more aside
	}
	if len(l.sifting) > 0 {
		l.group.w.touchNext(l.group)
		return
	}
	l.sifting, l.sifted = nil, nil
}
