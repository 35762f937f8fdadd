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
			t.countWait(h, s)
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

// checkChains walks the timers of each id from the one that the id names, and summarizes them. Each
// chained timer must occur exactly once.
func (l *loader) checkChains() {
	t := l.t
	met := 0
	for h := timer.Handle(1); h <= t.slab.high && len(t.chains) > 0 && l.err == nil; h++ {
		s := t.slab.at(h)
		if s.state() == 0 || !s.chained() || t.chains[h].newer != 0 {
			continue
		}
		if t.chains[h].older == 0 {
			l.fail("handle %d is chained to nothing", h)
			return
		}
		met += l.checkChain(h, s)
	}
	if l.err == nil && met != len(t.chains) {
		l.fail("%d of %d timers are in chains", met, len(t.chains))
	}
}

// checkChain walks the timers of one id and returns their number.
func (l *loader) checkChain(first timer.Handle, s *slot) (met int) {
	t, g := l.t, &sameID{first: first}
	for last, h := timer.Handle(0), first; h != 0; last, h = h, t.chains[h].older {
		o := t.get(h)
		if o == nil || !o.chained() || t.chains[h].newer != last || t.chains[h].of != nil || o.topic != s.topic ||
			string(t.view(o.ref).id) != string(t.view(s.ref).id) {
			l.fail("timers of one id are broken at handle %d", h)
			return met
		}
		live := !o.state().Over()
		if h != first && o.state() != timer.Dead && !live || live && g.over > 0 || g.live > timer.MaxLiveOfID || g.over > timer.MaxDeadOfID+1 {
			l.fail("timers of one id are in the wrong order at handle %d, or too many", h)
			return met
		}
		n := t.chains[h]
		n.live, n.of, g.last = live, g, h
		t.chains[h] = n
		g.count(h, live, +1)
		met++
	}
	return met
}
