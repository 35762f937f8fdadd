package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// finished lists the timers that are Done or Cancelled in the order in which they ended. The list
// is linked through their attemptStates.
type finished struct {
	oldest, newest timer.Handle
	bytes          int64 // by finishedCost
}

// finishedFixed is the nominal size of a finished timer without its id, content and error. It
// decides replicated state, so it is a constant and not the timer's real memory in this version.
const finishedFixed = 160

func (t *Table) finishedCost(s *slot) int64 {
	v := t.view(s.ref)
	return int64(finishedFixed + len(v.id) + len(v.rest) + len(t.errorText(t.runs.at(s.run))))
}

// push appends a timer that has just ended. The timer's update is open.
func (f *finished) push(t *Table, h timer.Handle, s *slot) {
	r := t.run(s)
	r.newer, r.older = 0, uint32(f.newest)
	if f.newest == 0 {
		f.oldest = h
	} else {
		f.relink(t, f.newest, func(r *attemptState) { r.newer = uint32(h) })
	}
	f.newest = h
	f.bytes += t.finishedCost(s)
}

// remove removes a timer from the list. The timer's update is open.
func (f *finished) remove(t *Table, h timer.Handle, s *slot) {
	r := t.runs.at(s.run)
	newer, older := timer.Handle(r.newer), timer.Handle(r.older)
	if older == 0 {
		f.oldest = newer
	} else {
		f.relink(t, older, func(r *attemptState) { r.newer = uint32(newer) })
	}
	if newer == 0 {
		f.newest = older
	} else {
		f.relink(t, newer, func(r *attemptState) { r.older = uint32(older) })
	}
	f.bytes -= t.finishedCost(s)
}

func (f *finished) relink(t *Table, h timer.Handle, change func(*attemptState)) {
	s := t.beginUpdate(h)
	change(t.runs.at(s.run))
	t.endUpdate(h, s)
}

// end finishes a timer with an open update as Done or Cancelled.
func (t *Table) end(h timer.Handle, s *slot, to timer.State, endMs int64) {
	t.run(s).setEndedMs(endMs)
	t.transition(h, s, to, endMs)
	t.finished.push(t, h, s)
	t.tellEnd(h, s)
}

// dropFinished drops at most budget finished timers that ended too long ago or exceed the bound of
// bytes.
func (t *Table) dropFinished(budget int) {
	for ; budget > 0; budget-- {
		h := t.finished.oldest
		if h == 0 {
			return
		}
		if t.slab.at(h).when() >= t.clockMs-finishedKeepMs && t.finished.bytes <= finishedMaxBytes {
			return
		}
		t.drop(h)
	}
}

// link is a timer's place among those of one id. The id names the newest. The others are superseded
// dead letters: they are listed, but can only be purged, by id and version.
type link struct{ newer, older timer.Handle }

// setLink changes a timer's place in its chain. The timer must have no open update.
func (t *Table) setLink(h timer.Handle, l link) {
	s := t.beginUpdate(h)
	if l == (link{}) {
		delete(t.chains, h)
	} else {
		t.chains[h] = l
	}
	s.mark(chainMark, l != link{})
	t.endUpdate(h, s)
}

// supersede makes the id name the new timer h, which is not in the index, instead of the dead
// letter old.
func (t *Table) supersede(hash uint32, old, h timer.Handle) {
	t.ids.replace(hash, uint32(old), uint32(h))
	t.setLink(old, link{newer: h, older: t.chains[old].older})
	t.setLink(h, link{older: old})
}

// unchain removes a timer from its chain and from the index. The next older timer of the id takes
// its place in the index.
func (t *Table) unchain(h timer.Handle) {
	s := t.slab.at(h)
	l := t.chains[h] // zero if the id has only this timer
	if s.chained() {
		t.setLink(h, link{})
	}
	if l.newer == 0 {
		v := t.view(s.ref)
		hash := t.idHash(t.topics.rows[s.topic].id, v.id)
		if l.older == 0 {
			t.ids.remove(hash, uint32(h))
		} else {
			t.ids.replace(hash, uint32(h), uint32(l.older))
		}
	} else {
		n := t.chains[l.newer]
		n.older = l.older
		t.setLink(l.newer, n)
	}
	if l.older != 0 {
		o := t.chains[l.older]
		o.newer = l.newer
		t.setLink(l.older, o)
	}
}

// deadLetter finds the dead letter that Redrive or Purge names by an id: the latest one, or the one
// of a given version. inUse reports that another timer has the id by now, either scheduled or
// leased, or a later dead letter.
func (t *Table) deadLetter(c *encoding.Command) (h timer.Handle, inUse bool) {
	h = t.Find(c.Topic, c.ID)
	if h == 0 {
		return 0, false
	}
	if s := t.slab.at(h); s.state() == timer.Done || s.state() == timer.Cancelled {
		h = t.chains[h].older // 0 if the id has only this timer
	}
	for h != 0 {
		s := t.slab.at(h)
		if v := t.view(s.ref); s.state() == timer.Dead && v.meets(c) {
			return h, inUse
		}
		h, inUse = t.chains[h].older, true
	}
	return 0, inUse
}
