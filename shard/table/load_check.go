package table

import (
	"carillon/shard/table/index"
	"carillon/shard/table/slab"
	"carillon/timer"
)

// finish makes the checks that need the whole snapshot, and builds the state local to a replica:
// index, wheel and sums.
func (l *loader) finish() {
	t := l.t
	switch {
	case l.child != nil && l.records != l.child.count():
		l.fail("%d slots of %d that have left", l.records, l.child.count())
		return
	case l.child != nil:
		l.freeOthers()
	case l.records != t.slots.High || l.unused != t.slots.Unused:
		l.fail("%d slots, %d free; the header says %d and %d", l.records, l.unused, t.slots.High, t.slots.Unused)
		return
	}
	l.checkFree()
	ids := t.ids.Fill(int(t.slots.High)-t.slots.Unused, l.sameID)
	for h := timer.Handle(1); h <= t.slots.High && l.err == nil; h++ {
		s := t.slots.At(h)
		t.updates = append(t.updates, openUpdate{})
		if s.State() != 0 {
			l.enter(ids, h, s)
			t.place(h, s)
			if state := s.State(); t.foreign(h) && (state == timer.Done || state == timer.Cancelled) {
				l.foreignOver++
			}
		}
		t.endUpdate(h, s)
	}
	if first, second := ids.Done(); second != 0 {
		l.fail("handles %d and %d have one id", first, second)
	}
	if l.err == nil {
		l.checkFinished(&t.finished, t.topics.totals[timer.Done]+t.topics.totals[timer.Cancelled])
	}
	if l.err == nil && t.leaving != nil {
		l.checkFinished(&t.leaving.finished, l.foreignOver)
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
	for h := t.slots.Free; h != 0; h = t.slots.NextFree(h) {
		if n++; n > t.slots.Unused || t.slots.At(h).State() != 0 {
			l.fail("free list is broken at handle %d", h)
			return
		}
		t.slots.LoadedFree(h)
	}
	if n != t.slots.Unused {
		l.fail("free list has %d of %d slots", n, t.slots.Unused)
	}
}

// enter adds a timer to the index unless a newer one has superseded it.
func (l *loader) enter(ids *index.Filler, h timer.Handle, s *slab.Slot) {
	if l.t.chains[h].newer == 0 {
		ids.Add(l.t.idHash(l.t.topics.rows[s.Topic].id, l.t.content.View(s.Ref).ID), uint32(h))
	}
}

// sameID reports whether two timers of this shard have one id, or two that have left.
func (l *loader) sameID(a, b uint32) bool {
	t := l.t
	x, y := t.slots.At(timer.Handle(a)), t.slots.At(timer.Handle(b))
	return x.Topic == y.Topic && string(t.content.View(x.Ref).ID) == string(t.content.View(y.Ref).ID) &&
		t.foreign(timer.Handle(a)) == t.foreign(timer.Handle(b))
}

func (l *loader) checkFinished(f *finished, total int64) {
	t := l.t
	var n, bytes int64
	last := timer.Handle(0)
	for h := f.oldest; h != 0; {
		s := t.slots.At(h)
		if state := s.State(); n >= total || state != timer.Done && state != timer.Cancelled || timer.Handle(t.attempts.At(s.Attempt).Older) != last {
			l.fail("list of finished timers is broken at handle %d", h)
			return
		}
		n++
		bytes += t.finishedCost(h, s)
		last, h = h, timer.Handle(t.attempts.At(s.Attempt).Newer)
	}
	if n != total || bytes != f.bytes || last != f.newest {
		l.fail("%d timers of %d bytes are finished, %d and %d were expected", n, bytes, total, f.bytes)
	}
}

// checkChains walks the timers of each id from the one that the id names, and summarizes them. Each
// chained timer must occur exactly once.
func (l *loader) checkChains() {
	t := l.t
	met := 0
	for h := timer.Handle(1); h <= t.slots.High && len(t.chains) > 0 && l.err == nil; h++ {
		s := t.slots.At(h)
		if s.State() == 0 || !s.Chained() || t.chains[h].newer != 0 {
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

func (l *loader) checkChain(first timer.Handle, s *slab.Slot) (met int) {
	t, g := l.t, &sameID{first: first}
	behind, alone := true, 0 // alone: live ones that do not collect
	for last, h := timer.Handle(0), first; h != 0; last, h = h, t.chains[h].older {
		o := t.slots.At(h)
		if o.State() == 0 || !o.Chained() || t.chains[h].newer != last || t.chains[h].of != nil || o.Topic != s.Topic ||
			string(t.content.View(o.Ref).ID) != string(t.content.View(s.Ref).ID) {
			l.fail("timers of one id are broken at handle %d", h)
			return met
		}
		live := !o.State().Over()
		if live && !t.collects(h) {
			alone++
		}
		if t.chains[h].behind && (o.State() != timer.Scheduled || !behind || t.chains[h].older == 0) || behind && !t.chains[h].behind && h != first && !live {
			l.fail("handle %d waits behind nothing", h)
			return met
		}
		behind = behind && t.chains[h].behind
		if h != first && o.State() != timer.Dead && !live || live && g.over > 0 || alone > timer.MaxLiveOfID+1 || g.over > timer.MaxDeadOfID+1 {
			l.fail("timers of one id are in the wrong order at handle %d, or too many", h)
			return met
		}
		n := t.chains[h]
		n.live, n.of, g.last = live, g, h
		t.chains[h] = n
		if n.behind {
			g.lastBehind = h
			t.waiting[o.Seq()] = h
		}
		g.count(h, live, +1)
		met++
	}
	return met
}
