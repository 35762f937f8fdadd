package table

import "carillon/timer"

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
