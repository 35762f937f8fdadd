package table

import "carillon/timer"

// finish makes the checks that need the whole snapshot, and builds the state local to a replica:
// index, wheel and sums.
func (l *loader) finish() {
	t := l.t
	if l.records != t.slab.high || l.unused != t.slab.unused {
		l.fail("%d slots, %d free; the header says %d and %d", l.records, l.unused, t.slab.high, t.slab.unused)
		return
	}
	l.checkFree()
	if l.err != nil {
		return
	}
	for h := timer.Handle(1); h <= t.slab.high; h++ {
		s := t.slab.at(h)
		if s.state() == 0 {
			s.rev = 0
		}
		t.endUpdate(h, s)
	}
	for h := timer.Handle(1); h <= t.slab.high && l.err == nil; h++ {
		if s := t.slab.at(h); s.state() != 0 {
			l.enter(h, s)
			t.place(h, s)
		}
	}
	if l.err == nil {
		l.checkFinished()
	}
	if l.err == nil {
		l.checkChains()
	}
	if topic, leased := t.Astray(); l.err == nil && leased != 0 {
		l.fail("%d timers of topic %d are leased otherwise than its delivery says", leased, topic)
	}
}

func (l *loader) checkFree() {
	t := l.t
	n := 0
	for h := t.slab.free; h != 0; h = timer.Handle(t.slab.at(h).ref) {
		if n++; n > t.slab.unused || t.slab.at(h).state() != 0 {
			l.fail("free list is broken at handle %d", h)
			return
		}
	}
	if n != t.slab.unused {
		l.fail("free list has %d of %d slots", n, t.slab.unused)
	}
}

// enter adds a timer to the index unless a newer one has superseded it.
func (l *loader) enter(h timer.Handle, s *slot) {
	t := l.t
	if l := t.chains[h]; l.newer != 0 {
		return
	}
	topic := t.topics.rows[s.topic].id
	id := t.view(s.ref).id
	if other := t.Find(topic, id); other != 0 {
		l.fail("handles %d and %d have one id", other, h)
		return
	}
	t.ids.insert(t.idHash(topic, id), uint32(h))
}

func (l *loader) checkFinished() {
	t := l.t
	total := t.topics.totals[timer.Done] + t.topics.totals[timer.Cancelled]
	var n, bytes int64
	last := timer.Handle(0)
	for h := t.finished.oldest; h != 0; {
		s := t.slab.at(h)
		if state := s.state(); n >= total || state != timer.Done && state != timer.Cancelled || timer.Handle(t.runs.at(s.run).older) != last {
			l.fail("list of finished timers is broken at handle %d", h)
			return
		}
		n++
		bytes += t.finishedCost(s)
		last, h = h, timer.Handle(t.runs.at(s.run).newer)
	}
	if n != total || bytes != t.finished.bytes || last != t.finished.newest {
		l.fail("%d timers of %d bytes are finished, %d and %d were expected", n, bytes, total, t.finished.bytes)
	}
}

// checkChains walks each chain from the timer that its id names. Each chained timer must occur
// exactly once.
func (l *loader) checkChains() {
	t := l.t
	met := 0
	for h := timer.Handle(1); h <= t.slab.high && len(t.chains) > 0; h++ {
		s := t.slab.at(h)
		if s.state() == 0 || !s.chained() || t.chains[h].newer != 0 {
			continue
		}
		met++
		for last, at := h, t.chains[h].older; at != 0; last, at = at, t.chains[at].older {
			o := t.get(at)
			if o == nil || o.state() == timer.Done || o.state() == timer.Cancelled || !o.chained() || t.chains[at].newer != last || o.topic != s.topic ||
				string(t.view(o.ref).id) != string(t.view(s.ref).id) || met >= len(t.chains) {
				l.fail("dead letters of one id are broken at handle %d", at)
				return
			}
			met++
		}
		if t.chains[h].older == 0 {
			l.fail("handle %d is chained to nothing", h)
			return
		}
	}
	if met != len(t.chains) {
		l.fail("%d of %d timers are in chains", met, len(t.chains))
	}
}
